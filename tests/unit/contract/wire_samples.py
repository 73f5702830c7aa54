"""A plan and a member report with every field set, and a plan as large as the contract allows."""

from __future__ import annotations

from typing import Any

from sync_runtime.contract.plan import MAX_ENDPOINTS, MAX_FAN_OUT, MAX_LINKS, MAX_PARENTS, Plan
from sync_runtime.contract.syncgroup import MAX_MEMBERS

GIB = 2**30
MIB = 2**20


def endpoint(member: str, region: str, cluster: str = "local") -> dict[str, Any]:
    return {"member": member, "cluster": cluster, "region": region, "host": "203.0.113.7", "port": 7443}


def link_plan(cluster: str, region: str) -> dict[str, Any]:
    return {
        "fromCluster": cluster,
        "fromRegion": region,
        "codec": "Tight",
        "streams": {"seed": 8, "min": 1, "max": 32},
        "bucketBytes": {"seed": MIB, "min": 256 * 1024, "max": 8 * MIB},
        "message": "100 ms: more streams gain nothing",
    }


def plan() -> dict[str, Any]:
    """Two members of us-west-2: a relay that dials the trainer and a member that dials the relay, then the trainer."""
    return {
        "formatVersion": 1,
        "groupUid": "0a1b-2c3d",
        "groupNamespace": "post-training",
        "groupName": "grpo",
        "cluster": "local",
        "region": "us-west-2",
        "term": 2,
        "revision": 17,
        "trainer": endpoint("grpo-trainer-0-aaaaaaaa", "us-east-1"),
        "transport": "ObjectStore",
        "objectStore": {"url": "s3://my-weights", "secretRef": {"name": "keys"}, "prefix": "runs/8b"},
        "maxStaleness": 4,
        "anchorEvery": 100,
        "retention": {"versions": 32, "bytes": 16 * GIB},
        "members": [
            {"name": "relay", "role": "Rollout", "relay": True, "parents": ["grpo-trainer-0-aaaaaaaa"]},
            {"name": "leaf", "role": "Rollout", "relay": False, "parents": ["relay", "grpo-trainer-0-aaaaaaaa"]},
        ],
        "endpoints": [endpoint("relay", "us-west-2")],
        "links": [link_plan("local", "us-east-1"), link_plan("local", "us-west-2")],
        "lease": {"durationSeconds": 40, "renewIntervalSeconds": 10},
        "work": {
            "mode": "Leased",
            "leaseSeconds": 600,
            "maxInflightPerWorker": 8,
            "maxAttempts": 5,
            "maxPayloadBytes": 4 * MIB,
        },
        "telemetry": {"endpoint": "http://collector:4318", "sampledMembers": ["leaf"]},
    }


def link_report(peer: str = "peer") -> dict[str, Any]:
    return {
        "fromCluster": "local",
        "fromRegion": "us-west-2",
        "toCluster": "frankfurt",
        "toRegion": "eu-central-1",
        "peer": peer,
        "payloads": 12,
        "rateBitsPerSecond": 472_000_000,
        "capacityBitsPerSecond": 500_000_000,
        "rttMicros": 101_200,
        "minRttMicros": 100_100,
        "lossPpm": 950,
        "streams": 8,
        "bucketBytes": MIB,
        "utilisationPercent": 94,
        "codec": "Fast",
        "congestionControl": "bbr",
        "message": "8 streams: 12 gained less than 5 %",
    }


def member_report() -> dict[str, Any]:
    return {
        "formatVersion": 1,
        "groupUid": "0a1b-2c3d",
        "member": "grpo-west-0-aaaaaaaa",
        "role": "Rollout",
        "cluster": "local",
        "region": "us-west-2",
        "runtimeVersion": "0.1.0",
        "maxPlanFormat": 1,
        "state": "Poisoned",
        "trouble": {"reason": "ScrubFailed", "message": "3 blocks differ"},
        "term": 2,
        "planRevision": 17,
        "version": {"lineage": "0a1b2c", "seq": 128, "step": 1280},
        "stagedSeq": 129,
        "scrub": "Failed",
        "parent": "grpo-trainer-0-aaaaaaaa",
        "children": 3,
        "tokensPerSecond": 5200,
        "syncMillis": 5600,
        "pauseMillis": 12,
        "spoolBytes": 70_000_000,
        "store": {
            "seq": 41,
            "objects": 40,
            "rateBitsPerSecond": 900_000_000,
            "trouble": {"reason": "StoreDenied", "message": "the store does not let us at latest"},
        },
        "certificateExpiryTime": "2027-01-31T12:00:00Z",
        "links": [link_report()],
    }


def largest_plan() -> Plan:
    """As many members, endpoints and links as there can be, with names and messages as long as they can be."""
    relays = [_name("relay", index) for index in range(MAX_ENDPOINTS)]
    trainer = endpoint(_name("trainer", 0), "e" * 63, "c" * 63) | {"host": "h" * 253}
    members: list[dict[str, Any]] = [{"name": trainer["member"], "role": "Trainer"}]
    for index in range(MAX_MEMBERS):
        parents = [relays[(index // MAX_FAN_OUT + step) % MAX_ENDPOINTS] for step in range(MAX_PARENTS)]
        members.append({"name": _name("member", index), "role": "Rollout", "relay": False, "parents": parents})
    place = {"region": "e" * 63, "cluster": "c" * 63, "host": "h" * 253, "port": 65535}
    links = [link_plan(_name("cluster", index), "r" * 63) | {"message": "ß" * 256} for index in range(MAX_LINKS - 1)]
    return Plan.parse(
        plan()
        | {
            "trainer": trainer,
            "members": members,
            "endpoints": [{"member": relay, **place} for relay in relays],
            "links": [*links, link_plan("c" * 63, "e" * 63)],
            "telemetry": {"sampledMembers": [_name("member", index) for index in range(64)]},
        }
    )


def _name(kind: str, index: int) -> str:
    return f"{kind}-{index}-".ljust(63, "x")
