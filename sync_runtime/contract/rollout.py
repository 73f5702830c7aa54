"""The rollouts' part of a SyncGroup: how many members, where, and where to when that place fails."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import DnsLabel, ListAtomic
from sync_runtime.contract.names import LOCAL_CLUSTER, TRAINER_ROLE
from sync_runtime.contract.rules import Invariant, Rule, UpdateRule, immutable
from sync_runtime.contract.template import PodTemplate

Spread = Literal["None", "Nodes", "Zones"]

MAX_FALLBACKS = 8
MAX_REPLICAS = 1024


class Place(Model):
    """A region of a cluster."""

    cluster: DnsLabel = Field(
        LOCAL_CLUSTER, description=f"SyncCluster; `{LOCAL_CLUSTER}` is the operator's own cluster."
    )
    region: DnsLabel = Field(description="Region of that cluster.")


class Placement(Model):
    """Where replacements may go, and how members spread."""

    fallback: Annotated[list[Place], Field(max_length=MAX_FALLBACKS), ListAtomic()] = Field(
        default_factory=list,
        description="Places to try, in this order, when node, capacity or region is why a member was lost. "
        "Empty: members are replaced in their own region only.",
    )
    spread: Spread = Field(
        "Nodes",
        description="What members are spread over where the cluster has room: Nodes, Zones, or None to leave it to "
        "the template.",
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.fallback.all(a, self.fallback.exists_one(b, b.cluster == a.cluster && b.region == a.region))",
            message="fallback names the same cluster and region twice; each place must be unique",
            holds=lambda self: len({(place.cluster, place.region) for place in self.fallback}) == len(self.fallback),
            field="fallback",
        ),
    )


FolderPath = Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.OBJECT_PREFIX)]


class ServedFolder(Model):
    """A checkpoint folder that the sidecar keeps level with the group, for programs that only load from disk."""

    volume: DnsLabel = Field(description="Volume of the template that the folders lie in. The sidecar writes to it.")
    base: FolderPath = Field(
        description="Checkpoint folder inside the volume that the first version is made from: safetensors files in "
        "the dtype that versions have, with configuration and tokeniser. You put it there."
    )
    path: FolderPath = Field(
        "served", description="Folder inside the volume; its link `current` always leads to a whole version."
    )
    grace_seconds: int = Field(
        30, ge=0, le=3600, description="How long a version that was replaced is left to readers between two files."
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.path != self.base && !self.base.startsWith(self.path + '/') && "
            "!self.path.startsWith(self.base + '/')",
            message="path and base must be two folders, neither inside the other",
            holds=lambda self: (
                self.path != self.base
                and not self.base.startswith(self.path + "/")
                and not self.path.startswith(self.base + "/")
            ),
            field="path",
        ),
    )


class Rollout(Model):
    """A set of equal members in one region. A member is one engine replica."""

    name: Annotated[str, Field(min_length=1, max_length=40, pattern=patterns.DNS_LABEL)] = Field(
        description="Name of this set, unique in the group; part of its pods' names."
    )
    region: DnsLabel = Field(description="Region that the members run in, for example `eu-west-1`. Immutable.")
    cluster: DnsLabel = Field(
        LOCAL_CLUSTER,
        description=f"SyncCluster that runs the members; `{LOCAL_CLUSTER}` is the operator's own cluster. Immutable.",
    )
    replicas: int = Field(1, ge=0, le=MAX_REPLICAS, description="Number of members.")
    max_unavailable: int = Field(
        1, ge=1, le=MAX_REPLICAS, description="Most members that a rolling template change may take down at once."
    )
    size: int = Field(1, ge=1, le=64, description="Pods per member. Pinned to 1 until members may span pods.")
    engine: Annotated[str, Field(min_length=1, max_length=40, pattern=patterns.DNS_LABEL)] = Field(
        "module",
        description="How weights enter the engine: a name that the runtime's library knows, such as `module` for any "
        "torch module. Which names exist depends on the runtime's version.",
    )
    served_folder: ServedFolder | None = Field(
        None,
        description="Keeps a checkpoint folder in every member's pod instead of changing weights in a process: for "
        "programs that only know how to load a checkpoint.",
    )
    template: PodTemplate = Field(description="The members' pod.")
    container: DnsLabel | None = Field(
        None, description="Container of the template that generates. The first one if not given."
    )
    placement: Placement = Field(
        default_factory=Placement, description="Where replacements may go, and how members spread."
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel=f"self.name != '{TRAINER_ROLE}'",
            message=f"the name {TRAINER_ROLE} belongs to the trainer; choose another name for the rollout",
            holds=lambda self: self.name != TRAINER_ROLE,
            field="name",
        ),
        Rule(
            cel="self.size == 1",
            message="size is pinned to 1: a member is one pod for now",
            holds=lambda self: self.size == 1,
            field="size",
        ),
        Rule(
            cel="self.replicas == 0 || self.maxUnavailable <= self.replicas",
            message="maxUnavailable must not exceed replicas",
            holds=lambda self: self.replicas == 0 or self.max_unavailable <= self.replicas,
            field="maxUnavailable",
        ),
        Rule(
            cel="!self.placement.fallback.exists(p, p.cluster == self.cluster && p.region == self.region)",
            message="fallback must not contain the rollout's own cluster and region; that place is always tried first",
            holds=lambda self: all(
                (p.cluster, p.region) != (self.cluster, self.region) for p in self.placement.fallback
            ),
            field="placement.fallback",
        ),
    )
    UPDATE_RULES: ClassVar[tuple[UpdateRule, ...]] = (
        immutable(
            "cluster", "cluster", "add a rollout with another name there, then remove this one, so that capacity stays"
        ),
        immutable(
            "region", "region", "add a rollout with another name there, then remove this one, so that capacity stays"
        ),
    )
