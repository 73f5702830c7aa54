"""How passes ended and how long they took, for Prometheus, under the names of other controllers."""

from __future__ import annotations

from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

CONTROLLER: Final = "syncgroup"
_REACTION_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5,
    2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Fine where goals lie."""
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Result(Enum):
    """How a pass ended."""

    SUCCESS = "success"
    REQUEUE = "requeue"
    ERROR = "error"


class Timings:
    """Counters of one engine; each has a registry of its own, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._passes = Counter(
            "controller_runtime_reconcile",
            "Passes over groups by how they ended.",
            ["controller", "result"],
            registry=self.registry,
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors",
            "Passes over groups that failed.",
            ["controller"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long passes over groups took.",
            ["controller"],
            registry=self.registry,
            buckets=_BUCKETS_S,
        )
        self._reactions = Histogram(
            "syncgroup_reaction_seconds",
            "From an event to the first request of the pass that it caused, by what the event was about.",
            ["why"],
            registry=self.registry,
            buckets=_REACTION_BUCKETS_S,
        )
        self._replacements = Histogram(
            "syncgroup_replacement_seconds",
            "From judging a member lost to asking for its successor.",
            registry=self.registry,
            buckets=_REACTION_BUCKETS_S,
        )

    def passed(self, result: Result, seconds: float) -> None:
        """A pass ended."""
        self._passes.labels(CONTROLLER, result.value).inc()
        self._seconds.labels(CONTROLLER).observe(seconds)
        if result is Result.ERROR:
            self._errors.labels(CONTROLLER).inc()

    def reacted(self, why: str, seconds: float) -> None:
        """The first request left that an event caused."""
        self._reactions.labels(why).observe(seconds)

    def replaced(self, seconds: float) -> None:
        """A lost member's successor was asked for."""
        self._replacements.observe(seconds)
