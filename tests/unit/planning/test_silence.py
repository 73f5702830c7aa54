"""A lease is judged as of the last moment at which its watch is known to have lived."""

from __future__ import annotations

from sync_runtime.contract.policies import LeasePolicy
from syncgroup_operator.planning.leases import PROOF_S, Life, life_of
from syncgroup_operator.planning.observation import ClusterView, LeaseView, Place, PodView, Slot

SLOT, PLACE = Slot("west", 0), Place("eu", "eu-west")
POLICY = LeasePolicy(duration_seconds=40, renew_interval_seconds=10)


def life(now_s: float, *, changed_s: float = 100.0, heard_s: float | None, holder: str = "p") -> Life:
    pod = PodView("m", "ml", "p", SLOT, PLACE, "Running", ready=True, deleting=False, seen_s=1.0)
    lease = LeaseView("m", "ml", SLOT, PLACE, holder, "t", 40, changed_s)
    cluster = ClusterView("eu", "ml", connected_s=50.0, heard_s=heard_s, pods=(pod,), leases=(lease,))
    return life_of(pod, lease, cluster, now_s, POLICY)


def test_a_lease_that_runs_out_under_a_live_watch_is_expired() -> None:
    assert life(139.0, heard_s=139.0).verdict == "Live"
    assert life(141.0, heard_s=140.5).verdict == "Expired"
    assert life(141.0, heard_s=None).verdict == "Expired"


def test_a_lease_that_runs_out_in_silence_waits_for_proof_without_a_busy_loop() -> None:
    waits = life(150.0, heard_s=110.0)
    assert waits.verdict == "Live"
    assert not waits.lost
    assert waits.due_s == 150.0 + PROOF_S
    assert life(150.0, heard_s=149.0).lost
