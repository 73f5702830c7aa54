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
from sync_runtime.contract.fields import (
    Count,
    DnsLabel,
    DnsSubdomain,
    Host,
    ListAtomic,
    ListMap,
    Message,
    Port,
    Time,
    Uid,
)
from sync_runtime.contract.requests import RequestType
from sync_runtime.contract.status import PPM, LinkCodec, Revision, Term
from sync_runtime.contract.sync import BucketSize, StreamCount
from sync_runtime.contract.syncgroup import MAX_MEMBERS, MAX_ROLLOUTS
from sync_runtime.contract.wire import WireModel

STATE_FORMAT_VERSION = 1
MAX_STATE_BYTES = 900_000
MAX_AVOIDED_NODES = 8
MAX_LINK_MEMORIES = 512
MAX_SLOT_STATES = MAX_MEMBERS + 1
MAX_PLACES = 640
"""More than a spec can name: 64 rollouts with a home and eight fallbacks, and the trainer's."""
MAX_HEADS = 256
WINDOW_MINUTES = 60
MAX_REQUEST_STATES = 64
"""Several times what a spec holds: a request that comes back with an old spec is known again."""


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
    removed_uid: Uid | None = Field(
        None, description="The pod that was given up; should it still be seen, it goes and is not counted again."
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
    doubted_payloads: Count | None = Field(
        None, description="Payloads measured when the figures began to differ much; absent while they agree."
    )
    measured_time: Time | None = Field(None, description="When this was last measured.")


class RoleSeats(Model):
    """Which seats of a role had a pod that was seen: one that is gone since then was lost, any other is yet to come."""

    role: DnsLabel = Field(description="`trainer` or the rollout's name.")
    seen: Annotated[str, Field(max_length=256, pattern=patterns.HEX_OR_NOTHING)] = Field(
        description="Bit i, in hexadecimal, for index i."
    )


class PlaceState(Model):
    """What must not change without need in one cluster and region."""

    cluster: DnsLabel = Field(description="The cluster.")
    region: DnsLabel = Field(description="The region.")
    heads: Annotated[list[DnsLabel], Field(max_length=MAX_HEADS), ListAtomic()] = Field(
        default_factory=list, description="Relays in the order of their tree; after a single one, its standby."
    )
    sampled: Annotated[list[DnsLabel], Field(max_length=64), ListAtomic()] = Field(
        default_factory=list, description="Members that join traces."
    )


class MinuteCount(Model):
    """Replacements in one minute; the limit per hour is kept with sixty of these."""

    minute: Count = Field(description="Minutes since 1970, by the operator's clock.")
    count: Count = Field(description="Replacements in it.")


class RequestState(Model):
    """A request that was begun, so that it is never begun again."""

    id: DnsLabel = Field(description="Its id in the spec.")
    type: RequestType = Field(description="What was asked for.")
    member: DnsLabel | None = Field(None, description="Of Replace: whom.")
    begun_time: Time = Field(description="When it was begun.")
    pod_uid: Uid | None = Field(None, description="Of Replace: the pod that goes, politely.")
    number: Count | None = Field(None, description="Of Scrub: its number in the plans.")
    over: bool = Field(False, description="Nothing is left to do.")
    refused: bool = Field(False, description="It could not be carried out.")
    message: Message | None = Field(None, description="How it ended.")


class GroupState(WireModel):
    """The operator's own record of a group."""

    MAX_BYTES: ClassVar[int] = MAX_STATE_BYTES

    format_version: Literal[1] = Field(1, description="Format of this document.")
    group_uid: Uid = Field(description="Uid of the SyncGroup; a namesake starts anew.")
    term: Term = Field(0, description="Last term that was given to a trainer. 0: none yet.")
    term_open: bool = Field(False, description="The term was allocated, and no pod with it was seen yet.")
    term_time: Time | None = Field(None, description="When a pod for the open term was first asked for.")
    revision: Revision = Field(0, description="Last plan revision that was given out.")
    plan_digest: Annotated[str, Field(max_length=64, pattern=patterns.HEX_OR_NOTHING)] = Field(
        "", description="SHA-256 of all plans in force, without their revision: an equal plan keeps its number."
    )
    slots: Annotated[list[SlotState], Field(max_length=MAX_SLOT_STATES), ListMap(("role", "index"))] = Field(
        default_factory=list, description="Seats that are not at home or were replaced."
    )
    seen: Annotated[list[RoleSeats], Field(max_length=MAX_ROLLOUTS + 1), ListMap(("role",))] = Field(
        default_factory=list, description="Seats whose pod was seen."
    )
    places: Annotated[list[PlaceState], Field(max_length=MAX_PLACES), ListMap(("cluster", "region"))] = Field(
        default_factory=list, description="Relays and sampled members per place."
    )
    trainer_host: Host | None = Field(None, description="Address that other clusters dial, as last known.")
    trainer_port: Port | None = Field(None, description="Its port.")
    links: Annotated[
        list[LinkMemory],
        Field(max_length=MAX_LINK_MEMORIES),
        ListMap(("fromCluster", "fromRegion", "toCluster", "toRegion")),
    ] = Field(default_factory=list, description="What was learned about links.")
    links_time: Time | None = Field(
        None, description="When figures of links last went into plans, or the first ones began to wait for that."
    )
    replacements_total: Count = Field(0, description="Members replaced since the group was created.")
    replacements: Annotated[list[MinuteCount], Field(max_length=WINDOW_MINUTES + 1), ListMap(("minute",))] = Field(
        default_factory=list, description="Replacements of the last hour."
    )
    clusters: Annotated[list[DnsLabel], Field(max_length=MAX_PLACES), ListAtomic()] = Field(
        default_factory=list,
        description="Clusters that something of this group was written to and not yet removed from.",
    )
    store_clusters: Annotated[list[DnsLabel], Field(max_length=MAX_PLACES), ListAtomic()] = Field(
        default_factory=list, description="Clusters that may hold a copy of the object store's Secret."
    )
    requests: Annotated[list[RequestState], Field(max_length=MAX_REQUEST_STATES), ListMap(("id",))] = Field(
        default_factory=list, description="Requests that were begun, oldest first."
    )
    scrubs: Count = Field(0, description="Scrubs that were asked for; the number of the latest is in every plan.")
