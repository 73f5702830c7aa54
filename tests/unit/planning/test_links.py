from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract.plan import LinkPlan
from sync_runtime.contract.reports import LinkReport, MemberReport
from sync_runtime.contract.sync import Sync
from syncgroup_operator.planning.leases import Life
from syncgroup_operator.planning.links import (
    ADOPT_EVERY_S,
    CONFIRMED_BY_PAYLOADS,
    Pair,
    adopt,
    learn,
    link_plan,
    pair_of,
    reported_links,
)
from syncgroup_operator.planning.observation import Place, Slot
from syncgroup_operator.planning.state import GroupState, LinkMemory
from tests.support.examples import examples
from tests.unit.contract import wire_samples
from tests.unit.planning.world import World, fill, group

US, EU = Place("local", "us"), Place("far", "eu")
PAIR = Pair(US, EU)
NOW = datetime.datetime(2027, 1, 31, 12, tzinfo=datetime.UTC)
AUTO = Sync()


def report(**fields: Any) -> LinkReport:
    ends = {"fromCluster": US.cluster, "fromRegion": US.region, "toCluster": EU.cluster, "toRegion": EU.region}
    return LinkReport.parse({**wire_samples.link_report(), **ends, **fields})


def taught(memory: LinkMemory | None, *reports: LinkReport, sync: Sync = AUTO) -> LinkMemory:
    memories = {} if memory is None else {PAIR: memory}
    for one in reports:
        memories = learn(memories, {PAIR: one}, sync, [US, EU], NOW)
    return memories[PAIR]


def rates(*megabits: int, first_payload: int = 10) -> list[LinkReport]:
    return [
        report(payloads=first_payload + step, capacityBitsPerSecond=rate * 10**6, rateBitsPerSecond=rate * 10**6)
        for step, rate in enumerate(megabits)
    ]


def test_the_first_report_is_remembered_with_the_senders_own_choice_as_seed() -> None:
    memory = taught(None, report(streams=12, bucketBytes=2**20 + 5))
    assert (memory.streams, memory.bucket_bytes, memory.capacity_bits_per_second) == (12, 2**20, 500_000_000)
    plan = link_plan(PAIR, memory, AUTO)
    assert (plan.streams.seed, plan.bucket_bytes.seed) == (12, 2**20)


def test_a_report_without_payloads_teaches_nothing() -> None:
    assert learn({}, {PAIR: report(payloads=0)}, AUTO, [US, EU], NOW) == {}


def test_figures_within_the_factor_change_nothing_at_all() -> None:
    memory = taught(None, *rates(500))
    assert taught(memory, *rates(600, 420, 700, 390, 510, first_payload=20)) == memory


def test_one_outlier_changes_no_plan_but_a_change_that_lasts_does() -> None:
    memory = taught(None, *rates(500))
    plan = link_plan(PAIR, memory, AUTO)
    outlier = taught(memory, *rates(100, 500, first_payload=20))
    assert outlier == memory
    lasting = taught(memory, *rates(*[100] * (CONFIRMED_BY_PAYLOADS + 1), first_payload=20))
    assert lasting.capacity_bits_per_second == 100_000_000
    assert link_plan(PAIR, lasting, AUTO) != plan
    assert lasting.doubted_payloads is None


def test_a_sender_that_counts_anew_confirms_anew() -> None:
    memory = taught(None, *rates(500, first_payload=1000))
    fresh = taught(memory, *rates(*[100] * (CONFIRMED_BY_PAYLOADS + 1), first_payload=1))
    assert fresh.capacity_bits_per_second == 100_000_000


def test_auto_takes_tight_on_slow_links_and_changes_back_only_well_above_the_limit() -> None:
    slow, fast = taught(None, *rates(100)), taught(None, *rates(5000))
    assert (slow.codec, fast.codec) == ("Tight", "Fast")
    codecs = []
    for megabits in (1300, 1400, 1450, 1500, 1550, 1590):
        one = slow.model_copy(update={"capacity_bits_per_second": megabits * 10**6})
        codecs.append(
            (link_plan(PAIR, one, AUTO).codec, link_plan(PAIR, one.model_copy(update={"codec": "Fast"}), AUTO).codec)
        )
    assert ("Tight", "Fast") in codecs  # whichever is in use stays
    assert codecs[0] == ("Tight", "Tight")


def test_the_spec_has_the_last_word_on_codec_and_bounds() -> None:
    sync = Sync.parse({"codec": "Fast", "streams": {"min": 4, "max": 6}, "bucketBytes": {"min": 2**21, "max": 2**21}})
    plan = link_plan(PAIR, taught(None, report(streams=32), sync=sync), sync)
    assert (plan.codec, plan.streams.seed, plan.bucket_bytes.seed) == ("Fast", 6, 2**21)
    assert "as the spec says" in (plan.message or "")


def test_links_that_nothing_was_measured_of_are_seeded_from_the_model() -> None:
    far, near = link_plan(PAIR, None, AUTO), link_plan(Pair(US, US), None, AUTO)
    assert (far.codec, far.streams.seed, near.streams.seed) == ("Fast", 6, 1)
    assert (far.message or "").startswith("not measured yet")


def test_links_of_places_that_left_the_group_are_forgotten_and_foreign_ones_never_learned() -> None:
    memory = taught(None, report())
    assert learn({PAIR: memory}, {}, AUTO, [US], NOW) == {}
    parsed = wire_samples.member_report() | {"links": [wire_samples.link_report()]}
    life = Life("Live", report=MemberReport.parse(parsed))
    assert reported_links([life], [US, EU]) == {}
    ours = [Place("local", "us-west-2"), Place("frankfurt", "eu-central-1")]
    assert len(reported_links([life], ours)) == 1
    assert reported_links([Life("Expired", report=life.report)], ours) == {}


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1), st.integers(0, 10**6), st.integers(0, 64)),
        max_size=8,
    ),
    st.integers(1, 64),
)
def test_any_reports_give_a_plan_inside_the_bounds(figures: list[tuple[int, int, int, int]], most: int) -> None:
    sync = Sync.parse({"streams": {"min": 1, "max": most}})
    memories: dict[Pair, LinkMemory] = {}
    for payloads, rate, loss, streams in figures:
        one = report(
            payloads=payloads, rateBitsPerSecond=rate, capacityBitsPerSecond=rate, lossPpm=loss, streams=streams,
            rttMicros=rate, minRttMicros=payloads, bucketBytes=rate % 2**24,
        )  # fmt: skip
        memories = learn(memories, {pair_of(one): one}, sync, [US, EU], NOW)
    plan = link_plan(PAIR, memories.get(PAIR), sync)
    assert isinstance(plan, LinkPlan)
    assert 1 <= plan.streams.seed <= most


def told(sender: str, receiver: str, payloads: int, megabits: int) -> dict[str, Any]:
    """A link of the worlds below, as its sender reports it."""
    clusters = {"us": "local", "asia": "far", "india": "far"}
    ends = {"fromCluster": clusters[sender], "fromRegion": sender, "toCluster": clusters[receiver]}
    rate = {"payloads": payloads, "rateBitsPerSecond": megabits * 10**6}
    return {**wire_samples.link_report(), **ends, "toRegion": receiver, "peer": f"from-{sender}", **rate}


def test_noise_in_reports_makes_no_new_plan_and_no_new_state() -> None:
    world = World(group({"name": "asia", "cluster": "far", "region": "asia", "replicas": 2}))
    fill(world)
    world.reports[Slot("trainer", 0)] = {"links": [told("us", "asia", 4, 500)]}
    world.settle(2 * ADOPT_EVERY_S)
    states = set()
    for payloads, rate in enumerate((500, 470, 530, 450, 560, 480, 700, 400), start=5):
        world.reports[Slot("trainer", 0)] = {"links": [told("us", "asia", payloads, rate)]}
        world.pass_time(10.0)
        states.add(world.step().state.to_json())
    assert len(states) == 1
    memory = GroupState.from_json(world.state).links[0]
    assert (memory.from_region, memory.to_region, memory.codec) == ("us", "asia", "Tight")
    world.restart()
    world.pass_time(1.0)
    assert world.step().state.to_json() in states


def test_links_that_are_measured_one_after_the_other_make_one_new_plan_for_all_of_them() -> None:
    world = World(
        group(
            {"name": "asia", "cluster": "far", "region": "asia", "replicas": 2},
            {"name": "india", "cluster": "far", "region": "india", "replicas": 2},
        )
    )
    fill(world)
    before = GroupState.from_json(world.state)
    measured = [
        ("trainer", "us", "asia"),
        ("asia", "asia", "asia"),
        ("india", "india", "india"),
        ("trainer", "us", "india"),
    ]
    revisions = set()
    for number in range(16):
        for role, sender, receiver in measured[number : number + 1]:
            links = [*world.reports.get(Slot(role, 0), {}).get("links", ()), told(sender, receiver, 3, 100)]
            world.reports[Slot(role, 0)] = {"links": links}
        world.pass_time(ADOPT_EVERY_S / 10)
        revisions.add(world.step().state.revision)
    assert revisions == {before.revision, before.revision + 1}
    assert len(GroupState.from_json(world.state).links) == len(measured)


def test_who_waits_for_new_figures_is_woken_for_them() -> None:
    world = World(group({"name": "asia", "cluster": "far", "region": "asia", "replicas": 2}))
    fill(world)
    world.reports[Slot("trainer", 0)] = {"links": [told("us", "asia", 4, 500)]}
    world.pass_time(1.0)
    decision = world.step()
    assert not decision.state.links
    assert decision.wake_besides_s is not None
    world.pass_time(decision.wake_besides_s)
    assert world.step().state.links


STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 50.0), st.sampled_from(["asia", "india"]), st.integers(1, 4), st.integers(1, 10**4)
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(STEPS)
def test_however_links_move_plans_follow_at_intervals_and_in_the_end(steps: list[tuple[float, str, int, int]]) -> None:
    places = [Place("local", "us"), Place("far", "asia"), Place("far", "india")]
    known: Mapping[Pair, LinkMemory] = {}
    reports: dict[Pair, LinkReport] = {}
    counts = dict.fromkeys(("asia", "india"), 0)
    since, now, changed = None, NOW, [NOW - datetime.timedelta(days=1)]
    last = [(ADOPT_EVERY_S / 2, place, CONFIRMED_BY_PAYLOADS, 700) for place in counts] * 6
    for wait_s, place, payloads, megabits in [*steps, *last]:
        now += datetime.timedelta(seconds=wait_s)
        counts[place] += payloads
        one = LinkReport.parse(told("us", place, counts[place], megabits))
        reports[pair_of(one)] = one
        adoption = adopt(known, learn(known, reports, AUTO, places, now), since, now)
        if plans_of(adoption.links) != plans_of(known):
            assert (now - changed[-1]).total_seconds() >= ADOPT_EVERY_S
            changed.append(now)
        known, since = adoption.links, adoption.since
    assert adoption.wait_s is None
    assert {round(memory.rate_bits_per_second / 7e8) for memory in known.values()} == {1}


def plans_of(links: Mapping[Pair, LinkMemory]) -> dict[Pair, LinkPlan]:
    return {pair: link_plan(pair, memory, AUTO) for pair, memory in links.items()}
