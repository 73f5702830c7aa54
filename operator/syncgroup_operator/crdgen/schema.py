"""From a model of the contract to a structural schema that an API server accepts.

pydantic's own JSON schema is close but not structural: it has references, unions with null, `const`, titles, and
`additionalProperties: false` beside properties. Here these are inlined or rewritten, static defaults are spelled out,
and the rules of each model become `x-kubernetes-validations`. What cannot be expressed raises SchemaError: a model must
never promise more than the CRD keeps.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from sync_runtime.contract.base import Model, submodel
from sync_runtime.contract.rules import Invariant, Rule, UpdateRule

Schema = dict[str, Any]

INT32_MAX = 2**31 - 1

_KEPT = (
    "description",
    "type",
    "format",
    "default",
    "enum",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
)
"""What a schema may say, in the order in which it is written."""
_DROPPED = {"title"}


class SchemaError(Exception):
    """A model says something that a structural schema cannot. Change the model; a retry cannot help."""


def structural_schema(model: type[Model], leave_out: Container[str] = ()) -> Schema:
    """The structural schema of a model and everything below it, without the fields of its own named by `leave_out`."""
    source = model.model_json_schema(by_alias=True, mode="validation")
    return _object(model, source, source.get("$defs", {}), leave_out)


def _object(
    model: type[Model], source: Schema, definitions: Mapping[str, Schema], leave_out: Container[str] = ()
) -> Schema:
    properties = {}
    for name, field in model.model_fields.items():
        alias = field.alias or name
        if alias not in leave_out:
            where = f"{model.__name__}.{alias}"
            properties[alias] = _field(field, source["properties"][alias], definitions, where)
    schema: Schema = {"description": _first_paragraph(model), "type": "object", "properties": properties}
    if required := [name for name in source.get("required", ()) if name in properties]:
        schema["required"] = required
    if validations := _validations(model):
        schema["x-kubernetes-validations"] = validations
    return _ordered(schema, model.__name__)


def _field(field: FieldInfo, source: Schema, definitions: Mapping[str, Schema], where: str) -> Schema:
    if not field.description:
        raise SchemaError(f"{where} has no description")
    schema = _value(source, definitions, submodel(field.annotation), where)
    schema["description"] = field.description
    schema.pop("default", None)
    if not field.is_required() and (default := _default(field)) is not None:
        schema["default"] = default
    return _ordered(schema, where)


def _value(source: Schema, definitions: Mapping[str, Schema], model: type[Model] | None, where: str) -> Schema:
    """One value: a nested model, a list or map of values, or a plain one."""
    source = _without_null(source, where)
    if "$ref" in source:
        if model is None:
            raise SchemaError(f"{where} refers to something that is no model")
        return _object(model, definitions[source["$ref"].removeprefix("#/$defs/")], definitions)
    schema = {key: value for key, value in source.items() if key not in _DROPPED}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if schema.get("type") == "integer":
        schema["format"] = _integer_format(schema, where)
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            schema[inner] = _ordered(_value(schema[inner], definitions, model, f"{where}[]"), where)
    return schema


def _without_null(source: Schema, where: str) -> Schema:
    """`anyOf [value, null]` is pydantic's word for optional; the API server's is to leave it out of `required`."""
    if "anyOf" not in source:
        return dict(source)
    values = [option for option in source["anyOf"] if option != {"type": "null"}]
    if len(values) != 1:
        raise SchemaError(f"{where} is a union; a structural schema has one type per field")
    return {**values[0], **{key: value for key, value in source.items() if key not in ("anyOf", "default")}}


def _default(field: FieldInfo) -> Any:
    """The static default. Nested objects are spelled out: the API server judges a default by the object's rules."""
    value = field.get_default(call_default_factory=True, validated_data={})
    return value.to_document() if isinstance(value, Model) else value


def _integer_format(schema: Schema, where: str) -> str:
    if "minimum" not in schema or "maximum" not in schema:
        raise SchemaError(f"{where} is an integer without bounds")
    return "int32" if schema["maximum"] <= INT32_MAX else "int64"


def _validations(model: type[Model]) -> list[dict[str, str]]:
    validations = []
    rules: tuple[Invariant | UpdateRule, ...] = (*model.RULES, *model.UPDATE_RULES)
    for rule in rules:
        if not isinstance(rule, Rule | UpdateRule):
            raise SchemaError(f"{model.__name__} has a rule without CEL: {rule.message}")
        entry = {"rule": rule.cel, "message": rule.message, "reason": rule.reason}
        if rule.field:
            entry["fieldPath"] = f".{rule.field}"
        validations.append(entry)
    return validations


def _first_paragraph(model: type[Model]) -> str:
    """What users read; further paragraphs of a docstring are for programmers."""
    return " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split())


def _ordered(schema: Schema, where: str) -> Schema:
    if unknown := set(schema) - set(_KEPT):
        raise SchemaError(f"{where} says {', '.join(sorted(unknown))}, which a structural schema cannot")
    return {key: schema[key] for key in _KEPT if key in schema}
