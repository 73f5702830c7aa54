"""Perform what was planned: server-side apply and deletes, in order within a cluster, clusters side by side.

Every failure is kept by itself and ends only its own cluster's turn; the next pass plans again from what is then
seen. A delete that finds nothing, or somebody else under the name, has reached its aim.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from syncgroup_operator import reasons
from syncgroup_operator.errors import ApiError, ConflictError, DeniedError, NotFoundError, RefusedError
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import BY_NAME
from syncgroup_operator.planning.diff import Action, Apply, Delete, Relabel
from syncgroup_operator.planning.observation import ObjectKey
from syncgroup_operator.planning.problems import Failure

_log = logging.getLogger(__name__)
MAX_AT_ONCE: Final = 8
"""Requests in flight per cluster and group; a group of a thousand members must not push all others aside."""
_ORDERED_KINDS: Final = ("Role", "RoleBinding", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim", "Lease")
"""Before the pods that need them."""
_STORE_RIGHTS: Final = (
    "; copies of an object store's Secret are made where `syncgroup cluster register --store-secrets` allows them (on "
    "the hub: `rbac.storeSecrets` in the chart)"
)
_VERBS: Final = {Apply: "apply", Relabel: "label", Delete: "delete"}


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
    pause_s: float | None = None
    """Before what failed is tried again; None where nothing did."""
    unfinished: bool = False
    """Whether less pressing things were left to the next pass."""


def pressing(actions: Sequence[Action]) -> tuple[Sequence[Action], bool]:
    """What cannot wait for the next pass, and whether that is less than all.

    A successor of a lost member is asked for before anything else in any group; plans and the rest, which the next pass
    finds by itself, wait until it is there.
    """
    successors = [action for action in actions if isinstance(action, Apply) and action.instead_of]
    return (successors, len(successors) < len(actions)) if successors else (actions, False)


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
    """First what pods need, in order of kinds, then pods, then deletes.

    A failed stage keeps the later ones from being made, since they need it; deletes need nothing and always happen:
    what frees a quota must not wait for what the quota refused.
    """
    gate = asyncio.Semaphore(MAX_AT_ONCE)
    done: list[Done] = []
    failures: list[Failure] = []
    for deletes, stage in _stages(actions):
        if failures and not deletes:
            continue
        for result in await asyncio.gather(*(_one(api, action, gate) for action in stage)):
            if isinstance(result, Done):
                done.append(result)
            else:
                failures.append(result)
    return Outcome(tuple(done), tuple(failures))


def _stages(actions: list[Action]) -> list[tuple[bool, list[Action]]]:
    stages: dict[tuple[bool, int], list[Action]] = defaultdict(list)
    for action in actions:
        kind = action.key.kind
        rank = _ORDERED_KINDS.index(kind) if kind in _ORDERED_KINDS else len(_ORDERED_KINDS)
        if isinstance(action, Apply) and action.instead_of:
            rank = 0  # it needs nothing that its predecessor did not have, and somebody waits for it
        stages[isinstance(action, Delete), rank].append(action)
    return [(deletes, stages[deletes, rank]) for deletes, rank in sorted(stages)]


async def _one(api: Cluster, action: Action, gate: asyncio.Semaphore) -> Done | Failure:
    async with gate:
        try:
            if isinstance(action, Apply):
                return await _apply(api, action)
            return await (_relabel(api, action) if isinstance(action, Relabel) else _delete(api, action))
        except ApiError as error:
            what = f"{_VERBS[type(action)]} {action.key.kind} {action.key.name}"
            level = logging.WARNING if not isinstance(error, ConflictError) else logging.INFO
            _log.log(level, "%s in cluster %s: %s", what, action.cluster, error)
            told = f"{error}{_STORE_RIGHTS}" if _is_denied_secret(error, action) else str(error)
            return Failure(action.cluster, what, told, retry=error.retry, reason=_reason(error))


async def _apply(api: Cluster, action: Apply) -> Done:
    if action.instead_of:
        await _delete(api, Delete(action.cluster, action.key, action.instead_of, grace_s=0))
        # Not by apply: should the old one linger (a finalizer of somebody's), that would change it, and this conflicts.
        answer = await api.create(action.document)
    else:
        answer = await api.apply(action.document)
    metadata = answer["metadata"]
    return Done(action.cluster, action.key, str(metadata["uid"]), False, str(metadata["resourceVersion"]))


async def _relabel(api: Cluster, action: Relabel) -> Done:
    key = action.key
    # The uid makes a pod that took the name meanwhile a conflict.
    patch = {
        "metadata": {"uid": action.uid, "labels": dict(action.labels), "annotations": dict(action.annotations)},
    }
    await api.merge_patch(BY_NAME[key.kind], key.namespace, key.name, patch)
    return Done(action.cluster, key, action.uid, deleted=False)


async def _delete(api: Cluster, action: Delete) -> Done:
    key = action.key
    try:
        await api.delete(BY_NAME[key.kind], key.namespace, key.name, uid=action.uid, grace_s=action.grace_s)
    except (NotFoundError, ConflictError):
        pass  # gone, or another one has the name: either way the one we meant is not there
    return Done(action.cluster, key, action.uid, deleted=True)


def _is_denied_secret(error: ApiError, action: Action) -> bool:
    return isinstance(error, DeniedError) and action.key.kind == "Secret"


def _reason(error: ApiError) -> str:
    if isinstance(error, DeniedError):
        return reasons.DENIED
    return reasons.TEMPLATE_REFUSED if isinstance(error, RefusedError) else ""
