"""A SyncGroup and the changes of it that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.contract.samples import minimal_group


def claim_group() -> dict[str, Any]:
    """A SyncGroup in which every field that update rules look at is set."""
    group = minimal_group()
    group["spec"]["trainer"] |= {"cluster": "local", "exposure": {"type": "NodePort"}}
    group["spec"]["rollouts"][0]["cluster"] = "frankfurt"
    group["spec"]["rollouts"].insert(
        0, {"name": "first", "region": "us-east-1", "template": {"spec": {"containers": []}}}
    )
    group["spec"]["runtime"] = {
        "storage": {"type": "PersistentVolumeClaim", "sizeBytes": 2**36, "storageClassName": "fast"}
    }
    return group


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(spec: dict[str, Any]) -> None:
        holder: Any = spec
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value

    return change


_MOVE = "add a rollout with another name there, then remove this one, so that capacity stays"

FORBIDDEN_UPDATES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "managedBy": (
        _set("managedBy", value="kueue.x-k8s.io/multikueue"),
        "managedBy cannot be changed: two controllers would own the same pods; create another SyncGroup",
    ),
    "trainer's cluster": (
        _set("trainer", "cluster", value="oregon"),
        "cluster cannot be changed: a trainer in a cluster that is out of reach cannot be stopped, and two must never "
        "publish; create another SyncGroup",
    ),
    "trainer's region": (
        _set("trainer", "region", value="eu-north-1"),
        "region cannot be changed: links and certificates are kept per region; create another SyncGroup",
    ),
    "rollout's cluster": (_set("rollouts", 1, "cluster", value="oregon"), f"cluster cannot be changed: {_MOVE}"),
    "rollout's region": (_set("rollouts", 1, "region", value="eu-north-1"), f"region cannot be changed: {_MOVE}"),
    "smaller claim": (
        _set("runtime", "storage", "sizeBytes", value=2**35),
        "sizeBytes of a claim can grow but not shrink",
    ),
    "other storage class": (
        _set("runtime", "storage", "storageClassName", value="slow"),
        "storageClassName of a claim cannot be changed; switch to EmptyDir and back to get new claims",
    ),
}
"""Changes of `claim_group` that are refused, each with its message."""
