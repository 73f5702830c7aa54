"""A group with one trainer and rollouts in two regions, as an API server would hand it out."""

from __future__ import annotations

import datetime
import json
from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.documents import load_resource
from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.plan import Plan
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup.looking.facts import ClusterFact, EventFact, GroupFacts, MemberFact, member_facts
from syncgroup_operator import reasons

NOW = datetime.datetime(2027, 1, 31, 12, 0, 0, tzinfo=datetime.UTC)
KEY = GroupKey("rl", "grpo")
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "a"}]}}
LINEAGE = "0a1b2c"
GOOD = {
    reasons.READY: ("True", reasons.ALL_READY, "the trainer and 3 members serve"),
    reasons.RECONCILING: ("False", reasons.NOTHING_TO_DO, "what is wanted is there"),
    reasons.STALLED: ("False", reasons.NOTHING_TO_DO, "nothing needs a change of the spec or the clusters"),
    reasons.TRAINER_READY: ("True", reasons.SERVING, "grpo-trainer-0 serves"),
    reasons.ROLLOUTS_READY: ("True", reasons.ALL_READY, "3 of 3 members serve"),
    reasons.LINKS_HEALTHY: ("True", reasons.MEASURED, "links carry what they should"),
    reasons.CLUSTERS_REACHABLE: ("True", reasons.CONNECTED_REASON, "all 2 clusters are reached"),
    reasons.IDENTITY_VALID: ("True", reasons.VALID, "certificates are valid"),
}


def member(role: str, index: int = 0) -> str:
    return names.member_name(KEY, role, index)


def link(**figures: Any) -> dict[str, Any]:
    found = {
        "fromRegion": "us-east", "codec": "Tight", "rateBitsPerSecond": 472_000_000, "rttMicros": 101_200,
        "lossPpm": 950, "streams": 8, "bucketBytes": 1_048_576, "utilisationPercent": 94,
        "message": "8 streams: 12 gained less than 5 %",
    }  # fmt: skip
    return {**found, **figures}


def status(conditions: dict[str, tuple[str, str, str]] | None = None, **more: Any) -> dict[str, Any]:
    wanted = {**GOOD, **(conditions or {})}
    return {
        "conditions": [
            {
                "type": kind, "status": state, "reason": reason, "message": message, "observedGeneration": 3,
                "lastTransitionTime": "2027-01-31T11:00:00Z",
            }
            for kind, (state, reason, message) in wanted.items()
        ],
        "observedGeneration": 3, "version": {"lineage": LINEAGE, "seq": 128, "step": 1280}, "term": 2,
        "planRevision": 17, "rolloutsReady": "3/3", "lagVersions": 2, "syncMillis": 1240, "replacementsTotal": 1,
        "regions": [
            {"cluster": "local", "region": "us-east", "desired": 2, "ready": 2, "lagVersions": 0,
             "version": {"lineage": LINEAGE, "seq": 128}},
            {"cluster": "frankfurt", "region": "eu", "desired": 1, "ready": 1, "lagVersions": 2,
             "version": {"lineage": LINEAGE, "seq": 126}, "relay": member("eu"), "link": link()},
        ],
        **more,
    }  # fmt: skip


def group(**changes: Any) -> SyncGroup:
    spec = {
        "trainer": {"region": "us-east", "template": TEMPLATE, "exposure": {"type": "LoadBalancer"}},
        "rollouts": [
            {"name": "near", "region": "us-east", "replicas": 2, "template": TEMPLATE},
            {"name": "eu", "cluster": "frankfurt", "region": "eu", "replicas": 1, "template": TEMPLATE},
        ],
        **changes.pop("spec", {}),
    }
    document = {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCGROUP_KIND,
        "metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "u-1"},
        "spec": spec,
        "status": status(),
        **changes,
    }
    found = load_resource({key: value for key, value in document.items() if value is not None})
    assert isinstance(found, SyncGroup)
    return found


def labels(role: str, index: int, region: str = "us-east") -> dict[str, str]:
    return names.member_labels(KEY, "u-1", role=role, index=index, cluster="local", region=region)


def pod(role: str, index: int = 0, *, ready: bool = True, **more: Any) -> dict[str, Any]:
    state = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    metadata = {"name": member(role, index), "namespace": "rl", "labels": labels(role, index)}
    return {"metadata": metadata, "spec": {"nodeName": f"node-{index}"}, "status": {**state, **more}}


def waiting(reason: str, message: str = "it waits") -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]}


def lease(role: str, index: int = 0, *, age_s: int = 3, **report: Any) -> dict[str, Any]:
    told = {
        "formatVersion": 1, "groupUid": "u-1", "member": member(role, index), "cluster": "local", "region": "us-east",
        "role": "Trainer" if role == "trainer" else "Rollout", "runtimeVersion": "1", "maxPlanFormat": 1,
        "state": "Serving", "term": 2, "planRevision": 17, "version": {"lineage": LINEAGE, "seq": 128}, **report,
    }  # fmt: skip
    renewed = NOW - datetime.timedelta(seconds=age_s)
    annotations = {names.ANNOTATION_REPORT: json.dumps(told)}
    return {
        "metadata": {"name": member(role, index), "labels": labels(role, index), "annotations": annotations},
        "spec": {"holderIdentity": "u", "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%f}Z", "leaseDurationSeconds": 40},
    }


def everyone() -> list[MemberFact]:
    pods = [pod("trainer"), pod("near", 0), pod("near", 1)]
    sent = {"toCluster": "frankfurt", "toRegion": "eu", "peer": member("eu"), "payloads": 40, "capacityBitsPerSecond":
            500_000_000, "minRttMicros": 99_000, "congestionControl": "bbr"}  # fmt: skip
    own = {"fromCluster": "local", "lossPpm": 1200, "message": "8 streams: 12 gained less than 5 %"}
    report = {**link(), **sent, **own}
    leases = [
        lease("trainer", links=[report]),
        lease("near", 0, parent=member("trainer"), syncMillis=900, pauseMillis=12, tokensPerSecond=1500),
        lease("near", 1, parent=member("trainer"), age_s=7, version={"lineage": LINEAGE, "seq": 127}),
    ]
    return member_facts(group(), pods, leases, NOW)


def facts(
    *,
    members: list[MemberFact] | None = None,
    clusters: tuple[ClusterFact, ...] = (ClusterFact("frankfurt", "True", "Connected", "its API server answers"),),
    events: tuple[EventFact, ...] = (),
    plans: tuple[Plan, ...] = (),
    unseen: tuple[str, ...] = (),
    deleting: bool = False,
    generation: int = 3,
    **changes: Any,
) -> GroupFacts:
    return GroupFacts(
        group=group(**changes), generation=generation, deleting=deleting, clusters=clusters, events=events,
        members=everyone() if members is None else members, plans=plans, unseen=unseen,
    )  # fmt: skip
