from __future__ import annotations

import datetime
from typing import Any

import pytest

from sync_runtime.contract.policies import LeasePolicy
from syncgroup_operator.planning.damping import Budget, back_off_s, window
from syncgroup_operator.planning.leases import MAX_DURATION_S, STARTUP_ALLOWANCE_S, Life, life_of
from syncgroup_operator.planning.observation import ClusterProblem, ClusterView, LeaseView, Place, PodView, Slot
from syncgroup_operator.planning.state import MinuteCount

SLOT, PLACE = Slot("eu", 0), Place("local", "eu")
POLICY = LeasePolicy()
NOW = datetime.datetime(2027, 1, 31, 12, 0, 30, tzinfo=datetime.UTC)
MINUTE = int(NOW.timestamp() // 60)


def pod(**fields: Any) -> PodView:
    base: dict[str, Any] = {"phase": "Running", "ready": True, "deleting": False, "seen_s": 100.0, **fields}
    return PodView("m", "ml", "uid-1", SLOT, PLACE, **base)


def lease(changed_s: float, holder: str = "uid-1", duration_s: int = 40) -> LeaseView:
    return LeaseView("m", "ml", SLOT, PLACE, holder, "t", duration_s, changed_s)


def judged(now_s: float, found: LeaseView | None, connected_s: float | None = 100.0, **fields: Any) -> Life:
    problem = None if connected_s is not None else ClusterProblem("Unreachable", "away", permanent=False)
    cluster = ClusterView("local", "ml", connected_s=connected_s, problem=problem)
    return life_of(pod(**fields), found, cluster, now_s, POLICY)


@pytest.mark.parametrize(
    ("now_s", "changed_s", "connected_s", "verdict", "due_s"),
    [
        (140.0, 120.0, 100.0, "Live", 160.0),
        (160.0, 120.0, 100.0, "Live", 160.0),
        (160.1, 120.0, 100.0, "Expired", None),
        (1000.0, 50.0, 980.0, "Unknown", 1020.0),  # old, but watched for 20 s only
        (1021.0, 50.0, 980.0, "Expired", None),
        (1000.0, 980.0, 980.0, "Unknown", 1020.0),  # the first sight is no renewal
        (5000.0, 120.0, None, "Unknown", None),
    ],
)
def test_a_lease_is_judged_by_what_was_seen_since_the_cluster_is_watched(
    now_s: float, changed_s: float, connected_s: float | None, verdict: str, due_s: float | None
) -> None:
    life = judged(now_s, lease(changed_s), connected_s)
    assert (life.verdict, life.due_s) == (verdict, due_s)


def test_a_longer_lease_of_a_member_that_has_the_old_plan_counts_up_to_the_limit() -> None:
    assert judged(200.0, lease(101.0, duration_s=200)).verdict == "Live"
    assert judged(101.5 + MAX_DURATION_S, lease(101.0, duration_s=10**9)).verdict == "Expired"
    assert judged(139.0, lease(101.0, duration_s=1)).verdict == "Live"


def test_a_lease_that_another_pod_holds_or_nobody_says_nothing() -> None:
    for found in (lease(101.0, holder="uid-0"), lease(101.0, holder=""), None):
        assert judged(200.0, found).verdict == "Unknown"
        assert not judged(200.0, found).taken


@pytest.mark.parametrize(
    ("fields", "now_s", "verdict"),
    [
        ({}, 100.0 + STARTUP_ALLOWANCE_S, "Unknown"),
        ({}, 100.1 + STARTUP_ALLOWANCE_S, "NeverReported"),
        ({"running_since_s": 500.0}, 101.0 + STARTUP_ALLOWANCE_S, "Unknown"),
        ({"running_since_s": 500.0}, 501.0 + STARTUP_ALLOWANCE_S, "NeverReported"),
        ({"phase": "Pending"}, 9e9, "Unknown"),
    ],
)
def test_a_pod_that_runs_must_report_within_its_allowance(fields: dict[str, Any], now_s: float, verdict: str) -> None:
    assert judged(now_s, None, **fields).verdict == verdict


@pytest.mark.parametrize(("heard_s", "lost"), [(130.0, False), (140.9, False), (141.1, True), (None, True)])
def test_silence_counts_only_up_to_the_last_proof_that_the_watch_lives(heard_s: float | None, lost: bool) -> None:
    cluster = ClusterView("local", "ml", connected_s=100.0, heard_s=heard_s)
    life = life_of(pod(), lease(101.0), cluster, 150.0, POLICY)
    assert life.lost is lost
    assert (life.due_s is None) is lost
    late = None if heard_s is None else heard_s + STARTUP_ALLOWANCE_S - 41.0
    starting = ClusterView("local", "ml", connected_s=100.0, heard_s=late)
    assert life_of(pod(), None, starting, 5000.0, POLICY).lost is lost


def test_the_allowance_begins_anew_with_the_connection() -> None:
    assert judged(10_000.0, None, connected_s=9_990.0).verdict == "Unknown"


def test_the_back_off_doubles_up_to_its_limit() -> None:
    assert [back_off_s(attempts) for attempts in (0, 1, 2, 3, 7, 8, 1000)] == [0, 10, 20, 40, 600, 600, 600]


def test_the_hour_forgets_old_minutes_and_counts_those_of_the_future_as_now() -> None:
    counts = [
        MinuteCount(minute=MINUTE - 61, count=5),
        MinuteCount(minute=MINUTE - 60, count=1),
        MinuteCount(minute=MINUTE, count=2),
        MinuteCount(minute=MINUTE + 500, count=4),
    ]
    assert window(counts, NOW) == {MINUTE - 60: 1, MINUTE: 6}


def test_a_budget_counts_both_limits_down() -> None:
    policy = LeasePolicy(max_concurrent_replacements=2, max_replacements_per_hour=3)
    budget = Budget.of(policy, [MinuteCount(minute=MINUTE - 30, count=1)], [NOW, None], NOW)
    assert budget.allows(counted=False)
    budget.take(counted=False)
    assert not budget.allows(counted=False)
    assert budget.allows(counted=True)  # its seat is among the two already
    budget.take(counted=True)
    assert not budget.allows(counted=True)
    assert budget.next_release_s() == 30 * 60 + 30  # the oldest minute leaves when it is wholly past
    assert [entry.count for entry in budget.counts()] == [1, 2]
