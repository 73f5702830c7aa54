"""What the sidecar sees of telemetry, on or off: two protocols and the small values they take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sync_runtime.telemetry.names import Metric

Attributes = Mapping[str, str | int | float | bool]
NO_ATTRIBUTES: Attributes = {}
MAX_SENTENCE: Final = 300


@dataclass(frozen=True)
class Origin:
    """Which sidecar this is; on every span and metric."""

    group: str
    group_uid: str
    cluster: str
    region: str
    member: str
    role: str
    runtime_version: str = ""
    group_namespace: str = ""
    pod_namespace: str = ""
    """Empty: not in a pod."""
    pod_name: str = ""
    pod_uid: str = ""
    node: str = ""


@dataclass(frozen=True)
class VersionLabel:
    """Which version a trace is about."""

    lineage: str
    seq: int
    step: int | None = None
    plan_revision: int | None = None
    cause: str = ""
    """The operator's span that made the plan under which this is the first version, as a traceparent."""


@dataclass(frozen=True)
class Fault:
    """Why something failed."""

    reason: str = ""
    """One word: the name of our error without `Error`, or a reason of the protocol."""
    sentence: str = ""

    def __bool__(self) -> bool:
        return bool(self.reason or self.sentence)


NO_FAULT: Final = Fault()


def fault_of(error: Exception) -> Fault:
    """An error of ours as spans carry it."""
    return Fault(type(error).__name__.removesuffix("Error"), str(error)[:MAX_SENTENCE])


class VersionTrace(Protocol):
    """This sidecar's part of one version's trace. Times are Unix nanoseconds; calls never block, from any thread."""

    @property
    def traceparent(self) -> str:
        """What goes into offers: where the next member's part belongs; may be empty."""

    def span(
        self, name: str, start_ns: int, end_ns: int, attributes: Attributes = NO_ATTRIBUTES, *, fault: Fault = NO_FAULT
    ) -> None:
        """A stage that is over; `name` is one of `traces.STAGES`. One that comes after `end` still joins."""

    def end(self, end_ns: int, *, fault: Fault = NO_FAULT) -> None:
        """This sidecar's part is over; a second call does nothing."""


class Telemetry(Protocol):
    """Traces and metrics of one sidecar. Calls never block, from any thread."""

    @property
    def enabled(self) -> bool:
        """Whether anything is sent anywhere."""

    @property
    def problem(self) -> str:
        """Why something that was asked for is off, in a sentence; empty: nothing is wrong."""

    @property
    def dropped_spans(self) -> int:
        """Spans that were made and that no backend took."""

    def begin(self, version: VersionLabel, start_ns: int) -> VersionTrace:
        """The trace of a version that is being published here."""

    def join(self, traceparent: str, version: VersionLabel, start_ns: int, *, sampled: bool) -> VersionTrace:
        """This sidecar's part of a trace begun elsewhere; `sampled` False: metrics only (`joins` decides)."""

    def record(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """A counter grows by `value`, a gauge becomes it, a histogram takes it in."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is waiting, for so long at most."""


def joins(member: str, *, is_relay: bool, sampled_members: Collection[str]) -> bool:
    """Whether a member joins versions' traces: every relay, and the members that the plan samples."""
    return is_relay or member in sampled_members
