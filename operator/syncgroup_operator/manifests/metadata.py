"""The metadata that every child carries: the group's labels, the hub's mark in remote clusters, the owner at home.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sync_runtime.contract import names
from syncgroup_operator.planning.observation import Observation

Document = dict[str, Any]


def metadata_of(
    observation: Observation, cluster: str, name: str, hub_id: str, *, labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Document:  # fmt: skip
    """Metadata of a child in the namespace that the group has in a cluster."""
    namespace = observation.clusters[cluster].namespace
    metadata: Document = {
        "name": name,
        "namespace": namespace,
        "labels": {**(labels or {}), **names.group_labels(observation.key, observation.uid)},
    }
    marks = dict(annotations or {})
    if cluster != names.LOCAL_CLUSTER:
        marks[names.ANNOTATION_HUB] = hub_id
    elif namespace == observation.key.namespace:
        metadata["ownerReferences"] = [owner_reference(observation)]
    if marks:
        metadata["annotations"] = marks
    return metadata


def owner_reference(observation: Observation) -> Document:
    """The SyncGroup as owner: what lives in its own namespace goes with it."""
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCGROUP_KIND,
        "name": observation.key.name,
        "uid": observation.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
