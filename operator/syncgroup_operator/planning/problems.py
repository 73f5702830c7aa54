"""What is wrong with a group until somebody changes something, and what failed in a pass: values only.

`manifests` finds the first kind while it builds documents, `execute` the second while it acts; `status` shows both.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateProblem:
    """A permanent problem: nothing is created, what runs runs on, and only a change of spec or cluster helps."""

    reason: str
    """One of `reasons`, CamelCase."""
    field: str
    """Path in the SyncGroup, as a user writes it: `spec.rollouts[eu].template.spec.containers[0].ports[1]`."""
    message: str
    """A sentence that says what is wrong and what to do about it, without the field in front."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An action of a pass that did not succeed."""

    cluster: str
    what: str
    """What was tried: `apply ConfigMap rl/my-group-plan`."""
    message: str
    retry: bool = True
    """False: the same request will be refused again (`errors.OperatorError.retry`)."""
    reason: str = ""
    """One of `reasons`, where one fits (Denied, TemplateRefused ...)."""
