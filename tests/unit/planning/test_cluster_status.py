from __future__ import annotations

import datetime
from typing import Any

from sync_runtime.contract.status import SyncClusterStatus
from syncgroup_operator import reasons
from syncgroup_operator.planning.observation import ClusterProblem
from syncgroup_operator.planning.status import synccluster_status

NOW = datetime.datetime(2027, 1, 31, 12, tzinfo=datetime.UTC)
AWAY = ClusterProblem(reasons.UNREACHABLE, "connect to 203.0.113.9:6443 timed out", permanent=False)


def seen(
    previous: SyncClusterStatus | None, after_s: float, *, problem: ClusterProblem | None = None, **fields: Any
) -> SyncClusterStatus:
    now = NOW + datetime.timedelta(seconds=after_s)
    return synccluster_status(previous, generation=2, now=now, problem=problem, **{"connected": False, **fields})


def test_a_cluster_that_was_not_tried_yet_is_unknown_and_not_lost() -> None:
    found = seen(None, 0)
    assert (found.conditions[0].type, found.conditions[0].status) == ("Connected", "Unknown")
    assert found.lost_time is None
    assert found.observed_generation == 2


def test_the_moment_of_the_loss_stays_over_restarts_and_changes_of_the_cause() -> None:
    up = seen(None, 0, connected=True, kubernetes_version="v1.37.1")
    assert (up.conditions[0].status, up.kubernetes_version) == ("True", "v1.37.1")
    lost = seen(up, 10, problem=AWAY)
    assert (lost.conditions[0].reason, lost.lost_time) == (reasons.UNREACHABLE, "2027-01-31T12:00:10.000Z")
    restarted = seen(lost, 500)
    refused = seen(restarted, 900, problem=ClusterProblem(reasons.KUBECONFIG_REFUSED, "exec", permanent=True))
    assert (restarted.lost_time, refused.lost_time) == (lost.lost_time, lost.lost_time)
    assert refused.kubernetes_version == "v1.37.1"
    assert seen(refused, 1000, connected=True).lost_time is None


def test_a_moment_in_the_future_counts_as_now() -> None:
    ahead = seen(None, 5000, problem=AWAY)
    assert seen(ahead, 100, problem=AWAY).lost_time == "2027-01-31T12:01:40.000Z"


def test_the_transition_time_moves_with_the_status_alone() -> None:
    lost = seen(None, 10, problem=AWAY)
    later = seen(lost, 20, problem=ClusterProblem("odd reason!", "x" * 5000, permanent=False))
    assert later.conditions[0].last_transition_time == lost.conditions[0].last_transition_time
    assert later.conditions[0].reason == reasons.UNREACHABLE
    assert len(later.conditions[0].message) <= 1024
