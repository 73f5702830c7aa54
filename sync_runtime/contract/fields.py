"""Field types of the contract: strings with a shape, integers with bounds, lists with a merge rule, opaque objects.

Each type carries its limits in a form that both pydantic and the CRD generator read, so that a bound stands in one
place.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from sync_runtime.contract import patterns

# Integers beyond this are not exact in every JSON reader.
MAX_SAFE_INTEGER = 2**53 - 1

_QUANTITY_MAX_LENGTH = 32


@dataclass(frozen=True)
class ListMap:
    """A list of objects told apart by `keys` (camelCase): server-side apply merges it item by item."""

    keys: tuple[str, ...]

    def identity(self, item: Any) -> tuple[object, ...]:
        """What tells this item from the others."""
        document = item.to_document()
        return tuple(document.get(key) for key in self.keys)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        names = " and ".join(self.keys)
        message = f"has the same {names} as an earlier item; each must be unique"
        return core_schema.no_info_after_validator_function(
            lambda items: _unique(items, [self.identity(item) for item in items], message), handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        marks = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}
        return {**handler(schema), **marks}


@dataclass(frozen=True)
class ListSet:
    """A list of distinct values whose order means nothing."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        message = "is given twice; each value must be unique"
        return core_schema.no_info_after_validator_function(
            lambda items: _unique(items, list(items), message), handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "x-kubernetes-list-type": "set"}


@dataclass(frozen=True)
class ListAtomic:
    """A list that is replaced as a whole; its order means something."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "x-kubernetes-list-type": "atomic"}


@dataclass(frozen=True)
class PreserveUnknown:
    """An object whose fields are somebody else's business: kept as given, never looked into."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        written = {**handler(schema), "x-kubernetes-preserve-unknown-fields": True}
        written.pop("additionalProperties", None)
        return written


@dataclass(frozen=True)
class IntOrString:
    """A Kubernetes quantity: a whole number, or a string such as `500m` or `2Gi`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_is_quantity)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            "x-kubernetes-int-or-string": True,
            "pattern": patterns.QUANTITY,
            "maxLength": _QUANTITY_MAX_LENGTH,
            "minimum": 0,
            "maximum": MAX_SAFE_INTEGER,
        }


def _unique(items: Any, identities: list[Any], message: str) -> Any:
    first_seen: set[Any] = set()
    errors: list[InitErrorDetails] = []
    for index, identity in enumerate(identities):
        if identity in first_seen:
            kind = PydanticCustomError("duplicate", "{message}", {"message": message})
            errors.append(InitErrorDetails(type=kind, loc=(index,), input=None))
        first_seen.add(identity)
    if errors:
        raise ValidationError.from_exception_data("list", errors)
    return items


def _is_quantity(value: Any) -> Any:
    if isinstance(value, str):
        good = len(value) <= _QUANTITY_MAX_LENGTH and re.fullmatch(patterns.QUANTITY, value) is not None
    else:
        good = type(value) is int and 0 <= value <= MAX_SAFE_INTEGER
    if not good:
        raise PydanticCustomError("quantity", f"must be {patterns.WORDS[patterns.QUANTITY]}")
    return value


def _is_calendar_time(value: str) -> str:
    """The pattern allows the 30th of February; the API server does not."""
    try:
        datetime.datetime.fromisoformat(value[:19])
    except ValueError as error:
        raise PydanticCustomError("time", f"must be {patterns.WORDS[patterns.TIME]} that exists") from error
    return value


def _without_nulls(value: Any) -> Any:
    """The API server drops null values from typed maps."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=patterns.DNS_LABEL)]
DnsSubdomain = Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.DNS_SUBDOMAIN)]
Host = Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.HOST)]
Cidr = Annotated[str, Field(min_length=1, max_length=43, pattern=patterns.CIDR)]
HttpUrl = Annotated[str, Field(min_length=8, max_length=2048, pattern=patterns.HTTP_URL)]
Port = Annotated[int, Field(ge=1, le=65535)]
Time = Annotated[
    str,
    Field(max_length=32, pattern=patterns.TIME, json_schema_extra={"format": "date-time"}),
    AfterValidator(_is_calendar_time),
]
"""RFC 3339 in UTC."""
Message = Annotated[str, Field(max_length=1024)]
ShortMessage = Annotated[str, Field(max_length=256)]
CamelReason = Annotated[str, Field(min_length=1, max_length=128, pattern=patterns.CAMEL_REASON)]
Count = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
Uid = Annotated[str, Field(min_length=1, max_length=64, pattern=patterns.UID)]
Quantity = Annotated[int | str, IntOrString()]
Quantities = Annotated[dict[str, Quantity], Field(max_length=16), BeforeValidator(_without_nulls)]
AnnotationMap = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32), BeforeValidator(_without_nulls)
]
