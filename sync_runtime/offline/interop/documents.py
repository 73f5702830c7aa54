"""JSON from elsewhere, and the sizes that it may claim. Pure.

A key that stands twice is refused: two readers would see two documents.
"""

from __future__ import annotations

import json
from typing import TypeVar

from sync_runtime.errors import FormatError, LimitError

T = TypeVar("T")
MAX_DOCUMENT_BYTES = 100 << 20
MAX_INT = (1 << 63) - 1


class _RepeatedKeyError(ValueError):
    """Only to leave the parser."""


def parse_object(raw: bytes, what: str) -> dict[str, object]:
    """A JSON object; raises FormatError for everything else."""
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise LimitError(f"{what} has {len(raw)} bytes; the limit is {MAX_DOCUMENT_BYTES}")
    try:
        content = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except _RepeatedKeyError as error:
        raise FormatError(f"{what} has the key {error} twice") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is not JSON") from error
    if not isinstance(content, dict):
        raise FormatError(f"{what} is not a JSON object")
    return content


def field(content: dict[str, object], key: str, kind: type[T], what: str) -> T:
    """A field that must be there, of exactly this type."""
    found = content.get(key)
    if type(found) is not kind:
        raise FormatError(f"{what} has no {key!r} that is a {kind.__name__}")
    return found


def count(content: dict[str, object], key: str, what: str) -> int:
    """A field that is a size or a number: an integer, not negative."""
    found = field(content, key, int, what)
    if not 0 <= found <= MAX_INT:
        raise FormatError(f"{key!r} of {what} is {found}, which is no size")
    return found


def sizes(content: dict[str, object], key: str, what: str) -> tuple[int, ...]:
    """A shape."""
    found = field(content, key, list, what)
    if len(found) > 16 or any(type(size) is not int or not 0 <= size <= MAX_INT for size in found):
        raise FormatError(f"{key!r} of {what} is not a shape")
    return tuple(found)


def objects(content: dict[str, object], key: str, what: str) -> list[dict[str, object]]:
    """A list of objects."""
    found = field(content, key, list, what)
    if any(not isinstance(item, dict) for item in found):
        raise FormatError(f"{key!r} of {what} is not a list of objects")
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKeyError(repr(key))
        found[key] = value
    return found
