"""How passes ended and how long they took, for Prometheus, under the names of other controllers."""

from __future__ import annotations

from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from sync_runtime.contract.figures import Figure
from sync_runtime.contract.figures import operator as figures

CONTROLLER: Final = "syncgroup"


class Result(Enum):
    """How a pass ended."""

    SUCCESS = "success"
    REQUEUE = "requeue"
    ERROR = "error"


class Timings:
    """Counters of one engine; each has a registry of its own, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._passes = self._counter(figures.PASSES)
        self._errors = self._counter(figures.PASS_ERRORS)
        self._seconds = self._histogram(figures.PASS_SECONDS)
        self._reactions = self._histogram(figures.REACTION_SECONDS)
        self._replacements = self._histogram(figures.REPLACEMENT_SECONDS)
        self._own_replacements = self._histogram(figures.REPLACEMENT_OWN_SECONDS)

    def _counter(self, figure: Figure) -> Counter:
        return Counter(figure.family, figure.meaning, figure.labels, registry=self.registry)

    def _histogram(self, figure: Figure) -> Histogram:
        return Histogram(figure.name, figure.meaning, figure.labels, registry=self.registry, buckets=figure.bounds)

    def passed(self, result: Result, seconds: float) -> None:
        """A pass ended."""
        self._passes.labels(CONTROLLER, result.value).inc()
        self._seconds.labels(CONTROLLER).observe(seconds)
        if result is Result.ERROR:
            self._errors.labels(CONTROLLER).inc()

    def reacted(self, why: str, seconds: float) -> None:
        """The first request left that an event caused."""
        self._reactions.labels(why).observe(seconds)

    def replaced(self, seconds: float, *, own_s: float) -> None:
        """A lost member's successor was asked for; `own_s` is without the time in which answers were awaited."""
        self._replacements.observe(seconds)
        self._own_replacements.observe(own_s)
