"""Perform what was planned: server-side apply and deletes, in order within a cluster, clusters side by side.

Every failure is kept by itself and ends only its own cluster's turn; the next pass plans again from what is then seen. A
delete that finds nothing, or somebody else under the name, has reached its aim.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from syncgroup_operator import reasons
from syncgroup_operator.errors import ApiError, ConflictError, DeniedError, NotFoundError, RefusedError
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import BY_NAME
from syncgroup_operator.planning.diff import Action, Apply, Delete
from syncgroup_operator.planning.observation import ObjectKey
from syncgroup_operator.planning.problems import Failure

_log = logging.getLogger(__name__)
MAX_AT_ONCE: Final = 8
"""Requests in flight per cluster and group; a group of a thousand members must not push all others aside."""
_ORDERED_KINDS: Final = ("Role", "RoleBinding", "Service", "ConfigMap", "PersistentVolumeClaim", "Lease")
"""Before the pods that need them."""


@dataclass(frozen=True, slots=True)
class Done:
    """One action that did: what the caches must show before the next pass may rely on them."""

    cluster: str
    key: ObjectKey
    uid: str
    deleted: bool
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of all actions of one pass."""

    done: tuple[Done, ...] = ()
    failures: tuple[Failure, ...] = ()


async def act(actions: Iterable[Action], apis: Mapping[str, Cluster]) -> Outcome:
    """Perform `actions`; one cluster's trouble is nobody else's."""
    by_cluster: dict[str, list[Action]] = defaultdict(list)
    for action in actions:
        by_cluster[action.cluster].append(action)
    outcomes = await asyncio.gather(*(_act_in(apis[name], turn) for name, turn in by_cluster.items()))
    return Outcome(
        tuple(done for outcome in outcomes for done in outcome.done),
        tuple(failure for outcome in outcomes for failure in outcome.failures),
    )


async def _act_in(api: Cluster, actions: list[Action]) -> Outcome:
    """First what pods need, in order of kinds, then pods and deletes; a failed stage ends the cluster's turn."""
    done: list[Done] = []
    for stage in _stages(actions):
        gate = asyncio.Semaphore(MAX_AT_ONCE)
        results = await asyncio.gather(*(_one(api, action, gate) for action in stage))
        done += [result for result in results if isinstance(result, Done)]
        failures = tuple(result for result in results if isinstance(result, Failure))
        if failures:
            return Outcome(tuple(done), failures)
    return Outcome(tuple(done))


def _stages(actions: list[Action]) -> list[list[Action]]:
    stages: dict[int, list[Action]] = defaultdict(list)
    for action in actions:
        if isinstance(action, Delete):
            stages[len(_ORDERED_KINDS) + 1].append(action)
        else:
            kind = action.document["kind"]
            rank = _ORDERED_KINDS.index(kind) if kind in _ORDERED_KINDS else len(_ORDERED_KINDS)
            stages[rank].append(action)
    return [stages[rank] for rank in sorted(stages)]


async def _one(api: Cluster, action: Action, gate: asyncio.Semaphore) -> Done | Failure:
    async with gate:
        try:
            return await (_apply(api, action) if isinstance(action, Apply) else _delete(api, action))
        except ApiError as error:
            what = _name_of(action)
            level = logging.WARNING if not isinstance(error, ConflictError) else logging.INFO
            _log.log(level, "%s in cluster %s: %s", what, action.cluster, error)
            return Failure(action.cluster, what, str(error), retry=error.retry, reason=_reason(error))


async def _apply(api: Cluster, action: Apply) -> Done:
    answer = await api.apply(action.document)
    metadata = answer["metadata"]
    key = ObjectKey(str(action.document["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))
    return Done(action.cluster, key, str(metadata["uid"]), False, str(metadata["resourceVersion"]))


async def _delete(api: Cluster, action: Delete) -> Done:
    key = action.key
    try:
        await api.delete(BY_NAME[key.kind], key.namespace, key.name, uid=action.uid, grace_s=action.grace_s)
    except (NotFoundError, ConflictError):
        pass  # gone, or another one has the name: either way the one we meant is not there
    return Done(action.cluster, key, action.uid, deleted=True)


def _name_of(action: Action) -> str:
    if isinstance(action, Apply):
        return f"apply {action.document['kind']} {action.document['metadata']['name']}"
    return f"delete {action.key.kind} {action.key.name}"


def _reason(error: ApiError) -> str:
    if isinstance(error, DeniedError):
        return reasons.DENIED
    return reasons.TEMPLATE_REFUSED if isinstance(error, RefusedError) else ""
