"""Whatever happens to a group, in whatever order: pods die, clusters go and come, clocks jump, operators restart."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sync_runtime.contract import names
from sync_runtime.contract.plan import MAX_FAN_OUT
from sync_runtime.contract.requests import MAX_REQUESTS
from syncgroup_operator.planning.damping import UNDER_WAY_S
from syncgroup_operator.planning.decide import decide
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.leases import judge
from syncgroup_operator.planning.observation import Observation, Slot
from syncgroup_operator.planning.plans import digest_of
from syncgroup_operator.planning.state import GroupState
from tests.support.examples import examples
from tests.unit.planning.world import World, fill, group, shuffled

CONCURRENT, PER_HOUR = 2, 9
LEASE = {"maxConcurrentReplacements": CONCURRENT, "maxReplacementsPerHour": PER_HOUR, "onClusterLost": "Replace"}
ROLLOUTS = (
    {"name": "eu", "region": "eu", "replicas": 4, "placement": {"fallback": [{"cluster": "far", "region": "asia"}]}},
    {
        "name": "asia",
        "cluster": "far",
        "region": "asia",
        "replicas": 3,
        "maxUnavailable": 2,
        "placement": {"fallback": [{"cluster": "far", "region": "india"}, {"region": "us"}]},
    },
)
SLOTS = [*(Slot("eu", index) for index in range(4)), *(Slot("asia", index) for index in range(3)), Slot("trainer", 0)]
EVENTS = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 400)),
    st.tuples(st.sampled_from(["die", "vanish", "fail", "stuck", "no-room", "node", "ask"]), st.sampled_from(SLOTS)),
    st.tuples(st.sampled_from(["cut", "mend"]), st.just("far")),
    st.tuples(st.sampled_from(["restart", "crash", "restore", "suspend", "template"]), st.none()),
    st.tuples(st.just("jump"), st.integers(-90_000, 90_000)),
    st.tuples(st.just("scale"), st.integers(0, 6)),
    st.tuples(st.just("fence"), st.integers(1, 40)),
)


@dataclass
class Watcher:
    """What must hold, kept in books of its own."""

    world: World
    replaced: list[datetime.datetime] = field(default_factory=list)
    under_way: dict[str, datetime.datetime] = field(default_factory=dict)
    revisions: dict[int, str] = field(default_factory=dict)
    terms: set[int] = field(default_factory=set)
    trainer_uid: str = ""

    def step(self, *, crash: bool = False) -> Decision:
        world = self.world
        observation = world.observe()
        decision = decide(observation, GroupState.from_json(world.state))
        again = decide(shuffled(observation, [3, 1, 2, 0]), GroupState.from_json(world.state))
        assert again == decision
        world.state = decision.state.to_json()
        if not crash:
            world.act(decision)
        self._check_damping(observation, decision)
        self._check_routes(observation, decision)
        self._check_numbers(decision)
        return decision

    def forget(self) -> None:
        """An older state knows less of what was replaced; it cannot be held to it."""
        self.replaced.clear()
        self.under_way.clear()

    def _check_damping(self, observation: Observation, decision: Decision) -> None:
        now = observation.now
        trainer = names.member_name(observation.key, "trainer", 0)
        fresh = [one.member for one in decision.replacements if one.member != trainer]
        hour_ago = now - datetime.timedelta(minutes=60)
        self.replaced = [min(moment, now) for moment in self.replaced if min(moment, now) > hour_ago] + [now] * len(
            fresh
        )
        assert len(self.replaced) <= PER_HOUR
        lives = judge(observation)
        ready = {pod.name for pod in observation.pods() if pod.ready and not pod.deleting and not lives[pod.uid].lost}
        patience = datetime.timedelta(seconds=UNDER_WAY_S)
        wanted = {names.member_name(observation.key, *seat.slot) for seat in decision.seats}
        self.under_way = {
            name: min(since, now)
            for name, since in self.under_way.items()
            if name not in ready and name in wanted and now - min(since, now) < patience
        }
        for name in fresh:
            self.under_way.setdefault(name, now)
        assert len(self.under_way) <= CONCURRENT

    def _check_routes(self, observation: Observation, decision: Decision) -> None:
        lives = judge(observation)
        trainer = names.member_name(observation.key, "trainer", 0)
        dials_trainer = 0
        for place, plan in decision.plans.items():
            here = {pod.name: lives[pod.uid] for pod in observation.pods() if pod.place == place}
            lost = {name for name, life in here.items() if life.lost} - {trainer}  # its successor has its name
            parents = {member.name: member.parents for member in plan.members}
            assert not lost & {parent for found in parents.values() for parent in found}
            dials_trainer += sum(found[:1] == [trainer] for found in parents.values())
            for name, life in here.items():
                if life.verdict == "Live" and name in parents and name != trainer:
                    assert trainer in _reached(name, parents, lost)
        assert dials_trainer <= MAX_FAN_OUT

    def _check_numbers(self, decision: Decision) -> None:
        digest = digest_of(decision.plans)
        assert self.revisions.setdefault(decision.state.revision, digest) == digest
        assert decision.state.revision == max(self.revisions)
        for cluster in self.world.clusters.values():
            pod = cluster.pods.get(Slot("trainer", 0))
            if pod is not None and pod.uid != self.trainer_uid:
                assert pod.term is not None
                assert pod.term > max(self.terms, default=0)
                self.terms.add(pod.term)
                self.trainer_uid = pod.uid


def _reached(name: str, parents: dict[str, list[str]], lost: set[str]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen and current not in lost:
            seen.add(current)
            waiting += parents.get(current, [])
    return seen


def happen(watcher: Watcher, event: str, detail: object, older: str) -> None:
    world = watcher.world
    if event == "ask" and isinstance(detail, Slot):
        ask(world, detail)
    elif isinstance(detail, Slot):
        befall(world, event, detail)
    elif event in ("cut", "mend") and (world.clusters["far"].connected_s is None) == (event == "mend"):
        (world.cut if event == "cut" else world.mend)("far")
    elif event in ("restart", "crash"):
        if event == "crash":
            watcher.step(crash=True)
        world.restart()
    elif event == "restore":
        world.state = older
        watcher.forget()
        if world.group.spec.suspend or not any(Slot("trainer", 0) in one.pods for one in world.clusters.values()):
            watcher.terms.clear()  # soon nobody runs who could say which terms there were
    elif event == "jump" and isinstance(detail, int):
        world.pass_time(1.0, wall_jump_s=float(detail))
        if detail > 0:
            watcher.forget()  # by the clock, hours have passed
    elif event == "fence":
        world.reports[Slot("trainer", 0)] = {"term": detail}
    else:
        edit(world, event, detail)


def ask(world: World, slot: Slot) -> None:
    """Somebody wants another pod in a seat; the latest few requests stand in the spec."""
    world.num_asked += 1
    wanted = {"id": f"r{world.num_asked}", "type": "Replace", "member": names.member_name(world.group.key, *slot)}
    kept = [one.to_document() for one in world.group.spec.requests]
    world.change(requests=[*kept, wanted][-MAX_REQUESTS:])


def befall(world: World, event: str, slot: Slot) -> None:
    """Something happens to the pods of a seat."""
    for cluster in world.clusters.values():
        pod = cluster.pods.get(slot)
        if pod is None:
            continue
        pod.dead = pod.dead or event in ("die", "node")
        pod.starts = pod.starts and event != "stuck"
        pod.phase = "Failed" if event == "fail" else pod.phase
        pod.unschedulable = pod.unschedulable or (event == "no-room" and not pod.renewals)
        if event == "node":
            cluster.down_nodes.add(pod.node)
        if event == "vanish":
            del cluster.pods[slot]


def edit(world: World, event: str, detail: object) -> None:
    """The user changes the spec."""
    if event == "suspend":
        world.change(suspend=not world.group.spec.suspend)
    elif event == "template":
        world.template += "+"
    elif event == "scale":
        eu, asia = (rollout.to_document() for rollout in world.group.spec.rollouts)
        world.change(rollouts=[{**eu, "replicas": detail}, asia])


@pytest.mark.timeout(examples(120))
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([("cut", "far"), ("node", Slot("trainer", 0)), ("jump", 4732)])
@example([("fence", 38), ("jump", 72094), ("suspend", None), ("restore", None)])
@given(st.lists(EVENTS, min_size=1, max_size=25))
def test_limits_and_routes_hold_and_the_world_settles(events: list[tuple[str, object]]) -> None:
    world = World(group(*ROLLOUTS, lease=LEASE))
    watcher = Watcher(world)
    watcher.step()
    older = world.state
    for _ in range(3):
        world.pass_time(10.0)
        watcher.step()
    for event, detail in events:
        happen(watcher, event, detail, older)
        world.pass_time(float(detail) if event == "pass" and isinstance(detail, int) else 2.0)
        watcher.step()
    settle_down(watcher)


def settle_down(watcher: Watcher) -> None:
    """No more faults: everything comes back, and then nothing changes any more."""
    world = watcher.world
    if world.clusters["far"].connected_s is None:
        world.mend("far")
    if world.group.spec.suspend:
        world.change(suspend=False)
    quiet = 0
    for _ in range(140):
        for cluster in world.clusters.values():
            for pod in cluster.pods.values():
                pod.starts, pod.unschedulable = True, False
        world.pass_time(150.0)
        known = GroupState.from_json(world.state)
        decision = watcher.step()
        quiet = 0 if decision.state != known or decision.damped or decision.removals else quiet + 1
        if quiet > 6:  # longer than any back-off
            break
    before = GroupState.from_json(world.state)
    for _ in range(3):
        world.pass_time(30.0)
        decision = watcher.step()
    assert decision.state == before
    assert (decision.removals, decision.replacements, decision.damped) == ((), (), 0)
    wanted = {(seat.slot, seat.place) for seat in decision.seats}
    assert wanted == {(pod.slot, pod.place) for one in world.clusters.values() for pod in one.pods.values()}
    assert all(world.is_up(pod) for one in world.clusters.values() for pod in one.pods.values())
    asked = {request.id for request in world.group.spec.requests}
    assert asked <= {entry.id for entry in decision.state.requests if entry.over}, "somebody still waits"
    term = world.pod("trainer", 0).term
    assert term is not None
    assert term >= world.reports.get(Slot("trainer", 0), {}).get("term", 0), "it knows of a later one than itself"


def test_a_restored_state_never_gives_out_a_term_or_revision_again() -> None:
    world = World(group(*ROLLOUTS, lease=LEASE))
    watcher = Watcher(world)
    watcher.step()
    older = world.state
    fill(world)
    for _ in range(4):
        del world.clusters["local"].pods[Slot("trainer", 0)]
        for _ in range(6):
            world.pass_time(30.0)
            watcher.step()
    newest = max(watcher.terms), max(watcher.revisions)
    world.state = older
    watcher.forget()
    watcher.step()
    state = GroupState.from_json(world.state)
    assert state.term == newest[0]  # its pod lives: it is adopted, not replaced
    assert state.revision > newest[1]
    del world.clusters["local"].pods[Slot("trainer", 0)]
    for _ in range(3):
        world.pass_time(30.0)
        watcher.step()
    assert GroupState.from_json(world.state).term > newest[0]


def test_a_restored_state_learns_the_term_of_a_pod_that_is_ending() -> None:
    world = World(group(*ROLLOUTS, lease=LEASE))
    watcher = Watcher(world)
    watcher.step()
    older = world.state
    fill(world)
    del world.clusters["local"].pods[Slot("trainer", 0)]
    for _ in range(6):
        world.pass_time(30.0)
        watcher.step()
    newest = GroupState.from_json(world.state).term
    assert newest > GroupState.from_json(older).term
    world.change(suspend=True)
    watcher.step()
    world.state = older
    watcher.forget()
    watcher.step()
    assert world.observe().pods(), "the pod is still there, on its way out"
    assert GroupState.from_json(world.state).term == newest
