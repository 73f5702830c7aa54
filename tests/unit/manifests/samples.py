"""Groups and observations that the tests of manifests share."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.plan import LeasePlan, Plan
from sync_runtime.contract.sync import Retention
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.manifests.inputs import Extras, LibraryFacts
from syncgroup_operator.planning.decision import Decision, Seat
from syncgroup_operator.planning.observation import ClusterView, Observation, Place, Slot
from syncgroup_operator.planning.state import GroupState

Document = dict[str, Any]

UID = "9f0c4d1e-0000-4000-8000-000000000001"
HUB_ID = "7a6b5c4d-0000-4000-8000-000000000002"
IMAGE = "registry.example/syncgroup/runtime:1"
KEY = GroupKey("post-training", "grpo")
HOME = Place("local", "us-east-1")
AWAY = Place("frankfurt", "eu-central-1")
LIBRARY = LibraryFacts("0123456789abcdef" * 4)
EXTRAS = Extras(hub_id=HUB_ID, trust_bundle="-----BEGIN CERTIFICATE-----\n", library=LIBRARY)
NOW = datetime.datetime(2027, 1, 31, 12, tzinfo=datetime.UTC)


def template(**spec: Any) -> Document:
    """A pod template with one container, which keyword arguments may replace."""
    return {"spec": {"containers": [{"name": "engine", "image": "registry.example/engine:1"}], **spec}}


def group(
    *, trainer: Document | None = None, rollout: Document | None = None, further: tuple[Document, ...] = (), **spec: Any
) -> SyncGroup:
    """A trainer at home and a rollout `eu` away; arguments change trainer, rollout and spec."""
    whole = {"region": HOME.region, "template": template(), "exposure": {"type": "NodePort"}, **(trainer or {})}
    first = {"name": "eu", "region": AWAY.region, "cluster": AWAY.cluster, "template": template(), **(rollout or {})}
    return SyncGroup.parse(
        {
            "apiVersion": "syncgroup.dev/v1alpha1",
            "kind": "SyncGroup",
            "metadata": {"name": KEY.name, "namespace": KEY.namespace, "uid": UID},
            "spec": {"trainer": whole, "rollouts": [first, *further], **spec},
        }
    )


def clusters(**changes: Mapping[str, Any]) -> dict[str, ClusterView]:
    """The hub and Frankfurt, both reachable; `frankfurt={...}` changes one."""
    usual = {"local": KEY.namespace, "frankfurt": "guests"}
    return {
        name: ClusterView(**{"name": name, "namespace": namespace, "connected_s": 1.0, **changes.get(name, {})})
        for name, namespace in usual.items()
    }


def observation(
    of: SyncGroup | None = None, views: Mapping[str, ClusterView] | None = None, **changes: Any
) -> Observation:
    """One pass over a group."""
    fields: dict[str, Any] = {
        "group": of or group(),
        "uid": UID,
        "generation": 1,
        "deleting": False,
        "now_s": 100.0,
        "now": NOW,
        "clusters": clusters() if views is None else views,
        "default_image": IMAGE,
        **changes,
    }
    return Observation(**fields)


def plan(place: Place, term: int = 3, revision: int = 7) -> Plan:
    """The least that a plan holds."""
    return Plan(
        format_version=1, group_uid=UID, group_namespace=KEY.namespace, group_name=KEY.name, cluster=place.cluster,
        region=place.region, term=term, revision=revision, transport="Streams", max_staleness=4, anchor_every=100,
        retention=Retention(versions=32, bytes=1 << 30), members=[], links=[],
        lease=LeasePlan(duration_seconds=40, renew_interval_seconds=10),
    )  # fmt: skip


TRAINER_SEAT = Seat(Slot("trainer", 0), HOME, term=3)
EU_SEAT = Seat(Slot("eu", 0), AWAY)


def decision(*seats: Seat, plans: bool = True) -> Decision:
    """A decision with these seats, and a plan for each of their places."""
    chosen = seats or (TRAINER_SEAT, EU_SEAT)
    places = dict.fromkeys(seat.place for seat in chosen) if plans else {}
    return Decision(
        state=GroupState(group_uid=UID, term=3, revision=7),
        seats=chosen,
        plans={place: plan(place) for place in places},
    )
