"""Groups at rest: renewals alone need no pass, everything else does."""

from __future__ import annotations

import pytest

from sync_runtime.contract import names
from syncgroup_operator.execute.resting import Resting
from syncgroup_operator.kube.store import Store
from syncgroup_operator.planning.decision import Vigil
from syncgroup_operator.planning.leases import judge, vigils_of
from syncgroup_operator.planning.observation import Slot
from syncgroup_operator.planning.sitting import WAKE_SLACK_S
from tests.unit.operator_kube.bodies import GROUP, lease
from tests.unit.planning.world import World, fill, group

LASTS_S = 40.0
EVERY_S = 10.0


class Seen:
    """The leases of one cluster, and since when it is watched."""

    def __init__(self) -> None:
        self.store = Store("eu")
        self.connected: float | None = 0.0
        self.now_s = 1.0

    def renew(self, now_s: float) -> None:
        self.now_s = now_s
        self.store.put_lease(lease(f"2027-01-31T12:00:{now_s:09.6f}Z"), now_s)

    def connected_s(self, _namespace: str) -> float | None:
        return self.connected

    def lease_changed_s(self, namespace: str, name: str) -> float | None:
        return self.store.lease_changed_s(namespace, name)


def rest(seen: Seen, besides_s: float | None = None, resync_s: float = 600.0) -> Resting:
    world = World(group({"name": "west", "replicas": 1}))
    fill(world)
    resting = Resting(lambda name: seen if name == "eu" else None, lambda: seen.now_s)
    vigil = Vigil("eu", "team", names.lease_name(GROUP, "west", 0), LASTS_S)
    seen.renew(1.0)
    resting.begin(GROUP, {"eu": ("team", seen.connected)}, (vigil,), None if besides_s is None else 1.0 + besides_s)
    resting.limit(GROUP, resync_s)
    return resting


def test_a_group_whose_leases_are_renewed_rests_until_the_oldest_could_run_out() -> None:
    seen = Seen()
    resting = rest(seen)
    assert resting.goes_on_s(GROUP) == pytest.approx(LASTS_S + WAKE_SLACK_S)
    seen.renew(31.0)
    assert resting.goes_on_s(GROUP) == pytest.approx(LASTS_S + WAKE_SLACK_S)
    seen.now_s = 41.0
    assert resting.goes_on_s(GROUP) == pytest.approx(30.0 + WAKE_SLACK_S)


def test_a_lease_that_ran_out_or_vanished_ends_the_rest() -> None:
    seen = Seen()
    resting = rest(seen)
    seen.now_s = 1.0 + LASTS_S + 0.001
    assert resting.goes_on_s(GROUP) is None
    seen.renew(45.0)
    assert resting.goes_on_s(GROUP) is not None
    seen.store.drop_lease(lease())
    assert resting.goes_on_s(GROUP) is None


@pytest.mark.parametrize("since_s", [None, 5.0])
def test_a_gap_in_the_watch_ends_the_rest(since_s: float | None) -> None:
    seen = Seen()
    resting = rest(seen)
    seen.connected = since_s
    assert resting.goes_on_s(GROUP) is None


def test_a_rest_ends_when_something_else_is_due_and_at_the_next_look_at_everything() -> None:
    seen = Seen()
    resting = rest(seen, besides_s=20.0)
    assert resting.goes_on_s(GROUP) == pytest.approx(20.0)
    seen.now_s = 21.0
    assert resting.goes_on_s(GROUP) is None
    seen = Seen()
    resting = rest(seen, resync_s=15.0)
    assert resting.goes_on_s(GROUP) == pytest.approx(15.0)


def test_who_does_not_rest_needs_a_pass() -> None:
    seen = Seen()
    resting = rest(seen)
    resting.end(GROUP)
    assert resting.goes_on_s(GROUP) is None
    resting.limit(GROUP, 10.0)  # of a group that does not rest nothing is kept
    assert resting.goes_on_s(GROUP) is None


def test_only_a_group_whose_members_are_all_alive_has_vigils() -> None:
    world = World(group({"name": "west", "replicas": 2}))
    fill(world)
    observation = world.observe()
    found = vigils_of(observation, judge(observation))
    assert found is not None
    assert {vigil.lasts_s for vigil in found} == {LASTS_S}
    assert len(found) == 3
    world.make_pod(Slot("west", 1), world.pod("west", 1).place)  # a successor that has not reported yet
    observation = world.observe()
    assert vigils_of(observation, judge(observation)) is None


def test_time_alone_changes_nothing_while_leases_are_renewed() -> None:
    world = World(group({"name": "west", "replicas": 2}))
    fill(world)
    before = world.step()
    assert before.vigils is not None
    assert before.wake_after_s is not None
    assert before.wake_besides_s is None
    for _ in range(6):
        world.pass_time(EVERY_S)
        after = world.step()
        assert (after.state, after.seats, after.plans, after.removals) == (
            before.state, before.seats, before.plans, before.removals,
        )  # fmt: skip
