"""What the operator remembers of a group across restarts: one JSON document in one hub ConfigMap.

Term and plan revision are allocated here by compare-and-swap before anything remote is written; the rest (where a
member was moved to, how often it was replaced, what was learned about links) travels in the same write. Bytes read back
are hostile: a user may edit a ConfigMap.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import Count, DnsLabel, DnsSubdomain, ListAtomic, ListMap, Time, Uid
from sync_runtime.contract.status import PPM, LinkCodec, Revision, Term
from sync_runtime.contract.sync import BucketSize, StreamCount
from sync_runtime.contract.wire import WireModel

STATE_FORMAT_VERSION = 1
MAX_STATE_BYTES = 900_000
MAX_AVOIDED_NODES = 8
MAX_LINK_MEMORIES = 512
MAX_SLOT_STATES = 1025
WINDOW_MINUTES = 60


class SlotState(Model):
    """What is remembered of one seat; seats at home that were never replaced are not listed."""

    role: DnsLabel = Field(description="`trainer` or the rollout's name.")
    index: Count = Field(description="Counts from 0.")
    cluster: DnsLabel = Field(description="Where its member is now.")
    region: DnsLabel = Field(description="Where its member is now.")
    avoid_nodes: Annotated[list[DnsSubdomain], Field(max_length=MAX_AVOIDED_NODES), ListAtomic()] = Field(
        default_factory=list, description="Nodes that lost a member of this seat, newest first."
    )
    attempts: Annotated[int, Field(ge=0, le=1000)] = Field(
        0, description="Replacements in a row without a member that served; sets the back-off."
    )
    not_before_time: Time | None = Field(None, description="Not replaced again before.")
    replacing_since_time: Time | None = Field(
        None, description="A replacement is under way; absent once the successor serves."
    )


class LinkMemory(Model):
    """What was learned about one link; moves seeds and bounds, and survives restarts of everything."""

    from_cluster: DnsLabel = Field(description="Cluster of the sender.")
    from_region: DnsLabel = Field(description="Region of the sender.")
    to_cluster: DnsLabel = Field(description="Cluster of the receiver.")
    to_region: DnsLabel = Field(description="Region of the receiver.")
    payloads: Count = Field(description="Payloads that the figures rest on.")
    rate_bits_per_second: Count = Field(description="Goodput.")
    capacity_bits_per_second: Count = Field(description="Estimate of what it could carry.")
    rtt_micros: Count = Field(description="Smoothed round-trip time.")
    min_rtt_micros: Count = Field(description="Least round-trip time.")
    loss_ppm: Annotated[int, Field(ge=0, le=PPM)] = Field(description="Retransmitted per million bytes sent.")
    streams: StreamCount = Field(description="Seed of the plan.")
    bucket_bytes: BucketSize = Field(description="Seed of the plan.")
    codec: LinkCodec = Field("Fast", description="Codec of the plan.")
    measured_time: Time | None = Field(None, description="When this was last measured.")


class MinuteCount(Model):
    """Replacements in one minute; the limit per hour is kept with sixty of these."""

    minute: Count = Field(description="Minutes since 1970, by the operator's clock.")
    count: Count = Field(description="Replacements in it.")


class GroupState(WireModel):
    """The operator's own record of a group."""

    MAX_BYTES: ClassVar[int] = MAX_STATE_BYTES

    format_version: Literal[1] = Field(1, description="Format of this document.")
    group_uid: Uid = Field(description="Uid of the SyncGroup; a namesake starts anew.")
    term: Term = Field(0, description="Last term that was given to a trainer. 0: none yet.")
    revision: Revision = Field(0, description="Last plan revision that was given out.")
    plan_digest: Annotated[str, Field(max_length=64, pattern=patterns.HEX_OR_NOTHING)] = Field(
        "", description="SHA-256 of all plans in force, without their revision: an equal plan keeps its number."
    )
    slots: Annotated[list[SlotState], Field(max_length=MAX_SLOT_STATES), ListMap(("role", "index"))] = Field(
        default_factory=list, description="Seats that are not at home or were replaced."
    )
    links: Annotated[
        list[LinkMemory],
        Field(max_length=MAX_LINK_MEMORIES),
        ListMap(("fromCluster", "fromRegion", "toCluster", "toRegion")),
    ] = Field(default_factory=list, description="What was learned about links.")
    replacements_total: Count = Field(0, description="Members replaced since the group was created.")
    replacements: Annotated[list[MinuteCount], Field(max_length=WINDOW_MINUTES + 1), ListMap(("minute",))] = Field(
        default_factory=list, description="Replacements of the last hour."
    )
    clusters: Annotated[list[DnsLabel], Field(max_length=64), ListAtomic()] = Field(
        default_factory=list,
        description="Clusters that something of this group was written to and not yet removed from.",
    )
