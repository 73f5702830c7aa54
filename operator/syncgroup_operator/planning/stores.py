"""The object stores of a group: their Secrets, who holds a copy, what members say of the stores, and the status. Pure.

The operator dials no store: who feeds it and who follows it say how they find it, from where they stand, with the
credentials that they have. What can be judged without a store (the Secret and its keys) is judged here before any pod
is made.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sync_runtime.contract.names import GroupKey, store_secret_name
from sync_runtime.contract.reports import StoreReport
from sync_runtime.contract.status import StoreStatus
from sync_runtime.contract.stores import (
    address_of,
    fed_stores,
    keys_prefix,
    prefixed,
    secret_problem,
    store_at,
    used_keys,
)
from sync_runtime.contract.sync import ObjectStore, Sync
from syncgroup_operator import reasons
from syncgroup_operator.planning.census import Census, Row, camel, clipped
from syncgroup_operator.planning.observation import ClusterView, ObjectKey, Observation, Place
from syncgroup_operator.planning.problems import TemplateProblem
from syncgroup_operator.planning.state import GroupState

NEARLY = 1.1
"""A rate within this factor of the one that was written is not written again."""


def secret_names(sync: Sync, group: GroupKey) -> list[str]:
    """The Secrets that the group's stores are opened with; none: no store, or the pods' own identity."""
    return sorted({store.secret_ref.name for store in fed_stores(sync, group) if store.secret_ref is not None})


def opens_with_secret(sync: Sync, group: GroupKey, place: Place, *, is_trainer: bool) -> bool:
    """Whether a member there opens a store with credentials of a Secret: the trainer any, others their place's."""
    stores = fed_stores(sync, group) if is_trainer else [store_at(sync, *place)]
    return any(store is not None and store.secret_ref is not None for store in stores)


def copies_at(observation: Observation, seated: Iterable[Place]) -> dict[str, dict[str, str]]:
    """What the copy in each cluster holds, base64 by key: of the stores that members there use, and of no others."""
    sync, spec = observation.group.spec.sync, observation.group.spec
    uses = [(place.cluster, store_at(sync, *place)) for place in seated]
    uses += [(spec.trainer.cluster, store) for store in fed_stores(sync, observation.key)]
    found: dict[str, dict[str, str]] = {}
    for cluster, store in uses:
        ref = None if store is None else store.secret_ref
        secret = None if ref is None else observation.store_secrets.get(ref.name)
        if store is None or secret is None or secret.data is None or cluster not in observation.clusters:
            continue
        keys = prefixed(keys_prefix(sync, store), used_keys(store.url, secret.data))
        found.setdefault(cluster, {}).update({copied: secret.data[key] for key, copied in keys.items()})
    return found


def copy_key(observation: Observation, cluster: ClusterView) -> ObjectKey:
    """The copy of the Secret in a cluster."""
    return ObjectKey("Secret", cluster.namespace, store_secret_name(observation.key))


def copies_wanted(observation: Observation, state: GroupState, seated: Iterable[Place]) -> list[str]:
    """Clusters that hold a copy from this pass on, or may still hold one: what cannot be seen stays on the list.

    Copies are looked for there and nowhere else, since Secrets are not watched.
    """
    wanted = _clusters_with_secrets(observation, seated)
    return sorted(wanted | {name for name in state.store_clusters if _may_hold(observation, name)})


def store_problems(observation: Observation) -> Iterator[TemplateProblem]:
    """What is wrong with the Secrets of the stores."""
    sync = observation.group.spec.sync
    named = [("spec.sync", sync.object_store)]
    named += [(f"spec.sync.regions[{index}]", one.object_store) for index, one in enumerate(sync.regions)]
    for above, store in named:
        ref = None if store is None else store.secret_ref
        if store is not None and ref is not None and ref.name in observation.store_secrets:
            yield from _secret_problems(observation, f"{above}.objectStore.secretRef.name", store, ref.name)


def _secret_problems(observation: Observation, at: str, store: ObjectStore, name: str) -> Iterator[TemplateProblem]:
    secret = observation.store_secrets[name]
    where = f"Secret {secret.name} in namespace {observation.key.namespace}"
    if secret.denied:
        message = (
            f"the operator may not read {where}: set `rbac.storeSecrets` in the operator's chart, or remove secretRef "
            f"so that the pods' own cloud identity is used ({secret.denied})"
        )
        yield TemplateProblem(reasons.DENIED, at, message)
    elif secret.data is None:
        message = (
            f"there is no {where}: create it with the store's credentials, or remove secretRef so that the pods' own "
            "cloud identity is used"
        )
        yield TemplateProblem(reasons.SECRET_NOT_FOUND, at, message)
    else:
        try:
            data = {key: base64.b64decode(value, validate=True) for key, value in secret.data.items()}
        except (binascii.Error, ValueError):
            yield TemplateProblem(reasons.SECRET_UNUSABLE, at, f"{where} is not base64: make it anew")
            return
        found = secret_problem(store.url, data)
        if found is not None:
            yield TemplateProblem(reasons.SECRET_UNUSABLE, at, f"{where}: {found}")


class StoreTrouble(NamedTuple):
    """What a member says is wrong with the store."""

    reason: str
    message: str


def store_trouble(census: Census) -> StoreTrouble | None:
    """The trainer's first: without it nobody has anything to follow."""
    trainer = () if census.trainer is None else ((census.trainer, _told_address(census, _report(census.trainer))),)
    for row, address in (*trainer, *((row, address_at(census, row.seat.place)) for row in census.rollouts)):
        report = _report(row)
        if address and report is not None and report.trouble is not None:
            reason = camel(report.trouble.reason, reasons.STORE_AWAY)
            return StoreTrouble(reason, f"{row.member} at {address}: {report.trouble.message}")
    return None


def is_proved(census: Census) -> bool:
    """Whether the trainer has opened every store: it takes conditional writes, and the credentials are good."""
    report = None if census.trainer is None else _report(census.trainer)
    return report is not None and report.trouble is None


def address_at(census: Census, place: Place) -> str:
    """The store that members of a place follow, as a person would type it; empty: weights come over streams."""
    store = store_at(census.observation.group.spec.sync, *place)
    return "" if store is None else address_of(store, *census.observation.key)


def addresses(census: Census) -> list[str]:
    """All stores of the group."""
    key = census.observation.key
    return [address_of(store, *key) for store in fed_stores(census.observation.group.spec.sync, key)]


def store_status(census: Census, before: StoreStatus | None) -> StoreStatus | None:
    """What the status says of the store; None where the group has none. Of several: the one the trainer tells of."""
    if not addresses(census):
        return None
    report = None if census.trainer is None else _report(census.trainer)
    trouble = store_trouble(census)
    rate = report.rate_bits_per_second if report is not None else None
    known = before.rate_bits_per_second if before is not None else None
    return StoreStatus(
        address=_told_address(census, report),
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


def _told_address(census: Census, report: StoreReport | None) -> str:
    """Which of the group's stores the trainer tells of; what is none of them is nobody's word to repeat."""
    known = addresses(census)
    told = None if report is None else report.address
    return told if told in known else known[0] if known else ""


def _clusters_with_secrets(observation: Observation, seated: Iterable[Place]) -> set[str]:
    spec, key = observation.group.spec, observation.key
    wanted = {place.cluster for place in seated if opens_with_secret(spec.sync, key, place, is_trainer=False)}
    return wanted | ({spec.trainer.cluster} if secret_names(spec.sync, key) else set())


def _may_hold(observation: Observation, name: str) -> bool:
    cluster = observation.clusters.get(name)
    return cluster is None or not cluster.reachable or copy_key(observation, cluster) in cluster.children
