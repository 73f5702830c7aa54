"""Every name in the traces of SyncGroup, with what it means: spans and attributes of runtime and operator.

The one place where they stand; docs/tracing.md holds the tables that `python -m tools.tracedocs` makes of it. Words
only: standard library, no OpenTelemetry, nothing here does anything. Attributes of ours begin with `syncgroup.`; what
OpenTelemetry's conventions have a name for carries that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

RUNTIME_SERVICE: Final = "syncgroup-sidecar"
"""service.name of sidecars, unless OTEL_SERVICE_NAME says otherwise."""
OPERATOR_SERVICE: Final = "syncgroup-operator"
"""service.name of the operator, unless OTEL_SERVICE_NAME says otherwise."""

# --- spans of a version ----------------------------------------------------------------------------------------------
VERSION: Final = "version"
MEMBER: Final = "member"
EXTRACT: Final = "extract"
ENCODE: Final = "encode"
SIGN: Final = "sign"
SPOOL: Final = "spool"
SEND: Final = "send"
PUT: Final = "put"
FETCH: Final = "fetch"
RELAY: Final = "relay"
RECEIVE: Final = "receive"
VERIFY: Final = "verify"
DECODE: Final = "decode"
STAGE: Final = "stage"
APPLY: Final = "apply"
ACTIVATE: Final = "activate"
SCRUB: Final = "scrub"
WORK: Final = "work"
STAGES: Final = (
    EXTRACT, ENCODE, SIGN, SPOOL, SEND, PUT, FETCH, RELAY, RECEIVE, VERIFY, DECODE, STAGE, APPLY, ACTIVATE, SCRUB, WORK,
)  # fmt: skip
"""In the order in which a version meets them."""

# --- spans of the operator -------------------------------------------------------------------------------------------
PASS: Final = "pass"  # noqa: S105 a pass over a group
OBSERVE: Final = "observe"
PLAN: Final = "plan"
ACT: Final = "act"
REPLACE: Final = "replace"
STATUS: Final = "status"

# --- attributes ------------------------------------------------------------------------------------------------------
ATTR_GROUP: Final = "syncgroup.group"
ATTR_GROUP_NAMESPACE: Final = "syncgroup.group.namespace"
ATTR_GROUP_UID: Final = "syncgroup.group.uid"
ATTR_CLUSTER: Final = "syncgroup.cluster"
ATTR_REGION: Final = "syncgroup.region"
ATTR_MEMBER: Final = "syncgroup.member"
ATTR_ROLE: Final = "syncgroup.role"
ATTR_LINEAGE: Final = "syncgroup.version.lineage"
ATTR_SEQ: Final = "syncgroup.version.seq"
ATTR_STEP: Final = "syncgroup.version.step"
ATTR_TERM: Final = "syncgroup.term"
ATTR_PLAN_REVISION: Final = "syncgroup.plan.revision"
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
ATTR_GENERATION: Final = "syncgroup.generation"
ATTR_ACTIONS: Final = "syncgroup.actions"
ATTR_FAILURES: Final = "syncgroup.failures"
ATTR_MEMBERS: Final = "syncgroup.members"
ATTR_ERROR_TYPE: Final = "error.type"
ATTR_SERVICE: Final = "service.name"
ATTR_SERVICE_NAMESPACE: Final = "service.namespace"
ATTR_SERVICE_VERSION: Final = "service.version"
ATTR_INSTANCE: Final = "service.instance.id"
ATTR_POD: Final = "k8s.pod.name"
ATTR_POD_UID: Final = "k8s.pod.uid"
ATTR_NAMESPACE: Final = "k8s.namespace.name"
ATTR_NODE: Final = "k8s.node.name"
ATTR_K8S_CLUSTER: Final = "k8s.cluster.name"
ATTR_CLOUD_REGION: Final = "cloud.region"

# --- what they mean --------------------------------------------------------------------------------------------------
Maker = Literal["trainer", "relay", "member", "operator"]
Type = Literal["text", "whole number", "flag"]
Where = Literal["span", "resource", "both"]
"""What a sidecar is, is on its resource; the operator is one for many, and says it on spans."""


@dataclass(frozen=True)
class SpanMeaning:
    """One name of a span."""

    name: str
    made_by: tuple[Maker, ...]
    text: str
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttributeMeaning:
    """One name of an attribute."""

    name: str
    where: Where
    type: Type
    text: str


_PART: Final = (ATTR_LINEAGE, ATTR_SEQ, ATTR_PLAN_REVISION)
_LINK: Final = (ATTR_BYTES, ATTR_STREAMS, ATTR_BUCKETS, ATTR_BUCKET_BYTES, ATTR_CODEC, ATTR_PEER)

SPANS: Final = (
    SpanMeaning(
        VERSION,
        ("trainer",),
        "The root: from PUBLISH to the last that the trainer did for the version.",
        (*_PART, ATTR_STEP),
    ),
    SpanMeaning(
        MEMBER,
        ("relay", "member"),
        "A relay's or member's part, from the offer to the last it did, under the part of whoever sent to it.",
        _PART,
    ),
    SpanMeaning(EXTRACT, ("trainer",), "Comparing live weights with the snapshot, or copying them to the sidecar."),
    SpanMeaning(ENCODE, ("trainer",), "Coding the delta; bytes leave while it runs.", (ATTR_BYTES, ATTR_BUCKETS)),
    SpanMeaning(SIGN, ("trainer",), "Signing the manifest."),
    SpanMeaning(SPOOL, ("trainer",), "Making buckets and manifest durable: from here on the version exists."),
    SpanMeaning(
        SEND,
        ("trainer", "relay"),
        "One object to one child, from its first bucket to the last acknowledgement.",
        (*_LINK, ATTR_REPEATED_BYTES, ATTR_FROM_REGION, ATTR_TO_REGION),
    ),
    SpanMeaning(
        PUT,
        ("trainer",),
        "A version into the object store: its buckets, its manifest, then the pointer that makes it visible.",
        (ATTR_BYTES, ATTR_PEER),
    ),
    SpanMeaning(
        FETCH,
        ("relay", "member"),
        "One object out of the object store: its manifest, then its buckets, each proved by its name.",
        (ATTR_BYTES, ATTR_PEER, ATTR_CODEC),
    ),
    SpanMeaning(RELAY, ("relay",), "Handing an object on, from its offer until the last child has all of it."),
    SpanMeaning(
        RECEIVE,
        ("relay", "member"),
        "One object, from its offer until it is complete and durable.",
        (ATTR_BYTES, ATTR_BUCKETS, ATTR_CODEC, ATTR_PEER),
    ),
    SpanMeaning(VERIFY, ("relay", "member"), "Checking the manifest: signature, lineage, layout, names of buckets."),
    SpanMeaning(DECODE, ("member",), "Decoding the object against what is live or staged."),
    SpanMeaning(STAGE, ("member",), "Putting the decoded list beside the live weights."),
    SpanMeaning(APPLY, ("member",), "The pause: the scatter into the live weights."),
    SpanMeaning(ACTIVATE, ("member",), "From leave at a safe point until the version is live."),
    SpanMeaning(SCRUB, ("member",), "The full digest of the live weights against the version's."),
    SpanMeaning(
        WORK,
        ("trainer", "member"),
        "A prompt group under the version: at a worker until its result is complete, at the trainer until it counts.",
        (ATTR_GROUP_ID, ATTR_TOKENS, ATTR_PEER),
    ),
    SpanMeaning(
        PASS,
        ("operator",),
        "A pass over a group that did something; a trace of its own. Idle passes make none.",
        (ATTR_GROUP, ATTR_GROUP_NAMESPACE, ATTR_GROUP_UID, ATTR_GENERATION, ATTR_TERM, ATTR_PLAN_REVISION),
    ),
    SpanMeaning(OBSERVE, ("operator",), "Reading what the watches show.", (ATTR_MEMBERS,)),
    SpanMeaning(PLAN, ("operator",), "Deciding, and writing the record of it.", (ATTR_TERM, ATTR_PLAN_REVISION)),
    SpanMeaning(ACT, ("operator",), "Requests to the clusters.", (ATTR_ACTIONS, ATTR_FAILURES)),
    SpanMeaning(
        REPLACE,
        ("operator",),
        "A member given up for a successor; under the act that did it.",
        (ATTR_MEMBER, ATTR_REASON, ATTR_CLUSTER, ATTR_REGION, ATTR_PLAN_REVISION),
    ),
    SpanMeaning(STATUS, ("operator",), "Writing the status, and the events behind it."),
)

ATTRIBUTES: Final = (
    AttributeMeaning(ATTR_GROUP, "both", "text", "Name of the SyncGroup."),
    AttributeMeaning(ATTR_GROUP_NAMESPACE, "both", "text", "Its namespace on the hub."),
    AttributeMeaning(ATTR_GROUP_UID, "both", "text", "Its uid."),
    AttributeMeaning(ATTR_CLUSTER, "both", "text", "Cluster, as the spec calls it."),
    AttributeMeaning(ATTR_REGION, "both", "text", "Region, as the spec calls it."),
    AttributeMeaning(ATTR_MEMBER, "both", "text", "Name of the member."),
    AttributeMeaning(ATTR_ROLE, "resource", "text", "trainer or rollout."),
    AttributeMeaning(ATTR_LINEAGE, "span", "text", "Lineage of the version."),
    AttributeMeaning(ATTR_SEQ, "span", "whole number", "Its number in the lineage."),
    AttributeMeaning(ATTR_STEP, "span", "whole number", "The step that the user gave it."),
    AttributeMeaning(ATTR_TERM, "span", "whole number", "The trainer's term."),
    AttributeMeaning(ATTR_PLAN_REVISION, "span", "whole number", "The plan in force; the operator's pass has it too."),
    AttributeMeaning(ATTR_STAGE, "span", "text", "Name of a span, as a label of metrics."),
    AttributeMeaning(ATTR_PEER, "span", "text", "The member at the other end."),
    AttributeMeaning(ATTR_FROM_REGION, "span", "text", "Region of the sender."),
    AttributeMeaning(ATTR_TO_REGION, "span", "text", "Region of the receiver."),
    AttributeMeaning(ATTR_CODEC, "span", "text", "fast, tight or anchor."),
    AttributeMeaning(ATTR_BYTES, "span", "whole number", "Bytes of the object, without repeats."),
    AttributeMeaning(ATTR_REPEATED_BYTES, "span", "whole number", "Bytes sent once more, after a stream broke."),
    AttributeMeaning(ATTR_STREAMS, "span", "whole number", "Streams that carried it."),
    AttributeMeaning(ATTR_BUCKETS, "span", "whole number", "Buckets that it was cut into."),
    AttributeMeaning(ATTR_BUCKET_BYTES, "span", "whole number", "Mean size of a bucket."),
    AttributeMeaning(ATTR_REASON, "span", "text", "Why, in one word."),
    AttributeMeaning(ATTR_GROUP_ID, "span", "text", "The prompt group."),
    AttributeMeaning(ATTR_TOKENS, "span", "whole number", "Tokens of the result."),
    AttributeMeaning(ATTR_GENERATION, "span", "whole number", "metadata.generation of the SyncGroup."),
    AttributeMeaning(ATTR_ACTIONS, "span", "whole number", "Objects applied or deleted."),
    AttributeMeaning(ATTR_FAILURES, "span", "whole number", "Requests that failed."),
    AttributeMeaning(ATTR_MEMBERS, "span", "whole number", "Pods of the group that are seen."),
    AttributeMeaning(ATTR_ERROR_TYPE, "span", "text", "Name of our error type, without `Error`; the status says more."),
    AttributeMeaning(ATTR_SERVICE, "resource", "text", f"{RUNTIME_SERVICE} or {OPERATOR_SERVICE}."),
    AttributeMeaning(ATTR_SERVICE_NAMESPACE, "resource", "text", "Namespace of the SyncGroup, or the operator's own."),
    AttributeMeaning(ATTR_SERVICE_VERSION, "resource", "text", "Release."),
    AttributeMeaning(ATTR_INSTANCE, "resource", "text", "namespace.pod.container in a pod; the member elsewhere."),
    AttributeMeaning(ATTR_POD, "resource", "text", "Pod."),
    AttributeMeaning(ATTR_POD_UID, "resource", "text", "Its uid."),
    AttributeMeaning(ATTR_NAMESPACE, "resource", "text", "Its namespace."),
    AttributeMeaning(ATTR_NODE, "resource", "text", "Its node."),
    AttributeMeaning(ATTR_K8S_CLUSTER, "resource", "text", "Cluster, as the spec calls it."),
    AttributeMeaning(ATTR_CLOUD_REGION, "resource", "text", "Region, as the spec calls it."),
)
