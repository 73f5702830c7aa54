"""From pydantic's errors to problems: where, and what to do, in words that need no knowledge of pydantic."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sync_runtime.contract.base import Model, submodel
from sync_runtime.contract.errors import Problem
from sync_runtime.contract.patterns import WORDS

_PLAIN_KEY = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
_SHOWN_INPUT_LENGTH = 40

_WANTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "an object",
    "string_type": "text",
}
"""What a value of the wrong type should have been."""

_LIMITS: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than_equal": lambda ctx: f"must be at least {ctx['ge']}",
    "less_than_equal": lambda ctx: f"must be at most {ctx['le']}",
    "multiple_of": lambda ctx: f"must be a multiple of {ctx['multiple_of']}",
    "string_too_short": lambda ctx: f"must have at least {ctx['min_length']} characters",
    "string_too_long": lambda ctx: f"must have at most {ctx['max_length']} characters",
    "string_pattern_mismatch": lambda ctx: f"must be {WORDS.get(ctx['pattern'], ctx['pattern'])}",
    "too_short": lambda ctx: f"must have at least {ctx['min_length']} items",
    "too_long": lambda ctx: f"must have at most {ctx['max_length']} items",
    "literal_error": lambda ctx: f"must be {ctx['expected']}".replace("'", ""),
}
"""How a broken limit reads."""


def problems_of(error: ValidationError, model: type[Model]) -> list[Problem]:
    """Every fault that `model` found, in the order of its fields."""
    return [Problem(path_text(item["loc"]), _sentence(item, model)) for item in error.errors(include_url=False)]


def path_text(location: Sequence[int | str]) -> str:
    """A path as Kubernetes writes it: `spec.rollouts[0].name`; a key that is no plain word stands in brackets."""
    text = ""
    for step in location:
        if isinstance(step, int) or not _PLAIN_KEY.fullmatch(step):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _sentence(item: ErrorDetails, model: type[Model]) -> str:
    kind = item["type"]
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return _unknown_field(item["loc"], model)
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {_shown(item['input'])}"
    if kind in _LIMITS:
        return _LIMITS[kind](item["ctx"])
    return item["msg"]


def _unknown_field(location: Sequence[int | str], model: type[Model]) -> str:
    known = [field.alias or name for name, field in _model_at(location[:-1], model).model_fields.items()]
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return "is not a field here" + (f"; did you mean {close[0]}?" if close else "")


def _model_at(location: Sequence[int | str], model: type[Model]) -> type[Model]:
    """The model that a path below `model` leads to; list indices stay at the list's item."""
    for step in location:
        field = next((field for field in model.model_fields.values() if field.alias == step), None)
        inner = submodel(field.annotation) if field else None
        model = inner or model
    return model


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_INPUT_LENGTH else text[:_SHOWN_INPUT_LENGTH] + "…"
