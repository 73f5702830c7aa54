"""The strict model that every resource, plan and report derives from.

Strict means what the API server means by it: no coercion (`"5"` and `true` are no numbers), no unknown field, and the
cross-field rules of the class hold. Instances are frozen: a changed spec is a new object.

Python code builds models by their snake_case names; documents are read by their camelCase names only (`parse`), since
that is all the API server knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from sync_runtime.contract.rules import Invariant, UpdateRule


class Model(BaseModel):
    """Strict, frozen, camelCase outside and snake_case inside, with the class's own `RULES`."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )

    RULES: ClassVar[tuple[Invariant, ...]] = ()
    UPDATE_RULES: ClassVar[tuple[UpdateRule, ...]] = ()

    @classmethod
    def parse(cls, document: object) -> Self:
        """Read a parsed JSON document; raises pydantic's ValidationError, which `documents` and `wire` translate."""
        return cls.model_validate(document, by_alias=True, by_name=False)

    def to_document(self) -> dict[str, Any]:
        """The JSON document of this model: camelCase, defaults filled in, absent fields left out."""
        return self.model_dump(mode="python", by_alias=True, exclude_none=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, data: Any) -> Any:
        """The API server drops a null from a field that is not nullable, and none of ours is."""
        if not isinstance(data, Mapping):
            return data
        known = {field.alias for field in cls.model_fields.values()}
        return {key: value for key, value in data.items() if value is not None or key not in known}

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        """Report every broken rule of the class, each at the field that it names."""
        broken = [rule for rule in self.RULES if not rule.holds(self)]
        if broken:
            raise ValidationError.from_exception_data(type(self).__name__, [_as_error(rule) for rule in broken])
        return self


def submodel(annotation: Any) -> type[Model] | None:
    """The model class inside an annotation such as `Model | None` or `list[Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    return next(filter(None, map(submodel, get_args(annotation))), None)


def _as_error(rule: Invariant) -> InitErrorDetails:
    # A message is text, not a template: braces in it must not be read as placeholders.
    kind = PydanticCustomError("rule", "{message}", {"message": rule.message})
    return InitErrorDetails(type=kind, loc=tuple(rule.field.split(".")) if rule.field else (), input=None)
