"""What a pass over a group did, step by step, for traces; a pass that did nothing leaves nothing.

Knows nothing of OpenTelemetry: whoever starts the operator hands in where passes go. Steps are kept until it is clear
that the pass is worth a trace; only then does it get a name, which travels with the plans that it writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Protocol, Self

from sync_runtime.contract import names, traces
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.diff import Action, Apply

Value = str | int
MAX_SENTENCE: Final = 300
_PLAN_KIND: Final = "ConfigMap"


@dataclass
class Step:
    """One step, while it runs and after."""

    name: str
    start_ns: int
    end_ns: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)
    reason: str = ""
    """Why it failed, in a word; empty: it did not."""
    sentence: str = ""
    below: list[Step] = field(default_factory=list)

    def failed(self, reason: str, sentence: str) -> None:
        """It did not do all that it should."""
        self.reason, self.sentence = reason or "Failed", sentence[:MAX_SENTENCE]


class OpenPass(Protocol):
    """A pass that is worth a trace."""

    @property
    def traceparent(self) -> str:
        """What those whom it causes to do something link to; empty: it is not sampled."""

    def step(self, step: Step) -> None:
        """A step of it is over."""

    def end(self, whole: Step) -> None:
        """It is over."""


class PassSink(Protocol):
    """Where passes go."""

    @property
    def dropped(self) -> int:
        """Spans that no backend took."""

    def begin(self, start_ns: int, attributes: Mapping[str, Value]) -> OpenPass:
        """A pass did something. Never blocks."""


class PassLog:
    """One pass; a context manager that ends it, with the error where it died of one."""

    def __init__(
        self, sink: PassSink | None, attributes: Mapping[str, Value], clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._sink, self._clock_ns = sink, clock_ns
        self._whole = Step(traces.PASS, clock_ns(), attributes=dict(attributes))
        self._open: OpenPass | None = None
        self._steps: list[Step] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._whole.end_ns = self._clock_ns()
        if isinstance(error, Exception):
            self._whole.failed(_word_for(error), str(error))
            self.did()
        if self._open is not None:
            for step in self._steps:
                self._open.step(step)
            self._open.end(self._whole)

    @property
    def traceparent(self) -> str:
        """The name of this pass, if it did something and is traced."""
        return "" if self._open is None else self._open.traceparent

    def add(self, attributes: Mapping[str, Value]) -> None:
        """What became known of the whole pass."""
        self._whole.attributes.update(attributes)

    def did(self) -> None:
        """The pass did something: it is worth a trace."""
        if self._open is None and self._sink is not None:
            self._open = self._sink.begin(self._whole.start_ns, self._whole.attributes)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A step runs; its attributes may be set meanwhile. Kept, should the pass turn out to be worth it."""
        step = Step(name, self._clock_ns())
        self._steps.append(step)
        try:
            yield step
        except Exception as error:
            step.failed(_word_for(error), str(error))
            raise
        finally:
            step.end_ns = self._clock_ns()


def decided(decision: Decision) -> Mapping[str, Value]:
    """Term and newest plan of a decision."""
    found: dict[str, Value] = {}
    if decision.plans:
        newest = max(decision.plans.values(), key=lambda plan: (plan.term, plan.revision))
        found = {traces.ATTR_TERM: newest.term, traces.ATTR_PLAN_REVISION: newest.revision}
    return found


def replacements(decision: Decision, act: Step) -> Iterator[Step]:
    """One step per member that was given up, within the act that did it."""
    for one in decision.replacements:
        attributes: dict[str, Value] = {
            traces.ATTR_MEMBER: one.member,
            traces.ATTR_REASON: one.reason,
            traces.ATTR_CLUSTER: one.from_cluster,
            traces.ATTR_REGION: one.from_region,
            **decided(decision),
        }
        yield Step(traces.REPLACE, act.start_ns, act.end_ns, attributes)


def marked(actions: Sequence[Action], traceparent: str) -> Sequence[Action]:
    """The same actions; plans that are written name the pass that made them.

    The name is no part of what is wanted: a plan that is as it should be is not written again for it.
    """
    return [_marked(action, traceparent) for action in actions] if traceparent else actions


def _marked(action: Action, traceparent: str) -> Action:
    if not isinstance(action, Apply) or action.key.kind != _PLAN_KIND:
        return action
    metadata: dict[str, Any] = action.document["metadata"]
    annotations = metadata.get("annotations", {})
    if names.ANNOTATION_PLAN_REVISION not in annotations:
        return action
    annotations = {**annotations, names.ANNOTATION_TRACEPARENT: traceparent}
    return replace(action, document={**action.document, "metadata": {**metadata, "annotations": annotations}})


def _word_for(error: Exception) -> str:
    return type(error).__name__.removesuffix("Error")
