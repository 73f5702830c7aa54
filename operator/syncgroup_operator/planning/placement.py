"""Where a seat may be, and where its successor goes. Pure.

The same place first, on another node; elsewhere when node, capacity or region is the cause. A seat that was moved stays
where it is: coming home is not worth a restart, and a region that flaps would drag its members along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sync_runtime.contract.rollout import Rollout
from syncgroup_operator import reasons
from syncgroup_operator.planning.observation import NodeView, Observation, Place, PodView

_ELSEWHERE = frozenset({reasons.NO_CAPACITY, reasons.REGION_LOST, reasons.CLUSTER_LOST})
"""Causes that another pod in the same place would meet again."""
_PERHAPS_THE_PLACE = frozenset({reasons.LEASE_EXPIRED, reasons.NODE_LOST, reasons.NEVER_REPORTED})
"""Causes that look like the place's own when the successor dies of them too, before it ever served."""
UNSCHEDULABLE_AFTER_S = 120.0
"""Time for an autoscaler to bring a node."""


def places_of(rollout: Rollout) -> tuple[Place, ...]:
    """Where the members of a rollout may be: at home first."""
    fallbacks = (Place(place.cluster, place.region) for place in rollout.placement.fallback)
    return (Place(rollout.cluster, rollout.region), *fallbacks)


def successor_place(
    options: tuple[Place, ...], current: Place, reason: str, attempts: int, usable: Callable[[Place], bool]
) -> Place | None:
    """Where the successor goes; None: nowhere, so the present pod stays.

    `attempts` are replacements in a row before this one, without a member that served.
    """
    if reason in _ELSEWHERE or (reason in _PERHAPS_THE_PLACE and attempts > 0):
        at = options.index(current) if current in options else 0
        ring = (*options[at + 1 :], *options[:at])
        found = next((place for place in ring if usable(place)), None)
        if found is not None:
            return found
    return current if reason not in (reasons.NO_CAPACITY, reasons.CLUSTER_LOST) else None


def reachable(observation: Observation, place: Place) -> bool:
    """Whether something can be made there now."""
    cluster = observation.clusters.get(place.cluster)
    return cluster is not None and cluster.reachable


def node_gone(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Whether the pod's node is known to be away. Without the right to see nodes, none is."""
    if pod.node is None or not nodes:
        return False
    node = nodes.get(pod.node)
    return node is None or not node.ready
