"""From caches to one observation of a group: reads memory only."""

from __future__ import annotations

import datetime
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sync_runtime.contract.names import LOCAL_CLUSTER, state_name
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.execute.clusters import Clusters
from syncgroup_operator.execute.groups import SeenGroup
from syncgroup_operator.kube.kinds import CONFIG_MAP
from syncgroup_operator.manifests.inputs import LibraryFacts
from syncgroup_operator.manifests.pods import template_hashes
from syncgroup_operator.planning.observation import ChildView, ObjectKey, Observation, Slot
from syncgroup_operator.planning.state import GroupState

HASHES_KEPT: Final = 4096
_kept: OrderedDict[tuple[str, int, str, LibraryFacts], Mapping[str, str]] = OrderedDict()
"""Making a pod's document to take its hash is a tenth of a pass."""


def clusters_of(group: SyncGroup) -> set[str]:
    """Every cluster that a spec names."""
    spec = group.spec
    fallbacks = (place.cluster for rollout in spec.rollouts for place in rollout.placement.fallback)
    return {LOCAL_CLUSTER, spec.trainer.cluster, *(rollout.cluster for rollout in spec.rollouts), *fallbacks}


def seen_state(clusters: Clusters, seen: SeenGroup) -> ChildView | None:
    """The group's own record, as the hub's watch shows it."""
    return clusters.hub_cache.child(seen.uid, _state_key(seen))


def observe(
    clusters: Clusters,
    seen: SeenGroup,
    group: SyncGroup,
    state: GroupState,
    *,
    now_s: float,
    now: datetime.datetime,
    image: str,
    library: LibraryFacts,
    refused: frozenset[Slot] = frozenset(),
) -> Observation:
    """Everything that one pass rests on."""
    names = sorted(clusters_of(group) | set(state.clusters))
    views = {name: clusters.view(name, seen.key.namespace, seen.uid) for name in names}
    # The record is no child that a plan could find unwanted.
    hub = views[LOCAL_CLUSTER]
    children = {key: child for key, child in hub.children.items() if key != _state_key(seen)}
    views[LOCAL_CLUSTER] = replace(hub, children=children)
    return Observation(
        group=group,
        uid=seen.uid,
        generation=seen.generation,
        deleting=seen.deleting,
        now_s=now_s,
        now=now,
        clusters=views,
        template_hashes=_hashes(seen, group, image, library),
        default_image=image,
        refused=refused,
    )


def _hashes(seen: SeenGroup, group: SyncGroup, image: str, library: LibraryFacts) -> Mapping[str, str]:
    """The hashes of the group's templates, made once per generation of its spec."""
    mark = (seen.uid, seen.generation, image, library)
    found = _kept.pop(mark, None)
    if found is None:
        found = template_hashes(group, seen.uid, image, library)
    _kept[mark] = found
    if len(_kept) > HASHES_KEPT:
        _kept.popitem(last=False)
    return found


def _state_key(seen: SeenGroup) -> ObjectKey:
    return ObjectKey(CONFIG_MAP.kind, seen.key.namespace, state_name(seen.key))
