"""How weights travel: transport, codec, retention, and the bounds inside which links tune themselves.

The runtime obeys these fields; the operator only hands them on in the plan.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import DnsLabel, DnsSubdomain, ListMap
from sync_runtime.contract.names import LOCAL_CLUSTER
from sync_runtime.contract.rules import Invariant, Rule

Transport = Literal["Streams", "ObjectStore"]
Codec = Literal["Auto", "Fast", "Tight"]
GpuAccess = Literal["InProcess", "CudaIpc"]

KIB = 2**10
MIB = 2**20
GIB = 2**30
BUCKET_STEP_BYTES = 64 * KIB
MAX_BUCKET_BYTES = 16 * MIB
"""Receivers refuse a longer frame before they allocate anything for it."""
MAX_STREAMS = 64
MAX_SPOOL_BYTES = 2**50
MAX_SYNC_REGIONS = 32

BucketSize = Annotated[int, Field(ge=BUCKET_STEP_BYTES, le=MAX_BUCKET_BYTES, multiple_of=BUCKET_STEP_BYTES)]
StreamCount = Annotated[int, Field(ge=1, le=MAX_STREAMS)]


class SecretRef(Model):
    """A Secret in the namespace of the object that names it."""

    name: DnsSubdomain = Field(description="Name of the Secret.")


class ObjectStore(Model):
    """A store that stands between regions that cannot dial each other."""

    url: Annotated[str, Field(min_length=6, max_length=1024, pattern=patterns.STORE_URL)] = Field(
        description="Bucket or container, for example `s3://my-weights`; `https://host/bucket` for other S3-compatible "
        "stores."
    )
    secret_ref: SecretRef | None = Field(
        None, description="Secret with the store's credentials. Without it the pods' own cloud identity is used."
    )
    prefix: Annotated[str, Field(min_length=1, max_length=256, pattern=patterns.OBJECT_PREFIX)] | None = Field(
        None, description="Key prefix of everything the group writes. The group's namespace and name if not given."
    )


class RegionSync(Model):
    """How weights reach one region, where that is another way than the group's."""

    cluster: DnsLabel = Field(
        LOCAL_CLUSTER, description=f"SyncCluster; `{LOCAL_CLUSTER}` is the operator's own cluster."
    )
    region: DnsLabel = Field(
        description="Region of that cluster: of a rollout, or one that a rollout may fall back to."
    )
    transport: Transport = Field(
        description="Streams: a member of the region dials the trainer. ObjectStore: it follows a store, and nobody "
        "there dials or is dialled across regions for weights."
    )
    object_store: ObjectStore | None = Field(None, description="The region's own store. The group's if not given.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.transport == 'ObjectStore' || !has(self.objectStore)",
            message="objectStore is used with transport ObjectStore only; set the region's transport or remove it",
            holds=lambda self: self.transport == "ObjectStore" or self.object_store is None,
            field="objectStore",
            reason="FieldValueForbidden",
        ),
    )


class Retention(Model):
    """How much history the trainer's spool keeps for members that are behind; beyond it they take an anchor."""

    versions: int = Field(32, ge=1, le=10_000, description="Versions kept.")
    bytes: int = Field(16 * GIB, ge=64 * MIB, le=MAX_SPOOL_BYTES, description="Bytes kept, whichever limit is first.")


class StreamRange(Model):
    """Bounds on the parallel TCP streams of one link."""

    min: StreamCount = Field(1, description="Fewest streams.")
    max: StreamCount = Field(32, description="Most streams.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.min <= self.max",
            message="streams.min must not exceed streams.max",
            holds=lambda self: self.min <= self.max,
            field="min",
        ),
    )


class BucketRange(Model):
    """Bounds on the size of one bucket, the unit that is sent, verified and repeated."""

    min: BucketSize = Field(256 * KIB, description="Smallest bucket in bytes; a multiple of 65536.")
    max: BucketSize = Field(8 * MIB, description="Largest bucket in bytes; a multiple of 65536.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.min <= self.max",
            message="bucketBytes.min must not exceed bucketBytes.max",
            holds=lambda self: self.min <= self.max,
            field="min",
        ),
    )


def _one_secret_each(sync: Any) -> bool:
    """Whether no store (an address and a prefix) is named with two Secrets."""
    stores = [sync.object_store, *(region.object_store for region in sync.regions)]
    secrets: dict[tuple[str, str | None], SecretRef | None] = {}
    known = [((store.url, store.prefix), store.secret_ref) for store in stores if store is not None]
    return all(secrets.setdefault(key, secret) == secret for key, secret in known)


def _same_secret_cel(one: str, other: str) -> str:
    """That two stores are two, or have one Secret."""
    prefixes = f"(has({one}.prefix) ? {one}.prefix : '') != (has({other}.prefix) ? {other}.prefix : '')"
    names = (
        f"(has({one}.secretRef) ? {one}.secretRef.name : '') == (has({other}.secretRef) ? {other}.secretRef.name : '')"
    )
    return f"({one}.url != {other}.url || {prefixes} || {names})"


class Sync(Model):
    """How weights travel from the trainer to the members."""

    transport: Transport = Field(
        "Streams", description="Streams: members dial the trainer or a relay. ObjectStore: a store stands in between."
    )
    object_store: ObjectStore | None = Field(None, description="The store; required with transport ObjectStore.")
    regions: Annotated[list[RegionSync], Field(max_length=MAX_SYNC_REGIONS), ListMap(("cluster", "region"))] = Field(
        default_factory=list, description="Regions that weights reach in another way than the group's."
    )
    codec: Codec = Field(
        "Auto",
        description="Fast costs least time, Tight fewest bytes; both are lossless. Auto decides per link from what is "
        "measured there.",
    )
    max_staleness: int = Field(
        4, ge=0, le=10_000, description="Versions that a member may be behind and still be given work."
    )
    anchor_every: int = Field(
        100, ge=0, le=1_000_000, description="Versions between two stored anchors (full weights). 0: on demand only."
    )
    retention: Retention = Field(default_factory=Retention, description="History kept for members that are behind.")
    streams: StreamRange = Field(default_factory=StreamRange, description="Bounds on streams per link.")
    bucket_bytes: BucketRange = Field(default_factory=BucketRange, description="Bounds on the size of a bucket.")
    gpu_access: GpuAccess = Field(
        "InProcess",
        description="InProcess: the library works in your process. CudaIpc (experimental): a process of the sidecar "
        "works on your GPU memory through handles.",
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.transport != 'ObjectStore' || has(self.objectStore)",
            message="transport ObjectStore needs objectStore: the store that stands between the regions",
            holds=lambda self: self.transport != "ObjectStore" or self.object_store is not None,
            field="objectStore",
            reason="FieldValueRequired",
        ),
        Rule(
            cel="self.transport == 'ObjectStore' || !has(self.objectStore) || "
            "self.regions.exists(r, r.transport == 'ObjectStore' && !has(r.objectStore))",
            message="objectStore is used with transport ObjectStore only, the group's or a region's; set the transport "
            "or remove it",
            holds=lambda self: (
                self.transport == "ObjectStore"
                or self.object_store is None
                or any(one.transport == "ObjectStore" and one.object_store is None for one in self.regions)
            ),
            field="objectStore",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="has(self.objectStore) || self.regions.all(r, r.transport != 'ObjectStore' || has(r.objectStore))",
            message="a region with transport ObjectStore needs objectStore: its own, or the group's",
            holds=lambda self: (
                self.object_store is not None
                or all(one.transport != "ObjectStore" or one.object_store is not None for one in self.regions)
            ),
            field="regions",
            reason="FieldValueRequired",
        ),
        Rule(
            cel="self.regions.all(a, !has(a.objectStore) || ("
            f"(!has(self.objectStore) || {_same_secret_cel('a.objectStore', 'self.objectStore')}) && "
            f"self.regions.all(b, !has(b.objectStore) || {_same_secret_cel('a.objectStore', 'b.objectStore')})))",
            message="one store (url and prefix) is named with two Secrets; give it one, or another prefix",
            holds=_one_secret_each,
            field="regions",
        ),
        Rule(
            cel="self.maxStaleness <= self.retention.versions",
            message="maxStaleness must not exceed retention.versions, or a member that may still work could not be "
            "brought up to date",
            holds=lambda self: self.max_staleness <= self.retention.versions,
            field="maxStaleness",
        ),
    )
