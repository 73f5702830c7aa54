"""SyncGroup: one trainer, rollouts in regions, and how they share weights.

The parts stand in modules of their own (`trainer`, `rollout`, `sync`, `policies`, `runtime`, `status`); here are the
whole and the rules that span parts.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import ListMap
from sync_runtime.contract.metadata import ObjectMeta, name_matches, name_matches_cel
from sync_runtime.contract.names import (
    GROUP_VERSION,
    MANAGED_BY_MULTIKUEUE,
    MANAGED_BY_OPERATOR,
    SYNCGROUP_KIND,
    GroupKey,
)
from sync_runtime.contract.policies import LeasePolicy, Telemetry, Work
from sync_runtime.contract.requests import MAX_REQUESTS, Request
from sync_runtime.contract.rollout import Rollout
from sync_runtime.contract.rules import Invariant, Rule, UpdateRule, immutable
from sync_runtime.contract.runtime import Runtime
from sync_runtime.contract.status import SyncGroupStatus
from sync_runtime.contract.stores import store_at
from sync_runtime.contract.sync import Sync
from sync_runtime.contract.trainer import Trainer

MAX_ROLLOUTS = 64
MAX_MEMBERS = 2048
"""A plan for all of them in one region still fits a ConfigMap."""


def _places(spec: Any) -> set[tuple[str, str]]:
    """Where rollouts run, and where they may fall back to."""
    homes = {(rollout.cluster, rollout.region) for rollout in spec.rollouts}
    return homes | {(p.cluster, p.region) for rollout in spec.rollouts for p in rollout.placement.fallback}


def _reaches_all(spec: Any) -> bool:
    """Whether everything that may dial the trainer runs in the trainer's cluster, or need not."""
    if spec.trainer.exposure.type != "ClusterIP":
        return True
    return all(
        cluster == spec.trainer.cluster or store_at(spec.sync, cluster, region) is not None
        for cluster, region in _places(spec)
    )


def _reached_cel(place: str) -> str:
    """That a place is in the trainer's cluster, or that a store stands before it."""
    here = f"s.cluster == {place}.cluster && s.region == {place}.region"
    return (
        f"({place}.cluster == self.trainer.cluster || (self.sync.regions.exists(s, {here}) ? "
        f"self.sync.regions.exists(s, {here} && s.transport == 'ObjectStore') : self.sync.transport == 'ObjectStore'))"
    )


class SyncGroupSpec(Model):
    """One trainer, rollouts in regions, and how they share weights."""

    suspend: bool = Field(False, description="True stops all pods and keeps the state; false starts them again.")
    managed_by: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        MANAGED_BY_OPERATOR,
        description=f"Controller that reconciles this group: `{MANAGED_BY_OPERATOR}`, or `{MANAGED_BY_MULTIKUEUE}` to "
        "have Kueue dispatch it to another cluster. Immutable.",
    )
    trainer: Trainer = Field(description="The one pod that publishes weights.")
    rollouts: Annotated[list[Rollout], Field(min_length=1, max_length=MAX_ROLLOUTS), ListMap(("name",))] = Field(
        description="Sets of members that receive weights and generate."
    )
    sync: Sync = Field(default_factory=Sync, description="How weights travel.")
    lease: LeasePolicy = Field(
        default_factory=LeasePolicy,
        description="When a member counts as lost, and how fast it may be replaced.",
    )
    runtime: Runtime = Field(default_factory=Runtime, description="The sidecar and library added to every pod.")
    work: Work = Field(default_factory=Work, description="Prompt groups leased to rollout workers.")
    telemetry: Telemetry = Field(default_factory=Telemetry, description="Traces of versions.")
    requests: Annotated[list[Request], Field(max_length=MAX_REQUESTS), ListMap(("id",))] = Field(
        default_factory=list, description="What is asked of the running group once; `kubectl syncgroup` writes them."
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel=f"self.managedBy in ['{MANAGED_BY_OPERATOR}', '{MANAGED_BY_MULTIKUEUE}']",
            message=f"managedBy must be {MANAGED_BY_OPERATOR} or {MANAGED_BY_MULTIKUEUE}",
            holds=lambda self: self.managed_by in (MANAGED_BY_OPERATOR, MANAGED_BY_MULTIKUEUE),
            field="managedBy",
        ),
        Rule(
            cel=f"self.rollouts.map(r, r.replicas).sum() <= {MAX_MEMBERS}",
            message=f"a group has at most {MAX_MEMBERS} members: the sum of replicas over all rollouts",
            holds=lambda self: sum(rollout.replicas for rollout in self.rollouts) <= MAX_MEMBERS,
            field="rollouts",
        ),
        Rule(
            cel="self.trainer.exposure.type != 'ClusterIP' || "
            f"self.rollouts.all(r, {_reached_cel('r')} && r.placement.fallback.all(p, {_reached_cel('p')}))",
            message="exposure type ClusterIP reaches the trainer's own cluster only, and a rollout or fallback is in "
            "another: choose LoadBalancer, NodePort or External, or transport ObjectStore",
            holds=_reaches_all,
            field="trainer.exposure.type",
        ),
        Rule(
            cel="self.sync.regions.all(s, self.rollouts.exists(r, (r.cluster == s.cluster && r.region == s.region) || "
            "r.placement.fallback.exists(p, p.cluster == s.cluster && p.region == s.region)))",
            message="sync.regions names a place that no rollout runs in or falls back to; correct its cluster and "
            "region, or remove it",
            holds=lambda self: {(one.cluster, one.region) for one in self.sync.regions} <= _places(self),
            field="sync.regions",
        ),
        Rule(
            cel="self.sync.retention.bytes <= self.runtime.storage.sizeBytes",
            message="sync.retention.bytes must not exceed runtime.storage.sizeBytes, where they are kept",
            holds=lambda self: self.sync.retention.bytes <= self.runtime.storage.size_bytes,
            field="sync.retention.bytes",
        ),
    )
    UPDATE_RULES: ClassVar[tuple[UpdateRule, ...]] = (
        immutable("managedBy", "managed_by", "two controllers would own the same pods; create another SyncGroup"),
    )


class SyncGroup(Model):
    """Keeps the weights of one trainer and many rollout workers bit-identical across regions."""

    api_version: Literal["syncgroup.dev/v1alpha1"] = Field(GROUP_VERSION, description="Version of the API.")
    kind: Literal["SyncGroup"] = Field(SYNCGROUP_KIND, description="Kind of the object.")
    metadata: ObjectMeta = Field(description="Kubernetes' own.")
    spec: SyncGroupSpec = Field(description="What is wanted.")
    status: SyncGroupStatus | None = Field(None, description="What the operator last saw. Written by it alone.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel=name_matches_cel(patterns.DNS_1035),
            message="a SyncGroup's name is part of Service names and labels: at most 63 characters, lower-case "
            "letters, digits and '-', a letter first",
            holds=lambda self: name_matches(self.metadata.name, patterns.DNS_1035),
            field="metadata.name",
        ),
    )

    @property
    def key(self) -> GroupKey:
        """Which group this is."""
        return GroupKey(self.metadata.namespace or "default", self.metadata.name or "")
