"""One declaration per rule that spans fields: the CEL text for the API server and its Python twin.

A rule stands once, on the model that it is about, and is used twice: `crdgen` writes `cel` and `message` into the CRD,
the model runs `holds` and reports the same `message`. A property test on a real API server proves that the two agree.

`Rule` looks at one state. `UpdateRule` looks at the old and the new one and is evaluated, as on the API server, only
where the object existed before. `Invariant` is for documents that no API server looks into: plan and reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

# The fourth that exists, FieldValueDuplicate, is of no use: the API server drops the message with it.
RuleReason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True, kw_only=True)
class Invariant:
    """What must hold for a model. `field` is the camelCase path below it that an error names; empty for itself."""

    message: str
    holds: Callable[[Any], bool]
    field: str = ""


@dataclass(frozen=True, kw_only=True)
class Rule(Invariant):
    """An invariant that the API server checks too: `cel` sees the object as `self`, after defaults were filled in."""

    cel: str
    reason: RuleReason = "FieldValueInvalid"


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """What must hold when an object changes: `cel` sees `oldSelf` too, `holds` is called as `holds(new, old)`."""

    cel: str
    message: str
    holds: Callable[[Any, Any], bool]
    field: str = ""
    reason: RuleReason = "FieldValueInvalid"


def immutable(field: str, attribute: str, why: str) -> UpdateRule:
    """The rule that a field, always present by requirement or default, keeps its value."""
    return UpdateRule(
        cel=f"self.{field} == oldSelf.{field}",
        message=f"{field} cannot be changed: {why}",
        holds=lambda new, old: bool(getattr(new, attribute) == getattr(old, attribute)),
        field=field,
    )
