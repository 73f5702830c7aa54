"""Statuses as the operator will write them, with every field set."""

from __future__ import annotations

from typing import Any

TIME = "2027-01-31T12:00:00Z"


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """A condition of generation 3."""
    return {
        "type": kind,
        "status": status,
        "observedGeneration": 3,
        "lastTransitionTime": TIME,
        "reason": reason,
        "message": message,
    }


def request() -> dict[str, Any]:
    """One that is under way."""
    return {
        "id": "r-7f3a9c21",
        "type": "Replace",
        "member": "grpo-west-2-abcdefgh",
        "state": "Running",
        "message": "its pod goes, and its successor is awaited",
        "begunTime": TIME,
    }


def group_status() -> dict[str, Any]:
    """A group with one member missing; a fresh copy for every caller."""
    version = {"lineage": "0a1b2c", "seq": 128, "step": 1280}
    link = {
        "fromRegion": "us-east-1",
        "store": "s3://my-weights/runs/8b",
        "codec": "Tight",
        "rateBitsPerSecond": 472_000_000,
        "rttMicros": 101_200,
        "lossPpm": 950,
        "streams": 8,
        "bucketBytes": 1_048_576,
        "utilisationPercent": 94,
        "measuredTime": "2027-01-31T11:59:58.123456Z",
        "message": "8 streams: 12 gained less than 5 %",
    }
    region = {
        "cluster": "local",
        "region": "us-west-2",
        "desired": 4,
        "ready": 3,
        "version": {"lineage": "0a1b2c", "seq": 126},
        "lagVersions": 2,
        "relay": "grpo-west-0-abcdefgh",
        "link": link,
    }
    replacement = {
        "member": "grpo-west-2-abcdefgh",
        "reason": "LeaseExpired",
        "message": "no renewal for 41 s",
        "fromCluster": "local",
        "fromRegion": "us-west-2",
        "fromNode": "node-7.example",
        "toCluster": "local",
        "toRegion": "us-west-2",
        "replacedTime": TIME,
    }
    return {
        "conditions": [
            condition("Ready", "False", "RolloutsNotReady", "member grpo-west-1-abcdefgh: ImagePullBackOff"),
            condition("TrainerReady", "True", "Serving", ""),
        ],
        "observedGeneration": 3,
        "version": version,
        "term": 2,
        "planRevision": 17,
        "rolloutsReady": "3/4",
        "lagVersions": 2,
        "syncMillis": 5600,
        "trainerHost": "203.0.113.7",
        "trainerPort": 7443,
        "regions": [region],
        "replacementsTotal": 5,
        "replacements": [replacement],
        "store": {"address": "s3://my-weights/runs/8b", "version": 41, "reason": "StoreDenied", "message": "no"},
        "lostClusters": [{"name": "frankfurt", "lostTime": TIME, "reason": "Unreachable", "message": "timed out"}],
        "requests": [request()],
    }


def cluster_status() -> dict[str, Any]:
    """A cluster that was lost."""
    return {
        "conditions": [condition("Connected", "False", "Unreachable", "connect to 203.0.113.9:6443 timed out")],
        "observedGeneration": 3,
        "kubernetesVersion": "v1.37.1",
        "lostTime": TIME,
    }
