"""The object store of a group: its Secret, who holds a copy of it, what members say of the store, and its status. Pure.

The operator dials no store: who feeds it and who follows it say how they find it, from where they stand, with the
credentials that they have. What can be judged without a store (the Secret and its keys) is judged here before any pod
is made.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sync_runtime.contract.names import store_secret_name
from sync_runtime.contract.reports import StoreReport
from sync_runtime.contract.status import StoreStatus
from sync_runtime.contract.stores import address_of, secret_problem
from sync_runtime.contract.sync import SecretRef, Sync
from syncgroup_operator import reasons
from syncgroup_operator.planning.census import Census, Row, camel, clipped
from syncgroup_operator.planning.observation import ClusterView, ObjectKey, Observation
from syncgroup_operator.planning.problems import TemplateProblem
from syncgroup_operator.planning.state import GroupState

SECRET_FIELD = "spec.sync.objectStore.secretRef.name"  # noqa: S105 a field, no secret
NEARLY = 1.1
"""A rate within this factor of the one that was written is not written again."""


def secret_ref_of(sync: Sync) -> SecretRef | None:
    """The Secret that the group's store is opened with; None: no store, or the pods' own identity."""
    return None if sync.object_store is None else sync.object_store.secret_ref


def copy_key(observation: Observation, cluster: ClusterView) -> ObjectKey:
    """The copy of the Secret in a cluster."""
    return ObjectKey("Secret", cluster.namespace, store_secret_name(observation.key))


def copies_wanted(observation: Observation, state: GroupState, seated: Iterable[str]) -> list[str]:
    """Clusters that hold a copy from this pass on, or may still hold one: what cannot be seen stays on the list.

    Copies are looked for there and nowhere else, since Secrets are not watched.
    """
    wanted = set(seated) if secret_ref_of(observation.group.spec.sync) is not None else set()
    return sorted(wanted | {name for name in state.store_clusters if _may_hold(observation, name)})


def store_problems(observation: Observation) -> Iterator[TemplateProblem]:
    """What is wrong with the Secret of the store."""
    store, secret = observation.group.spec.sync.object_store, observation.store_secret
    if store is None or secret is None:
        return
    where = f"Secret {secret.name} in namespace {observation.key.namespace}"
    if secret.denied:
        message = (
            f"the operator may not read {where}: set `rbac.storeSecrets` in the operator's chart, or remove secretRef "
            f"so that the pods' own cloud identity is used ({secret.denied})"
        )
        yield TemplateProblem(reasons.DENIED, SECRET_FIELD, message)
    elif secret.data is None:
        message = (
            f"there is no {where}: create it with the store's credentials, or remove secretRef so that the pods' own "
            "cloud identity is used"
        )
        yield TemplateProblem(reasons.SECRET_NOT_FOUND, SECRET_FIELD, message)
    else:
        try:
            data = {key: base64.b64decode(value, validate=True) for key, value in secret.data.items()}
        except (binascii.Error, ValueError):
            yield TemplateProblem(reasons.SECRET_UNUSABLE, SECRET_FIELD, f"{where} is not base64: make it anew")
            return
        found = secret_problem(store.url, data)
        if found is not None:
            yield TemplateProblem(reasons.SECRET_UNUSABLE, SECRET_FIELD, f"{where}: {found}")


class StoreTrouble(NamedTuple):
    """What a member says is wrong with the store."""

    reason: str
    message: str


def store_trouble(census: Census) -> StoreTrouble | None:
    """The trainer's first: without it nobody has anything to follow."""
    rows = (*([census.trainer] if census.trainer is not None else ()), *census.rollouts)
    for row in rows:
        report = _report(row)
        if report is not None and report.trouble is not None:
            reason = camel(report.trouble.reason, reasons.STORE_AWAY)
            return StoreTrouble(reason, f"{row.member} at {store_address(census)}: {report.trouble.message}")
    return None


def is_proved(census: Census) -> bool:
    """Whether the trainer has opened the store: it takes conditional writes, and the credentials are good."""
    report = None if census.trainer is None else _report(census.trainer)
    return report is not None and report.trouble is None


def store_address(census: Census) -> str:
    """As a person would type it."""
    store, key = census.observation.group.spec.sync.object_store, census.observation.key
    return "" if store is None else address_of(store, *key)


def store_status(census: Census, before: StoreStatus | None) -> StoreStatus | None:
    """What the status says of the store; None where the group has none."""
    if census.observation.group.spec.sync.object_store is None:
        return None
    report = None if census.trainer is None else _report(census.trainer)
    trouble = store_trouble(census)
    rate = report.rate_bits_per_second if report is not None else None
    known = before.rate_bits_per_second if before is not None else None
    return StoreStatus(
        address=store_address(census),
        version=report.seq if report is not None else (before.version if before is not None else None),
        rate_bits_per_second=known if rate is None or nearly(known, rate) else rate,
        reason=None if trouble is None else trouble.reason,
        message=None if trouble is None else clipped(trouble.message),
    )


def nearly(before: int | None, after: int | None) -> bool:
    """Whether a figure is the same but for noise."""
    if not before or not after:
        return before == after
    return max(before, after) <= NEARLY * min(before, after)


def follower(rows: Iterable[Row]) -> StoreReport | None:
    """What a place says of the store: whoever has most from it, since that is the one that fetches for the others."""
    reports = [report for report in map(_report, rows) if report is not None]
    return max(reports, key=lambda report: (report.objects, report.trouble is None), default=None)


def _report(row: Row) -> StoreReport | None:
    return None if row.report is None or row.life.lost or row.removed else row.report.store


def _may_hold(observation: Observation, name: str) -> bool:
    cluster = observation.clusters.get(name)
    return cluster is None or not cluster.reachable or copy_key(observation, cluster) in cluster.children
