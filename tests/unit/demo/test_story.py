"""When an act of the demo is over: only when its facts are there, and what it then says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.demo.scenes import SUM, ended, link, planned, scene, steps, with_member
from tools.demo import story
from tools.demo.facts import Delta, Replacement, Scene
from tools.demo.nodes import Nodes
from tools.demo.planes import Planes
from tools.demo.story import FAR, FULL, SHORT, THIN, Pace

WHY = Replacement(f"demo-{THIN}-0", "LeaseExpired", "its lease was not renewed for 12 s")

SLOW_LINKS = (link(FAR), link(THIN, capacity_bits_per_second=1_100_000))
SLOW_PLAN = planned(revision=6, streams=8, message="measured 0.9 Mbit/s, 90 ms, 10000 ppm loss; tight")


def test_a_start_is_over_when_the_operator_says_so_and_a_step_was_trained() -> None:
    assert story.serving(Scene(), scene()) is not None
    assert story.serving(Scene(), scene(ready=False)) is None
    assert story.serving(Scene(), scene(steps=())) is None


def test_learning_waits_for_steps_and_for_plans_that_rest_on_measured_links() -> None:
    assert story.learning(FULL, Scene(), scene()) is not None
    assert story.learning(FULL, Scene(), scene(steps=steps(FULL.steps - 1))) is None
    assert story.learning(FULL, Scene(), scene(links=(link(FAR), link(THIN, capacity_bits_per_second=None)))) is None
    assumed = {THIN: planned(message="not measured yet, assumed 1 Gbit/s"), FAR: planned()}
    assert story.learning(FULL, Scene(), scene(plans=assumed)) is None


def test_a_worse_link_is_adapted_to_by_a_new_plan_with_its_reason() -> None:
    before = scene()
    now = scene(links=SLOW_LINKS, plans={THIN: SLOW_PLAN, FAR: planned()})
    said = story.adapted(before, now)
    assert said is not None
    assert "plan 5 → 6" in said
    assert "streams start at 4 → 8" in said
    assert "measured 0.9 Mbit/s" in said


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(scene(plans={THIN: SLOW_PLAN}), id="the sender measured nothing slow"),
        pytest.param(scene(links=SLOW_LINKS, plans={THIN: planned(revision=6)}), id="another plan, for another reason"),
        pytest.param(scene(links=SLOW_LINKS), id="the plan is the old one"),
        pytest.param(scene(links=()), id="the link is not seen"),
    ],
)
def test_a_worse_link_is_not_adapted_to(now: Scene) -> None:
    assert story.adapted(scene(), now) is None


def test_a_hung_rollout_is_replaced_by_another_pod() -> None:
    now = with_member(scene(replacements_total=1, replacements=(WHY,)), THIN, uid="another", seq=0)
    said = story.replaced(scene(), now)
    assert said is not None
    assert "LeaseExpired" in said
    assert "not renewed" in said
    assert story.replaced(scene(), scene(replacements_total=1, replacements=(WHY,))) is None, (
        "still the old pod's lease"
    )
    assert story.replaced(scene(), scene()) is None


def test_a_successor_has_caught_up_when_one_merged_delta_brought_it_and_it_follows() -> None:
    before = scene(seq=40)
    merged = Delta(0, 44, "fast", 900_000)
    now = with_member(scene(seq=46, deltas=(*scene().deltas, merged)), THIN, seq=44)
    said = story.caught_up(before, now)
    assert said is not None
    assert "version 0 to 44 with one merged delta of 900 kB" in said
    assert story.caught_up(before, replace(now, deltas=scene().deltas)) is None
    assert story.caught_up(before, replace(now, deltas=(Delta(0, 12, "fast", 1),))) is None, "one of an earlier joiner"
    assert story.caught_up(before, with_member(now, THIN, seq=20)) is None
    assert story.caught_up(before, with_member(now, THIN, seq=44, state="CatchingUp")) is None


def test_a_region_that_is_away_is_held_and_not_replaced() -> None:
    lost = {FAR: "no answer for 5 s"}
    said = story.held(scene(), scene(lost=lost))
    assert said is not None
    assert "no answer" in said
    assert story.held(scene(), scene()) is None
    assert story.held(scene(), scene(lost=lost, replacements_total=1)) is None


def test_a_region_is_back_when_the_same_pod_follows() -> None:
    before = scene(lost={FAR: "away"})
    back = with_member(scene(seq=50), FAR, seq=49)
    assert story.returned(before, back) is not None
    assert story.returned(before, replace(back, lost={FAR: "away"})) is None
    assert story.returned(before, with_member(scene(seq=50), FAR, seq=49, uid="another")) is None
    assert story.returned(before, with_member(scene(seq=50), FAR, seq=40)) is None
    assert story.returned(before, with_member(scene(seq=90), FAR, seq=49)) is None, "far behind is not back"


def test_the_reward_must_rise_by_what_was_promised() -> None:
    pace = Pace(rise=0.15)
    assert story.risen(pace, Scene(), scene(steps=steps(40, 0.1, 0.6))) is not None
    assert story.risen(pace, Scene(), scene(steps=steps(40, 0.1, 0.2))) is None
    assert story.risen(pace, Scene(), scene(steps=steps(8, 0.1, 0.9))) is None


def test_the_proof_needs_every_sum_of_the_last_version_and_all_equal() -> None:
    whole = ended()
    said = story.proven(Scene(), whole)
    assert said is not None
    assert "3 rollouts" in said
    missing = {name: told for name, told in whole.sums.items() if FAR not in name}
    assert story.proven(Scene(), replace(whole, sums=missing)) is None
    old = {**whole.sums, f"demo-{FAR}-0": (39, SUM)}
    assert story.proven(Scene(), replace(whole, sums=old)) is None
    assert story.differing(replace(whole, sums=old)) is None, "another version may have other bits"


def test_other_bits_under_the_same_version_are_told_by_name() -> None:
    whole = ended()
    wrong = replace(whole, sums={**whole.sums, f"demo-{FAR}-0": (40, "00" * 32)})
    assert story.proven(Scene(), wrong) is None
    assert "demo-ap-south-0" in (story.differing(wrong) or "")
    assert story.differing(whole) is None


@pytest.mark.parametrize("place", [Nodes, Planes])
def test_every_action_of_the_story_is_one_of_the_place(place: type[Nodes] | type[Planes]) -> None:
    beats = story.story(FULL, shaped=place.shaped)
    assert {one.action for one in beats if one.action} <= set(dir(place))
    assert ("degrade" in {one.act for one in beats}) == place.shaped
    assert beats[-1].act == "proof"


def test_the_short_form_has_the_same_acts() -> None:
    acts = [[one.act for one in story.story(pace, shaped=True)] for pace in (FULL, SHORT)]
    assert acts[0] == acts[1]


@pytest.mark.parametrize(
    ("message", "rate"),
    [("measured 0.834 Mbit/s, 30 ms", 834_000), ("measured 1.2 Gbit/s", 1.2e9), ("measured 1e+03 Mbit/s", 1e9)],
)
def test_a_plans_rate_is_read_out_of_its_reason(message: str, rate: float) -> None:
    assert story.planned_rate(planned(message=message)) == pytest.approx(rate)
    assert story.planned_rate(planned(message="not measured yet, assumed 1 Gbit/s")) is None


def test_a_shape_is_told_in_words() -> None:
    assert story.described("90ms/2M/1%") == "90 ms, 2 Mbit/s, 1% loss"
    assert story.described("30ms/40M/0%") == "30 ms, 40 Mbit/s"
