"""The plan: what the members of one cluster and region do. The operator writes it, sidecars obey it.

It travels as JSON in a ConfigMap per cluster and region, or as a file for standalone use. It says who dials whom, in
which order, and inside which bounds each link tunes itself; it carries no secret and no spec beyond that.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import (
    Count,
    DnsLabel,
    Host,
    HttpUrl,
    ListAtomic,
    ListMap,
    ListSet,
    Port,
    ShortMessage,
    Uid,
)
from sync_runtime.contract.policies import Work
from sync_runtime.contract.rules import Invariant
from sync_runtime.contract.status import LinkCodec, Revision, Term
from sync_runtime.contract.sync import MAX_SYNC_REGIONS, BucketSize, ObjectStore, Retention, StreamCount, Transport
from sync_runtime.contract.syncgroup import MAX_MEMBERS
from sync_runtime.contract.wire import WireModel

PLAN_FORMAT_VERSION = 1
MAX_PLAN_BYTES = 1_000_000
"""A ConfigMap holds 1 MiB in all; the rest is for its metadata."""
MAX_FAN_OUT = 16
MAX_PARENTS = 3
"""The parent and two standbys, so that a member fails over without the control plane."""
MAX_ENDPOINTS = 256
MAX_LINKS = 128
MAX_FED_STORES = MAX_SYNC_REGIONS + 1

StoreKeys = Annotated[str, Field(min_length=2, max_length=254, pattern=patterns.STORE_KEYS)]
MemberRole = Literal["Trainer", "Rollout"]


class Endpoint(Model):
    """A member that others dial, and where."""

    member: DnsLabel = Field(description="Name of the member; its certificate must say so.")
    cluster: DnsLabel = Field(description="Cluster that it is in.")
    region: DnsLabel = Field(description="Region that it is in.")
    host: Host = Field(description="Address to dial.")
    port: Port = Field(description="Port to dial.")


class MemberPlan(Model):
    """What one member does."""

    name: DnsLabel = Field(description="The member.")
    role: MemberRole = Field(description="What it is.")
    relay: bool = Field(False, description="Receives for its region and serves the others.")
    parents: Annotated[list[DnsLabel], Field(max_length=MAX_PARENTS), ListAtomic()] = Field(
        default_factory=list, description="Whom to dial: the first that answers, in this order."
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Invariant(
            message="a member must not be its own parent",
            holds=lambda self: self.name not in self.parents,
            field="parents",
        ),
        Invariant(
            message="a parent is named twice",
            holds=lambda self: len(set(self.parents)) == len(self.parents),
            field="parents",
        ),
        Invariant(
            message="the trainer publishes and has no parents",
            holds=lambda self: self.role != "Trainer" or not self.parents,
            field="parents",
        ),
    )


class StreamPlan(Model):
    """Where the tuning of streams starts, and its bounds."""

    seed: StreamCount = Field(description="Streams to start with.")
    min: StreamCount = Field(description="Fewest streams.")
    max: StreamCount = Field(description="Most streams.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Invariant(
            message="streams need min <= seed <= max",
            holds=lambda self: self.min <= self.seed <= self.max,
            field="seed",
        ),
    )


class BucketPlan(Model):
    """Where the choice of the bucket size starts, and its bounds, in bytes."""

    seed: BucketSize = Field(description="Size to start with.")
    min: BucketSize = Field(description="Smallest bucket.")
    max: BucketSize = Field(description="Largest bucket.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Invariant(
            message="bucketBytes needs min <= seed <= max",
            holds=lambda self: self.min <= self.seed <= self.max,
            field="seed",
        ),
    )


class LinkPlan(Model):
    """How the link from one place into this region is used. Members of the region itself are a link too."""

    from_cluster: DnsLabel = Field(description="Cluster of the sender.")
    from_region: DnsLabel = Field(description="Region of the sender.")
    codec: LinkCodec = Field(description="Codec of the objects sent over it.")
    streams: StreamPlan = Field(description="Parallel streams.")
    bucket_bytes: BucketPlan = Field(description="Size of a bucket.")
    message: ShortMessage | None = Field(None, description="Why, in a sentence.")


class FedStore(Model):
    """A store that the trainer puts every version into."""

    object_store: ObjectStore = Field(description="The store.")
    keys: StoreKeys | None = Field(None, description="What the names of its credentials begin with; absent: nothing.")


class LeasePlan(Model):
    """How members show that they live."""

    duration_seconds: int = Field(ge=5, le=3600, description="Lifetime of a lease.")
    renew_interval_seconds: int = Field(ge=1, le=1800, description="How often it is renewed.")


class TelemetryPlan(Model):
    """Where traces go, and who joins them."""

    endpoint: HttpUrl | None = Field(None, description="OTLP/HTTP endpoint; off if not given.")
    sampled_members: Annotated[list[DnsLabel], Field(max_length=64), ListSet()] = Field(
        default_factory=list, description="Members that join the trace of a version, besides relays."
    )


class Plan(WireModel):
    """What the members of one cluster and region do."""

    MAX_BYTES: ClassVar[int] = MAX_PLAN_BYTES

    format_version: Literal[1] = Field(description="Format of this document.")
    group_uid: Uid = Field(description="Uid of the SyncGroup; fences off a namesake.")
    group_namespace: DnsLabel = Field(description="Namespace of the SyncGroup on the hub.")
    group_name: DnsLabel = Field(description="Name of the SyncGroup.")
    cluster: DnsLabel = Field(description="Cluster that this plan is for.")
    region: DnsLabel = Field(description="Region that this plan is for.")
    term: Term = Field(description="The trainer's incarnation. Fences: an older one is refused.")
    revision: Revision = Field(description="Number of this plan. Orders plans of one term, never fences.")
    trainer: Endpoint | None = Field(
        None, description="Where the trainer is, as seen from this region; absent until that is known."
    )
    transport: Transport = Field(description="How weights travel.")
    object_store: ObjectStore | None = Field(None, description="The store, with transport ObjectStore.")
    store_keys: StoreKeys | None = Field(
        None, description="What the names of the store's credentials begin with; absent: nothing."
    )
    feeds: Annotated[list[FedStore], Field(min_length=1, max_length=MAX_FED_STORES), ListAtomic()] | None = Field(
        None, description="For the trainer: stores that it feeds, besides this place's own. Absent: none."
    )
    max_staleness: int = Field(ge=0, le=10_000, description="Versions that a member may be behind and still work.")
    anchor_every: int = Field(ge=0, le=1_000_000, description="Versions between two stored anchors; 0: on demand.")
    retention: Retention = Field(description="History that the trainer keeps.")
    members: Annotated[list[MemberPlan], Field(max_length=MAX_MEMBERS + 1), ListMap(("name",))] = Field(
        description="The members of this cluster and region."
    )
    endpoints: Annotated[list[Endpoint], Field(max_length=MAX_ENDPOINTS), ListMap(("member",))] = Field(
        default_factory=list, description="Where members dial their parents, besides the trainer."
    )
    links: Annotated[list[LinkPlan], Field(max_length=MAX_LINKS), ListMap(("fromCluster", "fromRegion"))] = Field(
        description="The links into this region."
    )
    lease: LeasePlan = Field(description="How members show that they live.")
    work: Work = Field(default_factory=Work, description="Prompt groups leased to workers.")
    telemetry: TelemetryPlan = Field(default_factory=TelemetryPlan, description="Where traces go.")
    scrub_request: Count | None = Field(
        None,
        description="Number of the latest scrub that was asked for: a member that last compared its weights "
        "before it saw this number compares them again.",
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Invariant(
            message=f"a member has more than {MAX_FAN_OUT} children; give some another parent",
            holds=lambda self: max(Counter(_first_parents(self).values()).values(), default=0) <= MAX_FAN_OUT,
            field="members",
        ),
        Invariant(
            message="first parents form a circle; no version could ever reach it",
            holds=lambda self: not _has_circle(_first_parents(self)),
            field="members",
        ),
        Invariant(
            message="a parent is neither the trainer nor among the endpoints; nobody could dial it",
            holds=lambda self: _parents(self) <= {endpoint.member for endpoint in _endpoints(self)},
            field="endpoints",
        ),
        Invariant(
            message="a parent is in a place that no link comes from",
            holds=lambda self: _parent_places(self) <= {(link.from_cluster, link.from_region) for link in self.links},
            field="links",
        ),
        Invariant(
            message="at most one member is the trainer",
            holds=lambda self: sum(member.role == "Trainer" for member in self.members) <= 1,
            field="members",
        ),
        Invariant(
            message="objectStore and transport ObjectStore need each other",
            holds=lambda self: (self.transport == "ObjectStore") == (self.object_store is not None),
            field="objectStore",
        ),
        Invariant(
            message="the trainer alone feeds stores",
            holds=lambda self: self.feeds is None or any(member.role == "Trainer" for member in self.members),
            field="feeds",
        ),
    )


def _first_parents(plan: Any) -> dict[str, str]:
    return {member.name: member.parents[0] for member in plan.members if member.parents}


def _parents(plan: Any) -> set[str]:
    return {parent for member in plan.members for parent in member.parents}


def _endpoints(plan: Any) -> list[Endpoint]:
    return [*plan.endpoints, *([plan.trainer] if plan.trainer else [])]


def _parent_places(plan: Any) -> set[tuple[str, str]]:
    parents = _parents(plan)
    return {(endpoint.cluster, endpoint.region) for endpoint in _endpoints(plan) if endpoint.member in parents}


def _has_circle(parent_of: dict[str, str]) -> bool:
    reaches_root: set[str] = set()
    for start in parent_of:
        path: set[str] = set()
        at: str | None = start
        while at is not None and at not in reaches_root:
            if at in path:
                return True
            path.add(at)
            at = parent_of.get(at)
        reaches_root |= path
    return False
