"""Every metric that a user sees of the runtime. Words only; nothing here does anything.

Names of spans and attributes stand in `sync_runtime.contract.traces`. Metrics begin with `syncgroup.`; units are UCUM,
as OpenTelemetry has it: `s`, `By`, `bit/s`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SCOPE: Final = "sync_runtime"

# --- metrics ---------------------------------------------------------------------------------------------------------
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    unit: str
    description: str


STAGE_DURATION: Final = Metric("syncgroup.stage.duration", "histogram", "s", "How long a stage of a version took.")
SYNC_DURATION: Final = Metric(
    "syncgroup.sync.duration", "histogram", "s", "From the first word of a version to its staging."
)
PAUSE_DURATION: Final = Metric(
    "syncgroup.pause.duration", "histogram", "s", "How long generation paused for a version."
)
VERSION_SEQ: Final = Metric("syncgroup.version.seq", "gauge", "1", "The version that is served, or published last.")
SENT_BYTES: Final = Metric("syncgroup.link.sent", "counter", "By", "Bytes of objects sent over a link.")
REPEATED_BYTES: Final = Metric("syncgroup.link.repeated", "counter", "By", "Bytes sent more than once over a link.")
RECEIVED_BYTES: Final = Metric("syncgroup.link.received", "counter", "By", "Bytes of objects received and verified.")
LINK_RATE: Final = Metric("syncgroup.link.rate", "gauge", "bit/s", "Goodput over the last payloads.")
LINK_RTT: Final = Metric("syncgroup.link.rtt", "gauge", "s", "Smoothed round-trip time.")
LINK_STREAMS: Final = Metric("syncgroup.link.streams", "gauge", "1", "Streams in use.")
SPOOL_BYTES: Final = Metric("syncgroup.spool.size", "gauge", "By", "Bytes in the spool.")
REFUSALS: Final = Metric("syncgroup.refusals", "counter", "1", "Connections, frames and manifests refused, by reason.")
WORK_RESULTS: Final = Metric(
    "syncgroup.work.results", "counter", "1", "Results of prompt groups, by what became of them."
)
WORK_TOKENS: Final = Metric("syncgroup.work.tokens", "counter", "1", "Tokens of results that count, by worker.")
METRICS: Final = (
    STAGE_DURATION,
    SYNC_DURATION,
    PAUSE_DURATION,
    VERSION_SEQ,
    SENT_BYTES,
    REPEATED_BYTES,
    RECEIVED_BYTES,
    LINK_RATE,
    LINK_RTT,
    LINK_STREAMS,
    SPOOL_BYTES,
    REFUSALS,
    WORK_RESULTS,
    WORK_TOKENS,
)
