"""`group.toml`: a group without Kubernetes. One file names all members; each sidecar finds itself in it.

The plan that comes out is the contract's `Plan`, the same that an operator would write, so that nothing else in the
runtime knows which of the two is there. Reads files; decides nothing about weights.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError

from sync_runtime.contract import names
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import Count, DnsLabel, Uid
from sync_runtime.contract.plan import (
    MAX_PARENTS,
    BucketPlan,
    Endpoint,
    FedStore,
    LeasePlan,
    LinkPlan,
    MemberPlan,
    Plan,
    StreamPlan,
    TelemetryPlan,
)
from sync_runtime.contract.policies import Work
from sync_runtime.contract.problems import problems_of
from sync_runtime.contract.rules import Invariant
from sync_runtime.contract.status import Revision, Term
from sync_runtime.contract.stores import address_of, fed_stores, store_at
from sync_runtime.contract.sync import (
    MAX_SYNC_REGIONS,
    BucketRange,
    ObjectStore,
    RegionSync,
    Retention,
    StreamRange,
    Sync,
    Transport,
)
from sync_runtime.errors import SettingsError
from sync_runtime.identity.names import standalone_group_uid
from sync_runtime.settings import (
    DEFAULT_GRACE_S,
    DEFAULT_RING_BYTES,
    DEFAULT_SPOOL_BYTES,
    MAX_GRACE_S,
    SidecarSettings,
    is_address,
    parse_address,
)

MAX_FILE_BYTES = 1 << 20
SEED_STREAMS = 8
SEED_BUCKET_BYTES = 512 << 10
STORE_ANCHOR_EVERY = 100
"""Versions between two anchors in a store: who joins there can ask nobody to make one."""


def _can_be_dialled(text: str) -> bool:
    """Whether an address can stand in a plan; port 0, and hosts that are neither name nor number, cannot."""
    try:
        address = parse_address(text)
        Endpoint(member="m", cluster="c", region="r", host=address.host, port=address.port)
    except (SettingsError, ValidationError):
        return False
    return True


class StandaloneMember(Model):
    """One member and where its things are; paths are relative to the file."""

    name: DnsLabel
    role: Literal["Trainer", "Rollout"] = "Rollout"
    region: DnsLabel
    listen: Annotated[str, Field(max_length=300)] | None = None
    """Where others dial it; the trainer and relays need one."""
    relay: bool = False
    parents: Annotated[list[DnsLabel], Field(max_length=MAX_PARENTS)] = Field(default_factory=list)
    control: Annotated[str, Field(max_length=300)] = "127.0.0.1:0"
    identity: Annotated[str, Field(max_length=4096)] | None = None
    state: Annotated[str, Field(max_length=4096)] | None = None
    gpu_access: Literal["InProcess", "CudaIpc"] = "InProcess"
    """`CudaIpc`: its sidecar runs a GPU worker, which needs torch in the same Python."""
    served_folder: Annotated[str, Field(max_length=4096)] | None = None
    """Of a rollout: where its sidecar keeps a checkpoint folder level with the group (`current` in it)."""
    served_base: Annotated[str, Field(max_length=4096)] | None = None
    """The checkpoint folder that it is made from."""
    served_grace_seconds: Annotated[int, Field(ge=0, le=MAX_GRACE_S)] = DEFAULT_GRACE_S
    """How long a version that was replaced there is left to readers that are between two files."""

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Invariant(
            message="the trainer and relays need `listen`, an address that others dial",
            holds=lambda self: self.listen is not None or (self.role != "Trainer" and not self.relay),
            field="listen",
        ),
        Invariant(
            message="a rollout needs `parents`, the members it dials in order",
            holds=lambda self: bool(self.parents) or self.role == "Trainer",
            field="parents",
        ),
        Invariant(
            message="a rollout that serves a folder needs `servedFolder` and `servedBase`; a trainer serves none",
            holds=lambda self: (
                (self.served_folder is None) == (self.served_base is None)
                and (self.served_folder is None or self.role == "Rollout")
            ),
            field="servedFolder",
        ),
        Invariant(
            message="must be an address that others can dial, such as 127.0.0.1:7443",
            holds=lambda self: self.listen is None or _can_be_dialled(self.listen),
            field="listen",
        ),
        Invariant(
            message="must be an address such as 127.0.0.1:7480; port 0 takes a free one",
            holds=lambda self: is_address(self.control),
            field="control",
        ),
    )


class StandaloneGroup(Model):
    """The whole file."""

    group: DnsLabel
    namespace: DnsLabel = "default"
    uid: Uid | None = None
    term: Term = 0
    """The least term; the trainer's sidecar counts up by itself."""
    revision: Revision = 1
    scrub_request: Count | None = None
    """A larger number than before: every member compares its weights once more."""
    codec: Literal["Fast", "Tight"] = "Fast"
    max_staleness: Annotated[int, Field(ge=0, le=10_000)] = 1
    retention: Retention = Field(default_factory=Retention)
    streams: StreamRange = Field(default_factory=StreamRange)
    bucket_bytes: BucketRange = Field(default_factory=BucketRange)
    work: Work = Field(default_factory=lambda: Work(mode="Leased"))
    object_store: ObjectStore | None = None
    """A store between the trainer and those whose first parent it is: they follow that and dial nobody for weights."""
    regions: Annotated[list[RegionSync], Field(max_length=MAX_SYNC_REGIONS)] = Field(default_factory=list)
    """Regions that weights reach in another way than the others."""
    store_secret: Annotated[str, Field(max_length=4096)] | None = None
    """Folder with the stores' credentials, a file each, relative to this file. Names of a file for a region's own store
    begin with its `secretRef` and a dot."""
    sampled_members: Annotated[list[DnsLabel], Field(max_length=64)] = Field(default_factory=list)
    """Members that join versions' traces, besides trainer and relays."""
    lease_seconds: Annotated[int, Field(ge=5, le=3600)] = 15
    ring_bytes: Annotated[int, Field(ge=1 << 20, le=64 << 30)] = DEFAULT_RING_BYTES
    spool_bytes: Annotated[int, Field(ge=1 << 20, le=2**50)] = DEFAULT_SPOOL_BYTES
    members: Annotated[list[StandaloneMember], Field(min_length=1, max_length=1024)]

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Invariant(
            message="exactly one member is the trainer",
            holds=lambda self: sum(member.role == "Trainer" for member in self.members) == 1,
            field="members",
        ),
        Invariant(
            message="two members have one name",
            holds=lambda self: len({member.name for member in self.members}) == len(self.members),
            field="members",
        ),
        Invariant(
            message="a member names a parent that does not exist or that nobody can dial (it has no `listen`)",
            holds=lambda self: (
                {parent for member in self.members for parent in member.parents}
                <= {member.name for member in self.members if member.listen}
            ),
            field="members",
        ),
        Invariant(
            message="a region with transport ObjectStore needs objectStore: its own, or the group's",
            holds=lambda self: (
                self.object_store is not None
                or all(one.transport != "ObjectStore" or one.object_store is not None for one in self.regions)
            ),
            field="regions",
        ),
        Invariant(
            message="a region is named that no member is in, or twice",
            holds=lambda self: (
                len({one.region for one in self.regions}) == len(self.regions)
                and {one.region for one in self.regions} <= {member.region for member in self.members}
            ),
            field="regions",
        ),
    )

    @property
    def sync(self) -> Sync:
        """What the file says of stores, in the words of a SyncGroup."""
        transport: Transport = "Streams" if self.object_store is None else "ObjectStore"
        return Sync(transport=transport, object_store=self.object_store, regions=self.regions)

    @property
    def key(self) -> names.GroupKey:
        """Which group."""
        return names.GroupKey(self.namespace, self.group)

    @property
    def group_uid(self) -> str:
        """The uid given, or one made from namespace and name."""
        return self.uid or standalone_group_uid(self.namespace, self.group)

    def member(self, name: str) -> StandaloneMember:
        """A member by name."""
        for member in self.members:
            if member.name == name:
                return member
        known = ", ".join(member.name for member in self.members)
        raise SettingsError(f"the file has no member {name!r}; it has {known}")


def load_group(path: Path) -> StandaloneGroup:
    """Reads and checks the file."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise SettingsError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return StandaloneGroup.parse(tomllib.loads(raw.decode()))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        found = "; ".join(str(problem) for problem in problems_of(error, StandaloneGroup))
        raise SettingsError(f"{path}: {found}") from error


def settings_of(group: StandaloneGroup, name: str, path: Path) -> SidecarSettings:
    """The settings of one member's sidecar."""
    member, home = group.member(name), path.parent
    state = home / (member.state or f"state/{name}")
    return SidecarSettings(
        group=group.group,
        group_namespace=group.namespace,
        group_uid=group.group_uid,
        member=name,
        role=member.role.lower(),
        cluster=names.LOCAL_CLUSTER,
        region=member.region,
        plan_path=path,
        identity_dir=home / (member.identity or f"certs/{name}"),
        spool_dir=state / "spool",
        socket_path=state / "sidecar.sock",
        listen=parse_address(member.listen or "127.0.0.1:0"),
        control=parse_address(member.control),
        lease_dir=home / "state" / "leases",
        lease_name=name,
        ring_bytes=group.ring_bytes,
        spool_bytes=group.spool_bytes,
        gpu_access=member.gpu_access,
        store_secret_dir=None if group.store_secret is None else home / group.store_secret,
        served_folder=None if member.served_folder is None else home / member.served_folder,
        served_base=None if member.served_base is None else home / member.served_base,
        served_grace_s=member.served_grace_seconds,
    )


def plan_of(group: StandaloneGroup, region: str) -> Plan:
    """The plan that an operator would write for one region."""
    trainer = next(member for member in group.members if member.role == "Trainer")
    store, fed = store_at(group.sync, names.LOCAL_CLUSTER, region), fed_stores(group.sync, group.key)
    here = [member for member in group.members if member.region == region]
    near = {member.name for member in (group.members if store is None else here)}
    parents = {member.name: [one for one in member.parents if one in near] for member in here}
    dialled = {parent for those in parents.values() for parent in those}
    others = [group.member(name) for name in sorted(dialled - {trainer.name})]
    senders = sorted({group.member(name).region for name in dialled})
    return Plan(
        format_version=1,
        group_uid=group.group_uid,
        group_namespace=group.namespace,
        group_name=group.group,
        cluster=names.LOCAL_CLUSTER,
        region=region,
        term=group.term,
        revision=group.revision,
        trainer=_endpoint(trainer),
        transport="Streams" if store is None else "ObjectStore",
        object_store=store,
        store_keys=None if store is None else _keys(group, store),
        feeds=_feeds(group, fed, store) if region == trainer.region else None,
        max_staleness=group.max_staleness,
        anchor_every=STORE_ANCHOR_EVERY if fed else 0,
        retention=group.retention,
        members=[
            MemberPlan(name=member.name, role=member.role, relay=member.relay, parents=parents[member.name])
            for member in here
        ],
        endpoints=[_endpoint(member) for member in others],
        links=[_link(group, sender) for sender in senders],
        work=group.work,
        telemetry=TelemetryPlan(
            sampled_members=[member.name for member in here if member.name in group.sampled_members]
        ),
        scrub_request=group.scrub_request,
        lease=LeasePlan(duration_seconds=group.lease_seconds, renew_interval_seconds=max(1, group.lease_seconds // 3)),
    )


def _keys(group: StandaloneGroup, store: ObjectStore) -> str | None:
    """What the names of a store's credentials begin with: a region's own store may have some of its own."""
    return None if store.secret_ref is None or store == group.object_store else f"{store.secret_ref.name}."


def _feeds(group: StandaloneGroup, fed: list[ObjectStore], own: ObjectStore | None) -> list[FedStore] | None:
    """What the trainer feeds besides the store of its own region."""
    known = None if own is None else address_of(own, *group.key)
    others = [store for store in fed if address_of(store, *group.key) != known]
    return [FedStore(object_store=store, keys=_keys(group, store)) for store in others] or None


def _endpoint(member: StandaloneMember) -> Endpoint:
    address = parse_address(member.listen or "")
    return Endpoint(
        member=member.name,
        cluster=names.LOCAL_CLUSTER,
        region=member.region,
        host=address.host,
        port=address.port,
    )


def _link(group: StandaloneGroup, sender: str) -> LinkPlan:
    streams, sizes = group.streams, group.bucket_bytes
    return LinkPlan(
        from_cluster=names.LOCAL_CLUSTER,
        from_region=sender,
        codec=group.codec,
        streams=StreamPlan(seed=_within(SEED_STREAMS, streams.min, streams.max), min=streams.min, max=streams.max),
        bucket_bytes=BucketPlan(seed=_within(SEED_BUCKET_BYTES, sizes.min, sizes.max), min=sizes.min, max=sizes.max),
    )


def _within(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
