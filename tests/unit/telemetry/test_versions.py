"""Versions on their way through a sidecar, and what their traces become."""

from __future__ import annotations

from dataclasses import dataclass, field

from sync_runtime.contract.traces import SEND
from sync_runtime.telemetry.names import Metric
from sync_runtime.telemetry.off import OFF
from sync_runtime.telemetry.surface import NO_ATTRIBUTES, NO_FAULT, Attributes, Fault, VersionLabel, VersionTrace
from sync_runtime.telemetry.versions import MAX_KEPT, PATIENCE_NS, QUIET_NS, PlanMark, VersionTraces

LINE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class NotedTrace:
    """A trace that remembers what it was told."""

    traceparent: str
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    ended_ns: int | None = None
    fault: Fault = NO_FAULT

    def span(
        self, name: str, start_ns: int, end_ns: int, attributes: Attributes = NO_ATTRIBUTES, *, fault: Fault = NO_FAULT
    ) -> None:
        self.spans.append((name, start_ns, end_ns))

    def end(self, end_ns: int, *, fault: Fault = NO_FAULT) -> None:
        self.ended_ns, self.fault = end_ns, fault


@dataclass
class NotedTelemetry:
    """A receiver of telemetry in memory."""

    enabled: bool = True
    problem: str = ""
    dropped_spans: int = 0
    labels: list[VersionLabel] = field(default_factory=list)
    traces: list[NotedTrace] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)

    def begin(self, version: VersionLabel, start_ns: int) -> VersionTrace:
        self.labels.append(version)
        self.traces.append(NotedTrace(f"begun {version.seq}"))
        return self.traces[-1]

    def join(self, traceparent: str, version: VersionLabel, start_ns: int, *, sampled: bool) -> VersionTrace:
        self.labels.append(version)
        self.traces.append(NotedTrace(f"joined {version.seq}"))
        self.sampled.append(sampled)
        return self.traces[-1]

    def record(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Not looked at here."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Nothing waits."""


class Clock:
    now_ns = 1_000_000

    def __call__(self) -> int:
        return self.now_ns


def test_a_published_version_is_begun_timed_and_finished() -> None:
    telemetry, clock = NotedTelemetry(), Clock()
    traces = VersionTraces(telemetry, lambda: True, clock)
    assert traces.begin("l", 1, step=10) == "begun 1"
    clock.now_ns += 50_000
    traces.timings("l", 1, {"extract": 10, "spool": 5})
    traces.timed("l", 1, SEND, 7)
    clock.now_ns += 1
    traces.finish("l", 1, Fault("Late", "too late"))
    traces.finish("l", 1)
    (trace,) = telemetry.traces
    assert trace.spans == [
        ("extract", 1_035_000, 1_045_000),
        ("spool", 1_045_000, 1_050_000),
        ("send", 1_043_000, 1_050_000),
    ]
    assert (trace.ended_ns, trace.fault) == (1_050_001, Fault("Late", "too late"))


def test_an_offer_that_comes_twice_is_one_part() -> None:
    telemetry = NotedTelemetry()
    chosen = True
    traces = VersionTraces(telemetry, lambda: chosen, Clock())
    assert traces.join(LINE, "l", 1) == traces.join(LINE, "l", 1) == "joined 1"
    chosen = False
    traces.join(LINE, "l", 2)
    assert telemetry.sampled == [True, False]


def test_what_is_told_of_unknown_versions_is_nothing() -> None:
    traces = VersionTraces(NotedTelemetry(), lambda: True, Clock())
    traces.timed("l", 1, SEND, 7)
    traces.timings("l", 1, {"extract": 1})
    traces.finish("l", 1)


def test_only_so_many_are_kept_and_the_oldest_ends_when_it_was_last_heard_of() -> None:
    telemetry, clock = NotedTelemetry(), Clock()
    traces = VersionTraces(telemetry, lambda: True, clock)
    for seq in range(MAX_KEPT + 1):
        clock.now_ns = 1_000_000 + seq
        traces.begin("l", seq)
    assert [trace.ended_ns for trace in telemetry.traces] == [1_000_000, *[None] * MAX_KEPT]
    traces.close()
    assert telemetry.traces[-1].ended_ns == 1_000_000 + MAX_KEPT


def test_off_nothing_is_kept_and_the_line_goes_on() -> None:
    traces = VersionTraces(OFF, lambda: True)
    assert traces.begin("l", 1) == ""
    assert traces.join(LINE, "l", 2) == LINE
    assert traces.join("nonsense", "l", 3) == ""
    traces.timed("l", 2, SEND, 7)
    traces.close()
    assert traces._kept == {}


def test_a_part_that_has_been_quiet_ends_at_its_last_news_and_takes_late_stages() -> None:
    telemetry, clock = NotedTelemetry(), Clock()
    traces = VersionTraces(telemetry, lambda: True, clock)
    traces.begin("l", 1)
    clock.now_ns += 10
    traces.timings("l", 1, {"spool": 0})
    last_ns = clock.now_ns
    clock.now_ns += QUIET_NS
    traces.tidy(())
    assert telemetry.traces[0].ended_ns is None
    clock.now_ns += 1
    traces.tidy(())
    assert telemetry.traces[0].ended_ns == last_ns
    traces.timed("l", 1, SEND, 7)
    assert telemetry.traces[0].spans[-1][0] == SEND
    traces.close()
    assert telemetry.traces[0].ended_ns == last_ns


def test_a_part_that_is_busy_or_unheard_of_is_waited_for() -> None:
    telemetry, clock = NotedTelemetry(), Clock()
    traces = VersionTraces(telemetry, lambda: True, clock)
    traces.begin("l", 1)
    traces.begin("l", 2)
    traces.timed("l", 2, SEND, 7)
    clock.now_ns += 2 * QUIET_NS
    traces.tidy({("l", 2)})
    assert [trace.ended_ns for trace in telemetry.traces] == [None, None]
    busy_ns = clock.now_ns
    clock.now_ns += PATIENCE_NS
    traces.tidy(())
    assert [trace.ended_ns for trace in telemetry.traces] == [1_000_000, busy_ns]


def test_the_first_version_under_a_plan_is_linked_to_what_made_the_plan() -> None:
    telemetry = NotedTelemetry()
    plan = PlanMark(3, LINE)
    traces = VersionTraces(telemetry, lambda: True, Clock(), lambda: plan)
    traces.begin("l", 1)
    traces.join(LINE, "l", 2)
    plan = PlanMark(4, LINE.replace("b7", "c8"))
    traces.join(LINE, "l", 3)
    assert [(label.plan_revision, label.cause) for label in telemetry.labels] == [(3, LINE), (3, ""), (4, plan.cause)]


def test_another_backend_begins_with_new_parts() -> None:
    first, second = NotedTelemetry(), NotedTelemetry()
    traces = VersionTraces(first, lambda: True, Clock())
    traces.begin("l", 1)
    traces.use(second)
    assert first.traces[0].ended_ns is not None
    traces.begin("l", 2)
    assert len(second.traces) == 1
