"""What members tell the operator: a member report with its link reports, in an annotation of the member's Lease.

Small, written every few seconds, read by an operator that trusts none of it: sizes are limited, figures are integers
with their unit in their name. Times here are the member's own clock and are shown, never compared.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import CamelReason, Count, DnsLabel, ListMap, ShortMessage, Time, Uid
from sync_runtime.contract.plan import MAX_FAN_OUT, MemberRole
from sync_runtime.contract.rules import Invariant
from sync_runtime.contract.status import PPM, LinkCodec, Revision, StoreAddress, Term, Version
from sync_runtime.contract.sync import MAX_BUCKET_BYTES, MAX_STREAMS
from sync_runtime.contract.wire import WireModel

REPORT_FORMAT_VERSION = 1
MAX_REPORT_BYTES = 64 * 1024
"""All annotations of an object together may have 256 KiB."""
MAX_REPORTED_LINKS = 2 * MAX_FAN_OUT

MemberState = Literal["Starting", "Joining", "CatchingUp", "Serving", "Draining", "Poisoned"]
ScrubResult = Literal["Passed", "Failed"]


class LinkReport(Model):
    """One link as its sender measured it with real payloads. What is not known is absent, never 0."""

    from_cluster: DnsLabel = Field(description="Cluster of the sender.")
    from_region: DnsLabel = Field(description="Region of the sender.")
    to_cluster: DnsLabel = Field(description="Cluster of the receiver.")
    to_region: DnsLabel = Field(description="Region of the receiver.")
    peer: DnsLabel = Field(description="The member at the other end.")
    payloads: Count = Field(description="Payloads that the figures below rest on.")
    rate_bits_per_second: Count | None = Field(None, description="Goodput over the last payloads.")
    capacity_bits_per_second: Count | None = Field(None, description="Estimate of what the link could carry.")
    rtt_micros: Count | None = Field(None, description="Smoothed round-trip time.")
    min_rtt_micros: Count | None = Field(None, description="Least round-trip time of the last minute.")
    loss_ppm: Annotated[int, Field(ge=0, le=PPM)] | None = Field(
        None, description="Retransmitted per million bytes sent."
    )
    streams: Annotated[int, Field(ge=0, le=MAX_STREAMS)] = Field(description="Streams in use.")
    bucket_bytes: Annotated[int, Field(ge=0, le=MAX_BUCKET_BYTES)] = Field(description="Size of a bucket in use.")
    utilisation_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        None, description="Rate as a share of capacity."
    )
    codec: LinkCodec = Field(description="Codec in use.")
    congestion_control: Annotated[str, Field(min_length=1, max_length=16, pattern=patterns.KERNEL_NAME)] = Field(
        description="Congestion control of the streams, for example `bbr`."
    )
    message: ShortMessage | None = Field(None, description="Why streams and bucket size are what they are.")


class Trouble(Model):
    """What keeps a member from serving."""

    reason: CamelReason = Field(description="Why, in one CamelCase word.")
    message: ShortMessage = Field(description="Why, in a sentence.")


class StoreReport(Model):
    """The object store as one member finds it: the trainer, which feeds it, or who follows it."""

    address: StoreAddress | None = Field(
        None,
        description="Which store this is about, where the member feeds several: the first with trouble, if any.",
    )
    seq: Count | None = Field(None, description="Newest version that is in the store, as far as the member knows.")
    objects: Count = Field(0, description="Objects put or fetched since the sidecar started.")
    rate_bits_per_second: Count | None = Field(None, description="Rate of the last of them.")
    trouble: Trouble | None = Field(None, description="What keeps the member from using the store; absent: nothing.")


class ScrubAnswer(Model):
    """How the live weights were found when a scrub was asked for."""

    request: Count = Field(description="Number of the request, from the plan.")
    result: ScrubResult = Field(description="Whether they were what they should be.")


class MemberReport(WireModel):
    """How one member is."""

    MAX_BYTES: ClassVar[int] = MAX_REPORT_BYTES

    format_version: Literal[1] = Field(description="Format of this document.")
    group_uid: Uid = Field(description="Uid of the SyncGroup.")
    member: DnsLabel = Field(description="The member.")
    role: MemberRole = Field(description="What it is.")
    cluster: DnsLabel = Field(description="Its cluster.")
    region: DnsLabel = Field(description="Its region.")
    runtime_version: Annotated[str, Field(min_length=1, max_length=64)] = Field(description="Version of the runtime.")
    max_plan_format: Annotated[int, Field(ge=1, le=1000)] = Field(description="Newest plan format that it reads.")
    state: MemberState = Field(description="What it is doing.")
    trouble: Trouble | None = Field(None, description="What keeps it from serving.")
    term: Term = Field(description="Newest term that it has seen.")
    plan_revision: Revision = Field(description="Plan that it follows.")
    version: Version | None = Field(None, description="Version that it serves; for the trainer, published last.")
    staged_seq: Count | None = Field(None, description="Version that is verified and waits for activation.")
    scrub: ScrubResult | None = Field(None, description="Whether the live weights of that version are proven.")
    scrub_answer: ScrubAnswer | None = Field(None, description="The last scrub that the plan asked for.")
    parent: DnsLabel | None = Field(None, description="Member that it receives from.")
    children: Annotated[int, Field(ge=0, le=1024)] = Field(0, description="Members that receive from it.")
    tokens_per_second: Count | None = Field(None, description="Tokens generated, averaged.")
    sync_millis: Count | None = Field(
        None,
        description="From the first word of that version at this member until it was staged and verified there, by "
        "its own clock; absent where it did not come as an update.",
    )
    pause_millis: Count | None = Field(None, description="How long generation paused for it.")
    spool_bytes: Count | None = Field(None, description="Bytes in the spool.")
    store: StoreReport | None = Field(
        None, description="The object store; absent until the member has tried it, and where it uses none."
    )
    certificate_expiry_time: Time | None = Field(None, description="When its certificate ends.")
    links: Annotated[
        list[LinkReport], Field(max_length=MAX_REPORTED_LINKS), ListMap(("toCluster", "toRegion", "peer"))
    ] = Field(default_factory=list, description="The links that it sends over.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Invariant(
            message="a member reports only the links that it sends over itself",
            holds=lambda self: all(
                (link.from_cluster, link.from_region) == (self.cluster, self.region) for link in self.links
            ),
            field="links",
        ),
        Invariant(
            message="a member that is Poisoned must say why",
            holds=lambda self: self.state != "Poisoned" or self.trouble is not None,
            field="trouble",
        ),
    )
