"""What a link does to packets, exactly: the emulator's own code in virtual time."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from tests.unit.linkemu.conftest import Play

pytestmark = pytest.mark.timeout(120)  # the first test compiles the program

MS = 1_000_000  # nanoseconds
S = 1_000_000_000


def _passed(answers: list[list[str]]) -> list[tuple[int, int]]:
    """Serialized and due times of the packets that passed."""
    return [(int(words[1]), int(words[2])) for words in answers if words[0] == "passed"]


@pytest.mark.parametrize("rate_bps", [10_000_000, 99_999_937, 500_000_000, 1_000_000_000, 7_000_000_000])
def test_a_full_link_drains_at_its_rate_to_a_millionth(play: Play, rate_bps: int) -> None:
    num_packets = 10_000
    answers = play([f"set 0 rate_bps={rate_bps} queue_bytes=4294967296", *["packet 0 1500"] * num_packets])
    last_ns = _passed(answers)[-1][0]
    assert last_ns == pytest.approx(num_packets * 12_000 * S / rate_bps, rel=1e-6)


def test_a_packet_arrives_after_its_own_bits_and_the_delay(play: Play) -> None:
    answers = play(["set 0 rate_bps=1000000 delay_us=20000", f"packet {7 * MS} 1000"])
    assert answers[1] == ["passed", str(15 * MS), str(35 * MS)]


def test_without_a_rate_only_the_delay_remains(play: Play) -> None:
    answers = play(["set 0 delay_us=5", *["packet 100 1500"] * 50])
    assert _passed(answers) == [(100, 5_100)] * 50


def test_the_queue_takes_its_bytes_and_not_one_packet_more(play: Play) -> None:
    answers = play(["set 0 rate_bps=8000000 queue_bytes=10500", *["packet 0 1000"] * 12, f"packet {MS} 1000"])
    assert [words[0] for words in answers[1:]] == ["passed"] * 10 + ["queue_full"] * 2 + ["passed"]


def test_a_full_queue_delays_by_its_bytes_at_the_rate(play: Play) -> None:
    answers = play(["set 0 rate_bps=8000000 queue_bytes=50000", *["packet 0 1000"] * 60])
    assert max(due for _, due in _passed(answers)) == 50 * MS


@pytest.mark.parametrize(
    ("settings", "limit_bytes"),
    [
        ("rate_bps=500000000 delay_us=50000", 6_250_000),
        ("rate_bps=1000000000 delay_us=0", 1_250_000),
        ("rate_bps=1000000 delay_us=0", 48_000),
    ],
)
def test_the_queue_is_by_default_one_product_of_rate_and_round_trip(
    play: Play, settings: str, limit_bytes: int
) -> None:
    num_packets = limit_bytes // 1000 + 5
    answers = play([f"set 0 {settings}", *["packet 0 1000"] * num_packets, "backlog 0"])
    assert int(answers[-1][0]) == limit_bytes // 1000 * 1000
    assert answers[-2][0] == "queue_full"


@pytest.mark.parametrize("loss_ppm", [0, 100, 1_000, 10_000, 500_000, 1_000_000])
def test_random_loss_is_as_frequent_as_asked(play: Play, loss_ppm: int) -> None:
    num_packets = 200_000
    answers = play([f"set 0 loss_ppm={loss_ppm}", *["packet 0 100"] * num_packets])
    lost = sum(words[0] == "lost" for words in answers)
    share = loss_ppm / 1e6
    assert abs(lost - num_packets * share) <= 5 * math.sqrt(num_packets * share * (1 - share))


def test_lost_packets_use_no_capacity(play: Play) -> None:
    answers = play(["set 0 rate_bps=8000000 loss_ppm=500000 queue_bytes=10000000", *["packet 0 1000"] * 1000])
    times = _passed(answers)
    assert times[-1][0] == len(times) * MS


def test_bursts_have_the_asked_length_and_share(play: Play) -> None:
    num_packets, enter, leave = 400_000, 0.002, 0.1
    answers = play(
        ["set 0 burst_enter_ppm=2000 burst_exit_ppm=100000 burst_loss_ppm=1000000"] + ["packet 0 100"] * num_packets
    )
    lost = [words[0] == "lost" for words in answers[1:]]
    num_bursts = sum(after and not before for before, after in pairwise([False, *lost]))
    assert sum(lost) / num_packets == pytest.approx(enter / (enter + leave), rel=0.15)
    assert sum(lost) / num_bursts == pytest.approx(1 / leave, rel=0.15)


def test_the_same_seed_loses_the_same_packets_and_another_seed_others(play: Play) -> None:
    lines = ["set 0 loss_ppm=100000 jitter_us=5000", *[f"packet {i * MS} 100" for i in range(500)]]
    assert play(lines, seed=7) == play(lines, seed=7)
    assert play(lines, seed=7) != play(lines, seed=8)


def test_a_policer_lets_its_burst_pass_and_then_its_rate_without_queueing(play: Play) -> None:
    settings = "set 0 policer_bps=8000000 policer_burst_bytes=20000"
    steady = [f"packet {i * MS // 2} 1000" for i in range(1, 2001)]
    after_a_pause = [f"packet {100 * S} 1000"] * 30
    answers = play([settings, *["packet 0 1000"] * 30, *steady, *after_a_pause])
    verdicts = [words[0] for words in answers[1:]]
    assert verdicts[:30] == ["passed"] * 20 + ["policed"] * 10
    assert verdicts[30:-30].count("passed") == 1000
    assert verdicts[-30:] == ["passed"] * 20 + ["policed"] * 10
    assert all(serialized == due for serialized, due in _passed(answers))


@pytest.mark.parametrize("jitter_us", [500, 5_000, 50_000])
def test_jitter_stays_in_its_range_fills_it_and_keeps_the_order(play: Play, jitter_us: int) -> None:
    spacing_ns = jitter_us * 50
    lines = [f"packet {S + i * spacing_ns} 100" for i in range(5_000)]
    times = _passed(play([f"set 0 delay_us=1000 jitter_us={jitter_us}", *lines]))
    extra_us = [(due - sent) / 1000 - 1000 for sent, due in times]
    assert 0 <= min(extra_us) < 0.1 * jitter_us
    assert 0.9 * jitter_us < max(extra_us) <= jitter_us
    assert all(before <= after for (_, before), (_, after) in pairwise(times))


def test_reordering_jitter_overtakes_and_leaves_in_the_order_of_arrival_at_the_far_end(play: Play) -> None:
    lines = [f"packet {i * 10_000} 100" for i in range(2_000)]
    answers = play(["set 0 jitter_us=1000 reorder=1", *lines, f"drain {S}"])
    out = [tuple(map(int, pair.split(":"))) for pair in answers[-1][1:]]
    numbers, dues = [number for number, _ in out], [due for _, due in out]
    assert sorted(numbers) == list(range(2_000))
    assert numbers != sorted(numbers)
    assert dues == sorted(dues)


@pytest.mark.parametrize("cross_bps", [1_000_000, 4_000_000, 7_600_000])
def test_cross_traffic_takes_its_share_of_a_busy_link(play: Play, cross_bps: int) -> None:
    seconds = 20
    lines = [f"packet {i * MS} 1000" for i in range(seconds * 1000)]
    answers = play([f"set 0 rate_bps=8000000 queue_bytes=50000 cross_bps={cross_bps}", *lines])
    warm_s = 2  # the queue is first filled by our packets alone
    sent_bits = sum(8_000 for _, due in _passed(answers) if warm_s * S < due <= seconds * S)
    assert sent_bits / (seconds - warm_s) == pytest.approx(8_000_000 - cross_bps, rel=0.01)


def test_cross_traffic_that_comes_and_goes_takes_its_share_in_turn(play: Play) -> None:
    lines = [f"packet {i * MS} 1000" for i in range(4_000)]
    shape = "set 0 rate_bps=8000000 queue_bytes=5000 cross_bps=6000000 cross_on_us=1000000 cross_off_us=1000000"
    dues = [due for _, due in _passed(play([shape, *lines]))]
    per_second = [sum(s * S < due <= (s + 1) * S for due in dues) for s in range(4)]
    assert per_second == [pytest.approx(n, abs=8) for n in (250, 1000, 250, 1000)]


def test_cross_traffic_alone_never_fills_the_queue(play: Play) -> None:
    answers = play(["set 0 rate_bps=8000000 cross_bps=7900000", f"backlog {3600 * S}", f"packet {3600 * S} 1000"])
    assert answers[1] == ["0"]
    assert answers[2] == ["passed", str(3600 * S + MS), str(3600 * S + MS)]


def test_a_slower_rate_stretches_what_is_queued_and_spares_what_is_in_flight(play: Play) -> None:
    lines = [*["packet 0 1000"] * 10, f"set {5 * MS} rate_bps=4000000", f"drain {10 * S}"]
    answers = play(["set 0 rate_bps=8000000 delay_us=100000", *lines])
    dues = [int(pair.split(":")[1]) / MS for pair in answers[-1][1:]]
    assert dues == [101, 102, 103, 104, 105, 107, 109, 111, 113, 115]


def test_a_rate_taken_away_lets_the_queue_go_at_once_behind_what_is_in_flight(play: Play) -> None:
    lines = [*["packet 0 1000"] * 4, f"set {2 * MS} rate_bps=0 delay_us=0", f"drain {10 * S}"]
    answers = play(["set 0 rate_bps=8000000 delay_us=50000", *lines])
    assert answers[-1][1:] == [f"0:{51 * MS}", f"1:{52 * MS}", f"2:{52 * MS}", f"3:{52 * MS}"]


def test_a_shorter_delay_overtakes_nothing(play: Play) -> None:
    answers = play(
        ["set 0 delay_us=50000", "packet 0 100", f"set {MS} delay_us=1000", f"packet {MS} 100", f"drain {S}"]
    )
    assert answers[-1][1:] == [f"0:{50 * MS}", f"1:{50 * MS}"]


def test_a_change_loses_nothing_that_was_admitted(play: Play) -> None:
    changes = [
        "rate_bps=2000000",
        "jitter_us=3000",
        "reorder=1",
        "rate_bps=0",
        "delay_us=1",
        "rate_bps=9000000",
        "reorder=0",
    ]
    lines = ["set 0 rate_bps=8000000 delay_us=7000 queue_bytes=1000000"]
    for step, change in enumerate(changes):
        lines += [f"packet {step * MS} 1000"] * 20 + [f"set {step * MS} {change}"]
    answers = play([*lines, f"drain {100 * S}"])
    assert sorted(int(pair.split(":")[0]) for pair in answers[-1][1:]) == list(range(20 * len(changes)))


def test_packets_of_all_links_leave_in_the_order_they_are_due(play: Play) -> None:
    random = Random(5)  # noqa: S311 the same traffic every time
    lines, now_ns, drains = [f"use 0 {link}" for link in range(8)], 0, []
    for link in range(8):
        lines += [f"use 0 {link}", f"set 0 rate_bps=1000000 delay_us={random.randrange(20_000)} queue_bytes=1000000"]
    for _ in range(400):
        now_ns += random.randrange(MS)
        lines += [f"use {now_ns} {random.randrange(8)}", f"packet {now_ns} {random.randrange(20, 1500)}"]
        if random.random() < 0.1:
            drains.append(len(lines))
            lines.append(f"drain {now_ns}")
    answers = play([*lines, f"drain {100 * S}"])
    out = [pair.split(":") for index in (*drains, -1) for pair in answers[index][1:]]
    dues = [int(due) for _, due in out]
    assert sorted(int(number) for number, _ in out) == list(range(400))
    assert dues == sorted(dues)


@pytest.mark.parametrize(
    "settings",
    [
        "rate_bps=100000000001",
        "rate_bps=999",
        "delay_us=60000001",
        "jitter_us=60000001",
        "reorder=2",
        "loss_ppm=1000001",
        "burst_enter_ppm=1",
        "burst_enter_ppm=1 burst_exit_ppm=1000001 burst_loss_ppm=1",
        "queue_bytes=4294967297",
        "policer_bps=1000",
        "policer_burst_bytes=1000",
        "cross_bps=1000",
        "rate_bps=1000000 cross_bps=1000000",
        "rate_bps=1000000 cross_bps=1000 cross_on_us=5000",
        "rate_bps=1000000 cross_bps=1000 cross_on_us=5000 cross_off_us=999",
        "colour=3",
        "rate_bps=-1",
        "rate_bps=1e6",
        "rate_bps=",
        "rate_bps",
    ],
)
def test_a_shape_that_makes_no_sense_is_refused_and_changes_nothing(play: Play, settings: str) -> None:
    answers = play([f"set 0 {settings}", "packet 5 1000"])
    assert answers[0][0] == "refused"
    assert answers[1] == ["passed", "5", "5"]
