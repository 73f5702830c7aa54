"""What happened to the pods of a namespace since a moment, in the API server's own order.

    since = moment(region, namespace)
    ...
    history = PodHistory.since(region, namespace, since)

A watch from an earlier resource version tells everything after it, so that nobody need listen meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.devcluster.api import ApiClient
from tools.devcluster.client import RegionHandle


def moment(region: RegionHandle, namespace: str) -> str:
    """Now, as the API server counts."""
    status, answer = region.api("GET", f"/api/v1/namespaces/{namespace}/pods?limit=1")
    assert status == 200, answer
    return str(answer["metadata"]["resourceVersion"])


@dataclass(frozen=True)
class PodHistory:
    """Events of pods: what, and the pod as it was then."""

    events: tuple[tuple[str, Mapping[str, Any]], ...]

    @classmethod
    def since(cls, region: RegionHandle, namespace: str, resource_version: str) -> PodHistory:
        """Everything after that moment; the server ends its tale after a second."""
        api = ApiClient(region.kubeconfig)
        path = f"/api/v1/namespaces/{namespace}/pods?watch=1&timeoutSeconds=1&resourceVersion={resource_version}"
        events = tuple((event["type"], event["object"]) for event in api.watch(path))
        assert all(kind != "ERROR" for kind, _ in events), "the server no longer knows what happened since then"
        return cls(events)

    def made(self) -> Counter[str]:
        """How many pods were made under each name."""
        return Counter(pod["metadata"]["name"] for kind, pod in self.events if kind == "ADDED")

    def most_starting(self) -> int:
        """The most pods that were made and not ready yet at any one moment."""
        starting: set[str] = set()
        most = 0
        for kind, pod in self.events:
            uid = pod["metadata"]["uid"]
            if kind == "ADDED":
                starting.add(uid)
            elif kind == "DELETED" or is_ready(pod):
                starting.discard(uid)
            most = max(most, len(starting))
        return most


def is_ready(pod: Mapping[str, Any]) -> bool:
    """As its own condition says."""
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
