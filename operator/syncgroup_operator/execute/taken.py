"""Names that another group holds: never written over.

Objects are named after namespace and name of their group. Two hubs that map to one remote namespace may have groups of
the same name, and a group that was deleted while a cluster was away leaves its objects there until the collector has
been: server-side apply would take such objects over, pods with foreign weights included.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncgroup_operator import reasons
from syncgroup_operator.execute.clusters import Clusters
from syncgroup_operator.planning.diff import Action, Apply
from syncgroup_operator.planning.problems import Failure


def without_taken(actions: Iterable[Action], clusters: Clusters, uid: str) -> tuple[list[Action], tuple[Failure, ...]]:
    """What may be done, and what fails; where one name is taken, nothing at all is made in that cluster."""
    planned = list(actions)
    failures = tuple(failure for action in planned if (failure := _taken(action, clusters, uid)) is not None)
    refused = {failure.cluster for failure in failures}
    return [one for one in planned if one.cluster not in refused or not isinstance(one, Apply)], failures


def _taken(action: Action, clusters: Clusters, uid: str) -> Failure | None:
    cache = clusters.cache(action.cluster)
    holder = cache.holder_uid(action.key) if cache is not None and isinstance(action, Apply) else None
    if holder is None or holder == uid:
        return None
    kind, namespace, name = action.key
    message = (
        f"the name is taken in namespace {namespace} by another group (uid {holder}): what a deleted group of this hub "
        "left goes by itself; for a group of another hub, map the namespace elsewhere in the SyncCluster"
    )
    return Failure(action.cluster, f"apply {kind} {name}", message, retry=True, reason=reasons.NAME_TAKEN)
