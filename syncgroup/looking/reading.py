"""Asks an API server about SyncGroups. Every failure is a sentence that says what to do; what may not be seen is said.

The operator's own client, with the rights of the person who asks. One write only: requests in a group's spec.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.documents import load_stored
from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup.errors import CommandError
from syncgroup.looking.facts import GroupFacts, cluster_fact, clusters_of, event_fact, member_facts, plan_fact
from syncgroup.looking.targets import Target
from syncgroup_operator.errors import (
    AccessError,
    ApiError,
    ConflictError,
    DeniedError,
    NotFoundError,
    UnreachableError,
)
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.access import KubeconfigFile
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import Kind
from syncgroup_operator.manifests.roles import VIEWER_ROLE

MANAGER = "kubectl-syncgroup"
SHOWN_EVENTS = 20
CHANGE_TRIES = 5
Body = dict[str, Any]
Now = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    """Wall time: ages are shown by it."""
    return datetime.datetime.now(datetime.UTC)


@contextlib.asynccontextmanager
async def reached(target: Target) -> AsyncIterator[Cluster]:
    """A client whose failures are sentences for a person."""
    cluster = Cluster(target.context, KubeconfigFile(Path(target.kubeconfig), target.context))
    try:
        yield cluster
    except AccessError as error:
        raise CommandError(f"{error}.".replace("..", ".")) from error
    except UnreachableError as error:
        raise CommandError(
            f"the API server of context {target.context} does not answer ({_reason(error)}): is the cluster up, and is "
            "this the right context? See `kubectl config get-contexts`."
        ) from error
    except DeniedError as error:
        raise CommandError(_denied(target, error)) from error
    except ApiError as error:
        raise CommandError(f"the API server of context {target.context} refused: {_reason(error)}.") from error
    finally:
        await cluster.close()


async def list_bodies(cluster: Cluster, target: Target) -> list[Body]:
    """All SyncGroups of the namespace, or of all of them, as they are stored."""
    try:
        found = await cluster.list_all(kinds.SYNC_GROUP, target.namespace)
    except NotFoundError as error:
        raise CommandError(_no_kind(target)) from error
    return sorted(found, key=_key)


async def find_group(cluster: Cluster, target: Target, name: str) -> Body:
    """One SyncGroup as it is stored; where there is none, the names that are close."""
    namespace, _, bare = name.rpartition("/")
    target = target._replace(namespace=namespace or target.namespace)
    try:
        return await cluster.get(kinds.SYNC_GROUP, target.namespace, bare)
    except NotFoundError:
        pass
    try:
        bodies = await cluster.list_all(kinds.SYNC_GROUP, target.namespace)
    except NotFoundError as error:
        raise CommandError(_no_kind(target)) from error
    known = [str(one["metadata"]["name"]) for one in bodies]
    elsewhere = await _elsewhere(cluster, bare)
    raise CommandError(_no_group(target.namespace, bare, known, elsewhere))


async def list_groups(cluster: Cluster, target: Target) -> list[SyncGroup]:
    """The same, read."""
    return [parsed(body) for body in await list_bodies(cluster, target)]


async def read_group(cluster: Cluster, target: Target, name: str) -> SyncGroup:
    """One SyncGroup."""
    return parsed(await find_group(cluster, target, name))


async def read_facts(
    cluster: Cluster,
    body: Body,
    *,
    members: bool = True,
    events: bool = False,
    plans: bool = False,
    others: Mapping[str, Target] | None = None,
    now: Now = utc_now,
) -> GroupFacts:
    """Everything about one group. `others`: contexts in which members of other clusters can be seen."""
    group = parsed(body)
    unseen: list[str] = []
    pods: list[Body] = []
    leases: list[Body] = []
    selector = f"{names.LABEL_GROUP_UID}={body['metadata']['uid']}"
    namespace = group.key.namespace
    if members:
        pods += await _allowed(cluster, kinds.POD, namespace, unseen, label_selector=selector)
        leases += await _allowed(cluster, kinds.LEASE, namespace, unseen, label_selector=selector)
    for name, target in (others or {}).items():
        pods_there, leases_there = await _members_elsewhere(target, selector, name, unseen)
        pods, leases = pods + pods_there, leases + leases_there
    told: list[Body] = []
    if events:
        about = f"regarding.kind={names.SYNCGROUP_KIND},regarding.name={group.key.name}"
        told = await _allowed(cluster, kinds.EVENT, namespace, unseen, field_selector=about)
    maps = await _allowed(cluster, kinds.CONFIG_MAP, namespace, unseen, label_selector=selector) if plans else []
    used = clusters_of(group)
    clusters = await _allowed(cluster, kinds.SYNC_CLUSTER, "", unseen) if used and events else []
    moment = now()
    facts = [event_fact(one, moment) for one in told]
    facts.sort(key=lambda one: one.age_s if one.age_s is not None else float("inf"))
    return GroupFacts(
        group=group,
        generation=int(body["metadata"].get("generation", 0)),
        deleting="deletionTimestamp" in body["metadata"],
        members=member_facts(group, pods, leases, moment),
        events=facts[:SHOWN_EVENTS],
        clusters=[cluster_fact(one, moment) for one in clusters if one["metadata"]["name"] in used],
        plans=[plan for plan in map(plan_fact, maps) if plan is not None],
        unseen=unseen,
    )


async def ask(
    cluster: Cluster, target: Target, name: str, change: Callable[[SyncGroup], Sequence[Mapping[str, Any]]]
) -> SyncGroup:
    """Write a group's requests anew, as `change` makes them of what is there; by compare-and-swap."""
    for _ in range(CHANGE_TRIES):
        body = await find_group(cluster, target, name)
        group = parsed(body)
        metadata = {"resourceVersion": body["metadata"]["resourceVersion"], "uid": body["metadata"]["uid"]}
        patch = {"metadata": metadata, "spec": {"requests": list(change(group))}}
        try:
            answer = await cluster.merge_patch(kinds.SYNC_GROUP, *group.key, patch, manager=MANAGER)
        except ConflictError:
            continue
        return parsed(answer)
    raise CommandError(f"{name} changes all the time: try again.")


async def _members_elsewhere(
    target: Target, selector: str, name: str, unseen: list[str]
) -> tuple[list[Body], list[Body]]:
    """Pods and leases in another cluster, in whatever namespace they landed."""
    try:
        async with reached(target) as cluster:
            pods = await _allowed(cluster, kinds.POD, target.namespace, unseen, label_selector=selector)
            return pods, await _allowed(cluster, kinds.LEASE, target.namespace, unseen, label_selector=selector)
    except CommandError as error:
        unseen.append(f"members in cluster {name}: {error}")
        return [], []


async def _allowed(
    cluster: Cluster,
    kind: Kind,
    namespace: str,
    unseen: list[str],
    *,
    label_selector: str = "",
    field_selector: str = "",
) -> list[Body]:
    """A list, or nothing and a sentence where this person may not see it."""
    try:
        return await cluster.list_all(kind, namespace, label_selector=label_selector, field_selector=field_selector)
    except DeniedError as error:
        if error.status == 401:
            raise
        where = f"in namespace {namespace}" if namespace else "in this cluster"
        unseen.append(f"you may not list {kind.plural} {where}, so they are left out")
    except NotFoundError:
        unseen.append(f"this cluster has no {kind.plural}")
    return []


async def _elsewhere(cluster: Cluster, name: str) -> list[str]:
    with contextlib.suppress(ApiError):
        found = await cluster.list_all(kinds.SYNC_GROUP)
        return [one["metadata"]["namespace"] for one in found if one["metadata"]["name"] == name]
    return []


def parsed(body: Body) -> SyncGroup:
    """A stored SyncGroup; raises CommandError where this release cannot read it."""
    try:
        resource = load_stored(body).resource
    except ContractError as error:
        raise CommandError(f"{'/'.join(_key(body))} was written by another release: {error}.") from error
    if not isinstance(resource, SyncGroup):
        raise CommandError(f"{'/'.join(_key(body))} is no {names.SYNCGROUP_KIND}.")
    return resource


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    metadata = body["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])


def _no_group(namespace: str, name: str, known: Sequence[str], elsewhere: Sequence[str]) -> str:
    told = f"there is no SyncGroup {name} in namespace {namespace}"
    if elsewhere:
        return f"{told}, but one in {', '.join(elsewhere)}: give -n {elsewhere[0]}."
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"{told}; did you mean {' or '.join(close)}?"
    if known:
        return f"{told}; there are: {', '.join(sorted(known)[:8])}."
    return f"{told}, nor any other: see `kubectl syncgroup top -A`."


def _no_kind(target: Target) -> str:
    return (
        f"the cluster of context {target.context} knows no SyncGroups: install the chart there "
        "(`helm install syncgroup charts/syncgroup`), or choose another --context."
    )


def _denied(target: Target, error: DeniedError) -> str:
    if error.status == 401:
        return f"the API server of context {target.context} does not know you: log in again."
    where = f"-n {target.namespace} " if target.namespace else ""
    return (
        f"you may not do this: {_reason(error)}. An administrator can allow it: `kubectl create rolebinding "
        f"{where}--clusterrole={VIEWER_ROLE} …` (the roles view and edit hold it too)."
    )


def _reason(error: ApiError) -> str:
    """The server's own words, without what we put before them."""
    return str(error).partition(": ")[2].partition(": ")[2].rstrip(".") or str(error)
