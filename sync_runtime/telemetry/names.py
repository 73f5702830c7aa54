"""Every name that a user sees in traces and metrics. Words only; nothing here does anything.

Spans are stages of a version's way; attributes and metrics begin with `syncgroup.`; units are UCUM, as OpenTelemetry
has it: `s`, `By`, `bit/s`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SCOPE: Final = "sync_runtime"
SERVICE: Final = "syncgroup-sidecar"
"""service.name, unless OTEL_SERVICE_NAME says otherwise."""

# --- spans -----------------------------------------------------------------------------------------------------------
VERSION: Final = "version"
"""The trainer's span over all of a version; the root of its trace."""
MEMBER: Final = "member"
"""A relay's or member's span over its part, under the one of its parent: the trace shows the tree of delivery."""

EXTRACT: Final = "extract"
ENCODE: Final = "encode"
SPOOL: Final = "spool"
SEND: Final = "send"
RELAY: Final = "relay"
RECEIVE: Final = "receive"
DECODE: Final = "decode"
STAGE: Final = "stage"
APPLY: Final = "apply"
ACTIVATE: Final = "activate"
SCRUB: Final = "scrub"
WORK: Final = "work"
"""A prompt group done under the version: at a worker until its result is complete, at the trainer until it counts."""
STAGES: Final = (EXTRACT, ENCODE, SPOOL, SEND, RELAY, RECEIVE, DECODE, STAGE, APPLY, ACTIVATE, SCRUB, WORK)
"""In the order in which a version meets them."""

# --- attributes ------------------------------------------------------------------------------------------------------
ATTR_GROUP: Final = "syncgroup.group"
ATTR_GROUP_UID: Final = "syncgroup.group.uid"
ATTR_CLUSTER: Final = "syncgroup.cluster"
ATTR_REGION: Final = "syncgroup.region"
ATTR_MEMBER: Final = "syncgroup.member"
ATTR_ROLE: Final = "syncgroup.role"
ATTR_LINEAGE: Final = "syncgroup.version.lineage"
ATTR_SEQ: Final = "syncgroup.version.seq"
ATTR_STEP: Final = "syncgroup.version.step"
ATTR_STAGE: Final = "syncgroup.stage"
ATTR_PEER: Final = "syncgroup.peer"
ATTR_FROM_REGION: Final = "syncgroup.link.from_region"
ATTR_TO_REGION: Final = "syncgroup.link.to_region"
ATTR_CODEC: Final = "syncgroup.codec"
ATTR_BYTES: Final = "syncgroup.bytes"
ATTR_REPEATED_BYTES: Final = "syncgroup.repeated_bytes"
ATTR_STREAMS: Final = "syncgroup.streams"
ATTR_BUCKETS: Final = "syncgroup.buckets"
ATTR_BUCKET_BYTES: Final = "syncgroup.bucket.bytes"
ATTR_REASON: Final = "syncgroup.reason"
ATTR_GROUP_ID: Final = "syncgroup.work.group"
ATTR_TOKENS: Final = "syncgroup.work.tokens"

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
SYNC_DURATION: Final = Metric("syncgroup.sync.duration", "histogram", "s", "From publish to activation of a version.")
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
