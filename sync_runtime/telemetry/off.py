"""Telemetry that is off: takes every call, keeps nothing, hands trace context on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sync_runtime.telemetry.context import parse_traceparent
from sync_runtime.telemetry.names import Metric
from sync_runtime.telemetry.surface import NO_ATTRIBUTES, NO_FAULT, Attributes, Fault, VersionLabel, VersionTrace


@dataclass(frozen=True)
class OffTrace:
    """No part of a trace; those behind this sidecar still find theirs."""

    traceparent: str = ""

    def span(
        self, name: str, start_ns: int, end_ns: int, attributes: Attributes = NO_ATTRIBUTES, *, fault: Fault = NO_FAULT
    ) -> None:
        """Nothing."""

    def end(self, end_ns: int, *, fault: Fault = NO_FAULT) -> None:
        """Nothing."""


NO_TRACE: Final = OffTrace()


@dataclass(frozen=True)
class OffTelemetry:
    """Nothing is sent anywhere."""

    problem: str = ""

    @property
    def enabled(self) -> bool:
        """No."""
        return False

    @property
    def dropped_spans(self) -> int:
        """None is made."""
        return 0

    def begin(self, version: VersionLabel, start_ns: int) -> VersionTrace:
        """None begins."""
        return NO_TRACE

    def join(self, traceparent: str, version: VersionLabel, start_ns: int, *, sampled: bool) -> VersionTrace:
        """The context goes on as it came, if it is one."""
        return OffTrace(traceparent) if parse_traceparent(traceparent) is not None else NO_TRACE

    def record(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Nothing."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Nothing waits."""


OFF: Final = OffTelemetry()
