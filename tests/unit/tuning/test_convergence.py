"""The controller on simulated links: what it loses against fixed counts, where it rests, how it takes changes."""

from __future__ import annotations

import itertools
import math
from statistics import fmean

import pytest

from sync_runtime.tuning.controller import LinkController
from tests.support.linksim import Path, Payload, SimulatedLink, bounds, drive, fixed, scaled

LINKS = {
    "20 ms, 1 G": Path(1000, 0.02),
    "100 ms, 500 M, 0.1 %": Path(500, 0.1, 0.001),
    "250 ms, 200 M, 0.1 %": Path(200, 0.25, 0.001),
    "150 ms, 300 M, 1 %": Path(300, 0.15, 0.01),
    "60 ms, 100 M, shallow queue": Path(100, 0.06, queue_bdp=0.15, excess_cost=0.01),
    "100 ms, 500 M, 0.1 %, cubic": Path(500, 0.1, 0.001, "cubic"),
    "100 ms, 500 M, small buffers": Path(500, 0.1, send_buffer_bytes=2**20),
}
SLOW_TO_FIND = ("150 ms, 300 M, 1 %",)
"""BBR is not driven up from the seed, so that heavy loss is answered by trials alone, step by step."""
FIXED = (1, 4, 16, 64)
SEEDS = range(3)
links = pytest.mark.parametrize("name", LINKS)
pytestmark = pytest.mark.timeout(20)  # simulations of thousands of windows


def seconds(run: list[Payload]) -> float:
    return sum(payload.duration_s for payload in run)


def moves(run: list[Payload]) -> int:
    return sum(first.streams != second.streams for first, second in itertools.pairwise(run))


def sending_until(word: str, run: list[Payload]) -> float:
    """Seconds of sending until a reason has the word in it."""
    sent_s = 0.0
    for payload in run:
        for at_s, decision in payload.decisions:
            if word in decision.reason:
                return sent_s + at_s
        sent_s += payload.duration_s
    return math.inf


@links
def test_sixty_payloads_from_nothing_cost_at_most_a_tenth_more_than_with_the_best_fixed_count(name: str) -> None:
    path = LINKS[name]
    best = min(fmean(seconds(fixed(path, streams, 60, seed)) for seed in SEEDS) for streams in FIXED)
    ours = fmean(seconds(drive(LinkController(None, bounds(4)), SimulatedLink(path, seed), 60)) for seed in SEEDS)
    assert ours <= (1.25 if name in SLOW_TO_FIND else 1.10) * best


@links
def test_once_settled_it_loses_at_most_four_percent(name: str) -> None:
    path = LINKS[name]
    controllers = [LinkController(None, bounds(4)) for _ in SEEDS]
    late = []
    for seed, controller in zip(SEEDS, controllers, strict=True):
        late.append(seconds(drive(controller, SimulatedLink(path, seed), 60)[30:]))
    best = min(fmean(seconds(fixed(path, streams, 60, seed)[30:]) for seed in SEEDS) for streams in FIXED)
    assert fmean(late) <= (1.10 if name in SLOW_TO_FIND else 1.04) * best


def test_no_fixed_count_is_good_everywhere() -> None:
    worst = {}
    for streams in FIXED:
        worst[streams] = max(path.rate(path.best_streams()) / path.rate(streams) for path in LINKS.values())
    assert min(worst.values()) > 1.10


@links
def test_it_comes_to_rest_near_the_smallest_count_on_the_plateau(name: str) -> None:
    path = LINKS[name]
    for seed in SEEDS:
        controller = LinkController(None, bounds(4))
        run = drive(controller, SimulatedLink(path, seed), 90)
        rests_at = sorted(payload.streams for payload in run[60:])[15]
        assert path.rate(rests_at) >= 0.93 * path.rate(path.best_streams())
        assert rests_at <= max(2 * path.best_streams(), 4)


@links
def test_it_does_not_oscillate(name: str) -> None:
    for seed in SEEDS:
        run = drive(LinkController(None, bounds(4)), SimulatedLink(LINKS[name], seed), 150)
        assert moves(run[100:]) <= 12  # two trials and a step at most, of fifty payloads


def test_a_noisy_link_is_not_walked_away_from() -> None:
    path = LINKS["100 ms, 500 M, 0.1 %"]
    for seed in range(6):
        run = drive(LinkController(None, bounds(8)), SimulatedLink(path, seed, noise=0.12), 80)
        assert fmean(path.rate(payload.streams) for payload in run[20:]) >= 0.93 * path.rate(16)


@pytest.mark.parametrize("name", ["100 ms, 500 M, 0.1 %", "250 ms, 200 M, 0.1 %", "60 ms, 100 M, shallow queue"])
def test_a_rate_that_falls_to_a_third_is_noticed_within_fifteen_seconds_of_payloads(name: str) -> None:
    path = LINKS[name]
    for seed in range(6):
        controller = LinkController(None, bounds(4))
        link = SimulatedLink(path, seed)
        drive(controller, link, 30)
        link.steps.append((link.now_s, scaled(path, 0.3)))
        assert sending_until("fell", drive(controller, link, 4)) <= 15
        settled = drive(controller, link, 8)
        assert fmean(payload.rate for payload in settled) >= 0.85 * link.path.capacity


def test_a_rate_that_rises_is_used() -> None:
    slow, quick = Path(200, 0.1, 0.001), Path(800, 0.1, 0.001)
    for seed in range(6):
        controller = LinkController(None, bounds(4))
        link = SimulatedLink(slow, seed)
        before = drive(controller, link, 30)[-1]
        link.steps.append((link.now_s, quick))
        after = drive(controller, link, 30, size_bytes=150_000_000)  # 60 MB would be a small payload there
        assert after[-1].streams > before.streams
        assert fmean(quick.rate(payload.streams) for payload in after[-10:]) >= 0.9 * quick.rate(32)


def test_streams_that_each_became_slower_are_joined_by_others() -> None:
    clean, lossy = Path(500, 0.1, congestion_control="cubic"), Path(500, 0.1, 0.0005, congestion_control="cubic")
    for seed in range(6):
        controller = LinkController(None, bounds(4))
        link = SimulatedLink(clean, seed)
        drive(controller, link, 30)
        link.steps.append((link.now_s, lossy))
        after = drive(controller, link, 20)
        assert fmean(lossy.rate(payload.streams) for payload in after[-8:]) >= 0.9 * lossy.rate(64)


def test_one_payload_hit_by_an_outage_changes_nothing() -> None:
    path = LINKS["100 ms, 500 M, 0.1 %"]
    controller = LinkController(None, bounds(4))
    link = SimulatedLink(path, 3)
    drive(controller, link, 20)
    before = controller.decision.streams
    *_, sample = link.send(60_000_000, controller)
    hit = type(sample)(sample.size_bytes, 1.6 * sample.duration_s, sample.streams, rtt_s=0.1, min_rtt_s=0.1)
    decision = controller.observe(hit, link.now_s)
    assert decision is None or "search again" not in decision.reason
    assert controller.decision.streams == before or controller.phase == "Trying"


def test_a_restarted_link_goes_on_where_it_was() -> None:
    path = LINKS["100 ms, 500 M, 0.1 %, cubic"]
    first = LinkController(None, bounds(4))
    drive(first, SimulatedLink(path, 1), 30)
    again = LinkController(first.state, bounds(4))
    assert again.decision.streams == first.state.streams
    assert again.phase == "Holding"
    assert again.decision.pacing_bits_per_second == pytest.approx(
        8 * 1.25 * first.state.capacity_bytes_per_second, rel=1e-3
    )
    run = drive(again, SimulatedLink(path, 2), 3)
    assert path.rate(run[0].streams) >= 0.97 * path.rate(64)


def test_inside_one_endless_payload_it_tunes_by_windows() -> None:
    path = LINKS["100 ms, 500 M, 0.1 %, cubic"]
    controller = LinkController(None, bounds(2))
    drive(controller, SimulatedLink(path, 1), 1, size_bytes=4_000_000_000)
    assert path.rate(controller.state.streams) >= 0.9 * path.rate(64)
