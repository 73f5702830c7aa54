"""The live view as lines of text, and the one line of progress where nobody watches a terminal. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tools.demo.facts import Delta, Link, Member, Scene
from tools.demo.story import Beat, first_reward, last_reward
from tools.demo.words import NOTHING, clock, kib, mbit, millis, percent, plain, seconds, size

BARS = "▁▂▃▄▅▆▇█"
MIN_WIDTH = 60
BOLD, DIM, GREEN, YELLOW, RED, OFF = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
_STYLE = re.compile(r"\x1b\[\d+m")
LAGGING = 3


@dataclass(frozen=True)
class Outcome:
    """A beat that is over, and what was seen."""

    act: str
    says: str
    seen: str
    at_s: float
    took_s: float


@dataclass(frozen=True)
class View:
    """What there is to show."""

    scene: Scene
    beat: Beat
    number: int
    of: int
    elapsed_s: float
    full_bytes: int
    """Of the weights, as they travel without a delta."""
    outcomes: Sequence[Outcome] = field(default_factory=tuple)


def screen(view: View, width: int, height: int) -> list[str]:
    """One screen, styled, not wider and not higher than the terminal."""
    width = max(width, MIN_WIDTH)
    scene = view.scene
    lines = [
        f"{BOLD}SyncGroup{OFF}  {clock(view.elapsed_s)}  act {view.number} of {view.of}: {BOLD}{view.beat.act}{OFF}",
        *_wrapped(view.beat.says, width, f"{YELLOW}▶{OFF} "),
        f"{DIM}  waiting for {view.beat.waits_for}{OFF}",
        "",
        *_members(scene),
        "",
        *_links(scene, width),
        "",
        *_weights(view),
        *_reward(scene, width),
        "",
    ]
    room = max(height - len(lines) - 1, 2)
    lines += _outcomes(view.outcomes, width, room)
    return [_clipped(line, width) for line in lines[: max(height - 1, 1)]]


def progress(view: View) -> str:
    """One plain line."""
    scene = view.scene
    lags = [plain(scene.lag(one)) for one in scene.rollouts]
    newest = newest_delta(scene)
    payload = "" if newest is None else f", payload {size(newest.size_bytes)} of {size(view.full_bytes)}"
    link_texts = [f"{one.to_region} {one.streams} x {kib(one.bucket_bytes)} {one.codec}" for one in scene.links]
    reward = f", reward {last_reward(scene.steps):.2f}" if scene.steps else ""
    return (
        f"  {clock(view.elapsed_s)} version {plain(scene.seq)}, lag {'/'.join(lags) or NOTHING}{payload}"
        f"{', ' if link_texts else ''}{', '.join(link_texts)}{reward}"
    )


def newest_delta(scene: Scene) -> Delta | None:
    """The smallest form of the newest version that a link would carry."""
    single = [one for one in scene.deltas if not one.merged]
    if not single:
        return None
    target = max(one.target for one in single)
    return min((one for one in single if one.target == target), key=lambda one: one.size_bytes)


def spark(values: Sequence[float], width: int) -> str:
    """A curve of one line: means of equal parts, from 0 to 1."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(part * len(values) / count) for part in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    return "".join(BARS[min(int(max(mean, 0.0) * len(BARS)), len(BARS) - 1)] for mean in means)


def _members(scene: Scene) -> list[str]:
    rows: list[tuple[str, ...]] = [("MEMBER", "REGION", "STATE", "VERSION", "LAG", "SYNC", "PAUSE", "TOKENS/S")]
    rows += [_member(scene, one) for one in sorted(scene.members, key=lambda one: (not one.is_trainer, one.region))]
    lines = _table(rows, ">3")
    for number, one in enumerate(sorted(scene.members, key=lambda one: (not one.is_trainer, one.region)), 1):
        lag = scene.lag(one)
        colour = RED if one.region in scene.lost or one.state == "Poisoned" else GREEN
        if colour is GREEN and (one.state != "Serving" or (lag or 0) > LAGGING):
            colour = YELLOW
        lines[number] = f"{colour}{lines[number]}{OFF}"
    return [f"{DIM}{lines[0]}{OFF}", *lines[1:]]


def _member(scene: Scene, one: Member) -> tuple[str, ...]:
    state = "held: cut off" if one.region in scene.lost else one.state
    if one.is_trainer:
        return one.name, one.region, "trains", plain(one.seq), "", "", "", ""
    pause = NOTHING if one.pause_millis is None else f"{one.pause_millis} ms"
    return (
        one.name, one.region, state, plain(one.seq), plain(scene.lag(one)), seconds(one.sync_millis), pause,
        plain(one.tokens_per_second),
    )  # fmt: skip


def _links(scene: Scene, width: int) -> list[str]:
    rows: list[tuple[str, ...]] = [("LINK", "CAPACITY", "RTT", "LOST", "STREAMS", "BUCKET", "CODEC")]
    rows += [_link(one) for one in scene.links]
    table = _table(rows, ">1")
    lines = [f"{DIM}{table[0]}{OFF}"]
    for one, text in zip(scene.links, table[1:], strict=True):
        lines.append(text)
        planned = scene.plans.get(one.to_region)
        if one.message:
            lines += [f"{DIM}{line}{OFF}" for line in _wrapped(one.message, width, "    ")]
        if planned is not None and planned.message:
            lines += [
                f"{DIM}{line}{OFF}" for line in _wrapped(f"plan {planned.revision}: {planned.message}", width, "    ")
            ]
    return lines


def _link(one: Link) -> tuple[str, ...]:
    return (
        f"→ {one.to_region}", mbit(one.capacity_bits_per_second), millis(one.rtt_micros), percent(one.loss_ppm),
        str(one.streams), kib(one.bucket_bytes), one.codec,
    )  # fmt: skip


def _weights(view: View) -> list[str]:
    newest = newest_delta(view.scene)
    if newest is None:
        return [f"WEIGHTS  {size(view.full_bytes)} in full"]
    share = 100 * newest.size_bytes / view.full_bytes
    return [
        f"WEIGHTS  {size(view.full_bytes)} in full; version {newest.target} is {BOLD}{size(newest.size_bytes)}{OFF}"
        f" ({share:.0f} %, {newest.codec}); {size(view.scene.sent_bytes)} left the trainer so far"
    ]


def _reward(scene: Scene, width: int) -> list[str]:
    if not scene.steps:
        return ["REWARD   no step yet"]
    first, last = first_reward(scene.steps), last_reward(scene.steps)
    curve = spark([one.reward for one in scene.steps], max(width - 50, 10))
    step = scene.steps[-1]
    return [
        f"REWARD   {BOLD}{last:.2f}{OFF} {GREEN}{curve}{OFF} was {first:.2f}; step {step.step}, {step.workers} workers"
    ]


def _outcomes(outcomes: Sequence[Outcome], width: int, room: int) -> list[str]:
    lines: list[str] = []
    for one in reversed(outcomes):
        text = _wrapped(f"{one.act}: {one.seen}", width, f"{GREEN}✓{OFF} ")
        if len(lines) + len(text) > room:
            break
        lines = [*text, *lines]
    return lines


def _table(rows: Sequence[tuple[str, ...]], right_from: str) -> list[str]:
    """Columns side by side; those from `>n` on to the right."""
    start = int(right_from[1:])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            text.rjust(width) if column >= start else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _wrapped(text: str, width: int, lead: str) -> list[str]:
    indent = " " * len(_STYLE.sub("", lead))
    parts = textwrap.wrap(text, max(width - len(indent), 20)) or [""]
    return [f"{lead if number == 0 else indent}{part}" for number, part in enumerate(parts)]


def _clipped(line: str, width: int) -> str:
    """Not wider than the terminal; a style that was begun is ended."""
    shown, kept, position = 0, [], 0
    while position < len(line):
        match = _STYLE.match(line, position)
        if match is not None:
            kept.append(match[0])
            position = match.end()
            continue
        if shown == width:
            break
        kept.append(line[position])
        shown, position = shown + 1, position + 1
    return "".join(kept) + (OFF if _STYLE.search(line) else "")
