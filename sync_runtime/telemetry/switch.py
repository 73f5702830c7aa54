"""Whether the environment asks for telemetry, from OpenTelemetry's own variables. Pure.

Off by default, unlike OpenTelemetry's own default: on when an exporter or an endpoint is named. Everything else in
OTEL_* (headers, certificates, compression, sampler, limits) is read by OpenTelemetry itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DISABLED: Final = "OTEL_SDK_DISABLED"
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
SPOKEN: Final = "http/protobuf"


@dataclass(frozen=True)
class Switch:
    """What is on."""

    traces: bool = False
    metrics: bool = False
    problem: str = ""
    """Why something that was asked for is off."""

    @property
    def on(self) -> bool:
        """Whether anything is."""
        return self.traces or self.metrics


def read_switch(environment: Mapping[str, str]) -> Switch:
    """What the environment asks for."""
    if environment.get(DISABLED, "").strip().lower() == "true":
        return Switch()
    problems: list[str] = []
    traces, metrics = (_asked(environment, signal, problems) for signal in ("TRACES", "METRICS"))
    return Switch(traces, metrics, "; ".join(dict.fromkeys(problems)))


def _asked(environment: Mapping[str, str], signal: str, problems: list[str]) -> bool:
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    endpoint = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or environment.get(ENDPOINT)
    if exporter == "none" or not (exporter or endpoint):
        return False
    if exporter not in ("", "otlp"):
        problems.append(f"OTEL_{signal}_EXPORTER={exporter} is not spoken here; otlp and none are")
        return False
    protocol = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environment.get(PROTOCOL) or SPOKEN
    if protocol.strip().lower() != SPOKEN:
        problems.append(f"the OTLP protocol {protocol} is not spoken here; {SPOKEN} is")
        return False
    return True
