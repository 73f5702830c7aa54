"""Scenes for the demo's tests: a group of three rollouts that is well, and ways to change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tools.demo.facts import Delta, Ended, Link, Member, PlannedLink, Scene, Step
from tools.demo.story import FAR, HUB, THIN

SUM = "ab" * 32


def member(region: str, seq: int = 40, **changes: Any) -> Member:
    """A rollout that serves."""
    made = Member(
        f"demo-{region}-0", "Rollout", region, f"uid-{region}", "Serving", seq, 250, 4, 900, "Passed"
    )  # fmt: skip
    return replace(made, **changes)


def link(region: str, **changes: Any) -> Link:
    """A link that was measured."""
    made = Link(region, 4, 1 << 18, "Tight", 30, 18_000_000, 20_000_000, 30_000, 0, "4 streams carry 18 Mbit/s: hold")
    return replace(made, **changes)


def planned(**changes: Any) -> PlannedLink:
    """What the plan has of a link."""
    return replace(PlannedLink(5, "Tight", 4, 1 << 18, "measured 20 Mbit/s, 30 ms, 0 ppm loss; tight"), **changes)


def steps(count: int, first: float = 0.1, last: float = 0.6) -> tuple[Step, ...]:
    """A reward that rises evenly."""
    rise = (last - first) / max(count - 1, 1)
    return tuple(Step(number + 1, first + rise * number, 1.0, 400, 0.8, 3) for number in range(count))


def scene(**changes: Any) -> Scene:
    """Everybody serves version 40."""
    made = Scene(
        at_s=60.0, ready=True, ready_message="3 of 3 rollouts serve", seq=40, plan_revision=5,
        members=(Member("demo-trainer-0", "Trainer", HUB, "uid-t", "Serving", 40), *map(member, (HUB, THIN, FAR))),
        links=(link(FAR), link(THIN)), plans={THIN: planned(), FAR: planned()}, steps=steps(40),
        deltas=tuple(Delta(number, number + 1, codec, size) for number in range(40)
                     for codec, size in (("fast", 300_000), ("tight", 200_000))),
        sent_bytes=24_000_000,
    )  # fmt: skip
    return replace(made, **changes)


def with_member(base: Scene, region: str, **changes: Any) -> Scene:
    """The same with another rollout in a region."""
    kept = tuple(one for one in base.members if one.is_trainer or one.region != region)
    return replace(base, members=(*kept, member(region, **changes)))


def ended(**changes: Any) -> Scene:
    """Training is over, and everybody told the same sum."""
    base = scene(ended=Ended(40, "cd" * 16, SUM))
    return replace(base, sums={one.name: (40, SUM) for one in base.rollouts}, **changes)
