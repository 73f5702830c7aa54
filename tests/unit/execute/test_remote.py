"""When a remote cluster is lost, and since when; all by the clocks that are handed in."""

from __future__ import annotations

import datetime
from typing import Any

from sync_runtime.contract.documents import load_stored
from sync_runtime.contract.synccluster import AllowedNamespace, SyncCluster
from syncgroup_operator import reasons
from syncgroup_operator.execute.remote import Remote
from syncgroup_operator.planning.observation import ClusterProblem
from tests.unit.contract.samples import minimal_cluster

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
LOST_AFTER_S = 15.0
ALLOWED = AllowedNamespace(local="ml", remote="guests", service_accounts=["engine"])


def resource(**status: Any) -> SyncCluster:
    body = minimal_cluster() | ({"status": status} if status else {})
    found = load_stored(body).resource
    assert isinstance(found, SyncCluster)
    return found


def judged(remote: Remote, at_s: float) -> bool:
    return remote.judge(at_s, NOON + datetime.timedelta(seconds=at_s), LOST_AFTER_S)


def test_a_cluster_that_is_being_opened_is_neither_reached_nor_lost() -> None:
    remote = Remote("far", resource())
    assert not judged(remote, 0.0)
    view = remote.view(ALLOWED, "uid")
    assert (view.problem, view.reachable, view.lost_time) == (None, False, None)
    assert remote.status(NOON).conditions[0].status == "Unknown"


def test_a_cluster_is_lost_from_the_moment_its_watches_were_and_not_from_the_verdict() -> None:
    remote = Remote("far", resource())
    judged(remote, 0.0)
    assert not judged(remote, LOST_AFTER_S - 1)
    assert judged(remote, LOST_AFTER_S)
    assert remote.problem is not None
    assert remote.problem.reason == reasons.UNREACHABLE
    assert remote.lost_time == NOON
    assert not judged(remote, LOST_AFTER_S + 60), "only a change is worth a wake-up"
    assert remote.lost_time == NOON


def test_the_moment_of_the_loss_survives_a_restart() -> None:
    lost = "2026-01-01T09:00:00.000Z"
    remote = Remote("far", resource(lostTime=lost))
    assert remote.view(ALLOWED, "uid").lost_time == NOON - datetime.timedelta(hours=3)
    judged(remote, 0.0)
    judged(remote, LOST_AFTER_S)
    assert remote.status(NOON).lost_time == lost


def test_a_refused_kubeconfig_counts_as_lost_at_once_and_keeps_its_reason() -> None:
    remote = Remote("far", resource())
    remote.problem = ClusterProblem(reasons.KUBECONFIG_REFUSED, "users[a].user.exec is refused", permanent=True)
    judged(remote, 0.0)
    assert remote.lost_time == NOON
    judged(remote, LOST_AFTER_S + 1)
    condition = remote.status(NOON).conditions[0]
    assert (condition.status, condition.reason) == ("False", reasons.KUBECONFIG_REFUSED)
    assert remote.view(ALLOWED, "uid").service_accounts == frozenset({"engine"})
