"""What the operator writes back: the status of SyncGroup and SyncCluster.

Every list is capped and every figure is an integer with its unit in its name, so that a status stays small and is read
the same everywhere. Conditions come first; nothing here is a phase.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import (
    MAX_SAFE_INTEGER,
    CamelReason,
    Count,
    DnsLabel,
    DnsSubdomain,
    Host,
    ListAtomic,
    ListMap,
    Message,
    Time,
)
from sync_runtime.contract.requests import MAX_REQUESTS, RequestStatus
from sync_runtime.contract.sync import MAX_BUCKET_BYTES, MAX_STREAMS

ConditionStatus = Literal["True", "False", "Unknown"]
LinkCodec = Literal["Fast", "Tight"]

MAX_CONDITIONS = 16
MAX_STATUS_REGIONS = 128
MAX_KEPT_REPLACEMENTS = 32
MAX_LOST_CLUSTERS = 64
PPM = 1_000_000

LineageId = Annotated[str, Field(min_length=1, max_length=63, pattern=patterns.DNS_LABEL)]
Term = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
Revision = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]


StoreAddress = Annotated[str, Field(min_length=1, max_length=1536)]
"""`s3://bucket/prefix`: no credentials, which an address of the contract cannot hold."""


class Condition(Model):
    """One aspect of the object's state."""

    type: Annotated[str, Field(min_length=1, max_length=64, pattern=patterns.CAMEL_WORD)] = Field(
        description="Which aspect, for example Ready."
    )
    status: ConditionStatus = Field(description="Whether it holds.")
    observed_generation: Count = Field(description="Generation of the spec that this was judged by.")
    last_transition_time: Time = Field(description="When status last changed.")
    reason: CamelReason = Field(description="Why, in one CamelCase word.")
    message: Message = Field(description="Why, in a sentence that names the field and the remedy.")


Conditions = Annotated[list[Condition], Field(max_length=MAX_CONDITIONS), ListMap(("type",))]


class Version(Model):
    """One published state of the weights."""

    lineage: LineageId = Field(description="The line of versions that it belongs to; a fork starts a new one.")
    seq: Count = Field(description="Its number in the lineage; grows by one.")
    step: Count | None = Field(None, description="The trainer's own step number, a label only.")


class LinkStatus(Model):
    """The link that brings weights into a region, as its two ends last measured it."""

    from_region: DnsLabel = Field(description="Region of the sender.")
    codec: LinkCodec | None = Field(None, description="Codec chosen for this link.")
    rate_bits_per_second: Count | None = Field(None, description="Rate of the last payloads.")
    rtt_micros: Count | None = Field(None, description="Smoothed round-trip time.")
    loss_ppm: Annotated[int, Field(ge=0, le=PPM)] | None = Field(
        None, description="Retransmitted per million bytes sent."
    )
    streams: Annotated[int, Field(ge=0, le=MAX_STREAMS)] | None = Field(None, description="Parallel streams in use.")
    bucket_bytes: Annotated[int, Field(ge=0, le=MAX_BUCKET_BYTES)] | None = Field(
        None, description="Size of a bucket in use."
    )
    utilisation_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        None, description="Share of the link's estimated capacity that the last payload used."
    )
    store: StoreAddress | None = Field(
        None, description="The object store that weights come from; absent where they come over streams."
    )
    measured_time: Time | None = Field(None, description="When this was measured.")
    message: Message | None = Field(
        None, description="Why streams and bucket size are what they are; of a store, what is wrong with it."
    )


class RegionStatus(Model):
    """The members of one region of one cluster."""

    cluster: DnsLabel = Field(description="The cluster.")
    region: DnsLabel = Field(description="The region.")
    desired: Count = Field(description="Members wanted.")
    ready: Count = Field(description="Members that serve.")
    version: Version | None = Field(None, description="Oldest version that a ready member serves.")
    lag_versions: Count | None = Field(None, description="How many versions that is behind the trainer.")
    relay: DnsLabel | None = Field(None, description="Member that receives for the region.")
    link: LinkStatus | None = Field(None, description="The link that brings weights into the region.")


class Replacement(Model):
    """A member that was replaced."""

    member: DnsLabel = Field(description="Who.")
    reason: CamelReason = Field(description="Why, in one word, for example LeaseExpired.")
    message: Message | None = Field(None, description="Why, in a sentence.")
    from_cluster: DnsLabel = Field(description="Cluster that it was in.")
    from_region: DnsLabel = Field(description="Region that it was in.")
    from_node: DnsSubdomain | None = Field(None, description="Node that it was on.")
    to_cluster: DnsLabel = Field(description="Cluster of its successor.")
    to_region: DnsLabel = Field(description="Region of its successor.")
    replaced_time: Time = Field(description="When.")


class StoreStatus(Model):
    """The object store between the trainer and the regions, as the trainer's sidecar finds it."""

    address: StoreAddress = Field(description="Where it is, with the prefix of the group.")
    version: Count | None = Field(None, description="Number of the newest version in it.")
    rate_bits_per_second: Count | None = Field(None, description="Rate at which the last version was put.")
    reason: CamelReason | None = Field(None, description="What is wrong, in one word; absent: nothing.")
    message: Message | None = Field(None, description="What is wrong, in a sentence.")


class LostCluster(Model):
    """A cluster that cannot be reached. Its clock survives restarts of the operator."""

    name: DnsLabel = Field(description="The cluster.")
    lost_time: Time = Field(description="When it was lost.")
    reason: CamelReason = Field(description="Why, in one word, for example Unreachable.")
    message: Message | None = Field(None, description="Why, in a sentence.")


class SyncGroupStatus(Model):
    """What the operator last saw and did."""

    conditions: Conditions = Field(
        default_factory=list,
        description="Ready, Reconciling, Stalled, TrainerReady, RolloutsReady, LinksHealthy and others.",
    )
    observed_generation: Count | None = Field(None, description="Generation of the spec that this status is about.")
    version: Version | None = Field(None, description="Newest version that the trainer published.")
    term: Term | None = Field(None, description="The trainer's incarnation; older ones are fenced off.")
    plan_revision: Revision | None = Field(None, description="Number of the plan in force.")
    rollouts_ready: Annotated[str, Field(max_length=16, pattern=patterns.PROPORTION)] | None = Field(
        None, description="Members that serve / members wanted, for the table that kubectl prints."
    )
    lag_versions: Count | None = Field(None, description="Versions that the slowest ready member is behind.")
    sync_millis: Count | None = Field(
        None,
        description="How long the versions that ready members serve took to the slowest of them: from the first word "
        "of one at a member until it was staged and verified there.",
    )
    trainer_host: Host | None = Field(None, description="Address that relays dial.")
    trainer_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(None, description="Port that relays dial.")
    regions: Annotated[list[RegionStatus], Field(max_length=MAX_STATUS_REGIONS), ListMap(("cluster", "region"))] = (
        Field(default_factory=list, description="Members and links per cluster and region.")
    )
    store: StoreStatus | None = Field(None, description="The object store, with transport ObjectStore.")
    replacements_total: Count | None = Field(None, description="Members replaced since the group was created.")
    replacements: Annotated[list[Replacement], Field(max_length=MAX_KEPT_REPLACEMENTS), ListAtomic()] = Field(
        default_factory=list, description="The latest replacements, newest first."
    )
    lost_clusters: Annotated[list[LostCluster], Field(max_length=MAX_LOST_CLUSTERS), ListMap(("name",))] = Field(
        default_factory=list, description="Clusters of this group that cannot be reached."
    )
    requests: Annotated[list[RequestStatus], Field(max_length=MAX_REQUESTS), ListMap(("id",))] = Field(
        default_factory=list, description="How far the requests of the spec are."
    )


class SyncClusterStatus(Model):
    """Whether the cluster can be reached, and since when."""

    conditions: Conditions = Field(default_factory=list, description="Connected and others.")
    observed_generation: Count | None = Field(None, description="Generation of the spec that this status is about.")
    kubernetes_version: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="Version of the cluster's API server."
    )
    lost_time: Time | None = Field(None, description="When the cluster was lost; absent while it is connected.")
