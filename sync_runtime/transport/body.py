"""What bodies of frames are made of: strict models of JSON objects, and field types that several messages share.

Bodies may be hostile: size was judged by `wire`; here nesting, JSON without duplicate keys or fractions, exactly the
fields of a model, then every limit. What is wrong ends in FrameError. Knows no single message.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sync_runtime.contract.fields import MAX_SAFE_INTEGER
from sync_runtime.contract.strict_json import loads_strict
from sync_runtime.errors import FrameError
from sync_runtime.transport.wire import FrameType

MAX_DEPTH: Final = 8

Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Number = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
Reason = Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Za-z0-9]+$")]
Sentence = Annotated[str, Field(max_length=1024)]


class JsonMessage(BaseModel):
    """A message whose body is a JSON object with exactly these fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    TYPE: ClassVar[FrameType]

    def body(self) -> bytes:
        """The frame's body."""
        text = json.dumps(self.model_dump(), separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        return text.encode()


_Model = TypeVar("_Model", bound=JsonMessage)


def read_model(kind: FrameType, model: type[_Model], body: bytes) -> _Model:
    """The message in a JSON body; raises FrameError."""
    document = _parse_json(kind, body)
    if set(document) != set(model.model_fields):
        raise FrameError(f"a {kind.name} message has the fields {sorted(model.model_fields)} and no others")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FrameError(f"a {kind.name} message with a bad field {where!r}: {first['msg']}") from error


def _parse_json(kind: FrameType, body: bytes) -> dict[str, Any]:
    try:
        document = loads_strict(body, MAX_DEPTH)
    except ValueError as error:  # not UTF-8, not JSON, thousands of digits, or one of our own refusals
        raise FrameError(f"a {kind.name} message cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise FrameError(f"a {kind.name} message must be a JSON object")
    return document
