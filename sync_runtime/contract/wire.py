"""Strict JSON for what operator and runtime tell each other: plan and reports.

The bytes come from elsewhere and are hostile until proven otherwise. In this order: size, nesting, JSON without
duplicate keys or fractions, format version, then the model with every limit. Whatever is wrong ends in one of
`errors`' types.

Version skew: a document names its `formatVersion`, and a reader refuses one that it does not know, since an unknown
field may change the meaning of known ones. Members report the newest plan format that they read; the operator writes
the newest that all members of a group know, so that either side may be upgraded first.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from sync_runtime.contract.base import Model
from sync_runtime.contract.errors import (
    DocumentTooLargeError,
    InvalidDocumentError,
    MalformedJsonError,
    UnsupportedFormatError,
)
from sync_runtime.contract.problems import problems_of
from sync_runtime.contract.strict_json import loads_strict

FORMAT_VERSION_KEY = "formatVersion"
MAX_DEPTH = 16
"""Objects and lists inside each other; ours have four."""


class WireModel(Model):
    """A model that travels as JSON between processes of different versions."""

    FORMAT_VERSIONS: ClassVar[tuple[int, ...]] = (1,)
    """What this reader knows, newest last."""
    MAX_BYTES: ClassVar[int]

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read a document; raises a ContractError that says what is wrong."""
        what = cls.__name__
        document = _parse(data, what, cls.MAX_BYTES)
        found = document.get(FORMAT_VERSION_KEY)
        if type(found) is not int or found not in cls.FORMAT_VERSIONS:
            raise UnsupportedFormatError(what, found, cls.FORMAT_VERSIONS)
        try:
            return cls.parse(document)
        except ValidationError as error:
            raise InvalidDocumentError(what, problems_of(error, cls)) from error

    def to_json(self) -> str:
        """The document in its one canonical spelling: sorted keys, no spaces; equal models give equal text."""
        text = json.dumps(self.to_document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        size_bytes = len(text.encode())
        if size_bytes > self.MAX_BYTES:
            raise DocumentTooLargeError(type(self).__name__, size_bytes, self.MAX_BYTES)
        return text


def _parse(data: bytes | str, what: str, limit_bytes: int) -> dict[str, Any]:
    size_bytes = len(data) if isinstance(data, bytes) else len(data.encode(errors="surrogatepass"))
    if size_bytes > limit_bytes:
        raise DocumentTooLargeError(what, size_bytes, limit_bytes)
    try:
        document = loads_strict(data, MAX_DEPTH)
    except ValueError as error:
        raise MalformedJsonError(f"{what} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise MalformedJsonError(f"{what} must be a JSON object, not {type(document).__name__}")
    return document
