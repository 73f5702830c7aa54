"""The acts of the demo: what is done, what must then be seen, and how long that may take. Pure.

A beat is over when its facts are seen, never after a fixed time. One whose facts are not seen in time ends the demo
with a sentence that says what was waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.demo.facts import Delta, Link, PlannedLink, Scene, Step
from tools.demo.words import kib, mbit, millis, percent, size

HUB, THIN, FAR = "us-east", "eu-west", "ap-south"
SHAPES = {(HUB, THIN): "30ms/40M/0%", (HUB, FAR): "180ms/20M/0%", (THIN, FAR): "130ms/20M/0%"}
WORSE = "90ms/1M/1%"
SLOW_BITS_PER_SECOND = 4e6
"""A link that is measured at this or less was seen to be degraded: it carries a quarter of that."""
_MEASURED = re.compile(r"measured ([0-9.e+]+) (G|M)bit/s")
WINDOW = 10
NEAR_VERSIONS = 6
"""A member that is no further behind follows."""
Until = Callable[[Scene, Scene], str | None]
"""The scene when the beat began and the one now; what was seen, in a sentence, or None: not yet."""


@dataclass(frozen=True)
class Beat:
    """One thing that happens and what must follow."""

    act: str
    says: str
    """What is being done, for whoever watches."""
    waits_for: str
    until: Until
    limit_s: float
    action: str | None = None
    """A method of the stage."""
    ends_act: bool = True
    """Whether its outcome belongs into the list of what was seen."""


@dataclass(frozen=True)
class Pace:
    """How long the acts are."""

    steps: int = 25
    """Of training before anything is broken."""
    rise: float = 0.15
    """By which the mean reward must have risen at the end."""
    rise_limit_s: float = 120.0


FULL = Pace()
SHORT = Pace(steps=5, rise=0.0, rise_limit_s=30.0)


def story(pace: Pace, *, shaped: bool) -> list[Beat]:
    """All beats in order. Without `shaped` links none can be made worse."""
    beats = [
        Beat("start", "a trainer and a rollout in every region start", "every member to serve", serving, 150.0),
        Beat(
            "learn", "reinforcement learning over three regions", f"{pace.steps} steps and measured links",
            lambda before, now: learning(pace, before, now), 120.0,
        ),
    ]  # fmt: skip
    if shaped:
        beats += [
            Beat(
                "degrade", f"the link {HUB} ↔ {THIN} becomes {described(WORSE)}", "a plan that fits it", adapted, 120.0,
                action="degrade",
            ),
            Beat("mend", f"the link is {described(SHAPES[HUB, THIN])} again", "nothing", at_once, 10.0,
                 action="restore", ends_act=False),
        ]  # fmt: skip
    return [
        *beats,
        Beat(
            "kill", f"the rollout in {THIN} hangs: every process of its pod is stopped, none says goodbye",
            "its lease to expire", replaced, 120.0, action="freeze",
        ),
        Beat("catch up", "its successor starts from version 0", "one merged delta", caught_up, 120.0),
        Beat("cut", f"the region {FAR} is cut off from everything", "its members to be held", held, 60.0, action="cut"),
        Beat("return", f"the region {FAR} is back", "the same pod to follow again", returned, 90.0, action="mend"),
        Beat(
            "reward", "training goes on", "a reward that has risen", lambda before, now: risen(pace, before, now),
            pace.rise_limit_s,
        ),
        Beat("proof", "training ends; everybody tells the SHA-256 of its weights", "all sums", proven, 90.0,
             action="stop"),
    ]  # fmt: skip


# --- what must be seen ------------------------------------------------------------------------------------------------


def at_once(_before: Scene, _now: Scene) -> str:
    """Nothing to wait for."""
    return "done"


def serving(_before: Scene, now: Scene) -> str | None:
    """The operator calls the group ready, and versions move."""
    if not now.ready or not now.steps:
        return None
    return f"{len(now.rollouts)} rollouts serve; {now.ready_message}"


def learning(pace: Pace, _before: Scene, now: Scene) -> str | None:
    """Enough steps for a first picture, and every link was measured by real payloads."""
    measured = [link for link in now.links if link.capacity_bits_per_second]
    wanted = {one.region for one in now.rollouts if one.region != HUB}
    planned = all(region in now.plans and "not measured" not in now.plans[region].message for region in wanted)
    if len(now.steps) < pace.steps or not wanted <= {link.to_region for link in measured} or not planned:
        return None
    return f"{now.steps[-1].step} steps, version {now.seq}; plan {now.plan_revision} rests on measured links"


def adapted(before: Scene, now: Scene) -> str | None:
    """The sender measured a slower link, and the operator made another plan for it."""
    old, new = before.link(THIN), now.link(THIN)
    was, planned = before.plans.get(THIN), now.plans.get(THIN)
    if old is None or new is None or was is None or planned is None:
        return None
    rates = new.capacity_bits_per_second, planned_rate(planned)
    if any(rate is None or rate > SLOW_BITS_PER_SECOND for rate in rates) or planned.revision <= was.revision:
        return None
    return (
        f"the sender: {new.message}, {old.streams} → {new.streams} streams; "
        f"plan {was.revision} → {planned.revision}: {change(was, planned)}; {planned.message}"
    )


def replaced(before: Scene, now: Scene) -> str | None:
    """The hung rollout's lease expired, and the operator put another pod in its place."""
    old, new = before.member(THIN), now.member(THIN)
    if old is None or now.replacements_total <= before.replacements_total:
        return None
    why = next((one for one in now.replacements if one.member == old.name), None)
    if why is None or (new is not None and new.uid == old.uid):
        return None
    return f"{why.member} was replaced, {why.reason}: {why.message}"


def caught_up(before: Scene, now: Scene) -> str | None:
    """The successor follows, and one merged delta brought it from the first version."""
    member, delta = now.member(THIN), _join(before, now)
    lag = None if member is None else now.lag(member)
    if member is None or delta is None or member.state != "Serving" or lag is None or lag > NEAR_VERSIONS:
        return None
    single = [one.size_bytes for one in now.deltas if not one.merged and one.target <= delta.target]
    return (
        f"{member.name} came from version 0 to {delta.target} with one merged delta of {size(delta.size_bytes)}"
        f" (one by one: {size(sum(single))})"
    )


def held(before: Scene, now: Scene) -> str | None:
    """The operator says that the cluster is out of reach, and replaces nobody."""
    if FAR not in now.lost or now.replacements_total != before.replacements_total:
        return None
    return f"{FAR} is held, nobody is replaced: {now.lost[FAR]}"


def returned(before: Scene, now: Scene) -> str | None:
    """The same pod follows again."""
    old, new = before.member(FAR), now.member(FAR)
    lag = None if new is None else now.lag(new)
    if now.lost or old is None or new is None or lag is None or now.replacements_total != before.replacements_total:
        return None
    if new.uid != old.uid or (new.seq or 0) <= (old.seq or 0) or lag > NEAR_VERSIONS:
        return None
    return f"{new.name} is the pod that it was, and went from version {old.seq} to {new.seq}"


def risen(pace: Pace, _before: Scene, now: Scene) -> str | None:
    """The mean reward of the last steps is above that of the first ones."""
    first, last = first_reward(now.steps), last_reward(now.steps)
    if len(now.steps) < 2 * WINDOW or last - first < pace.rise:
        return None
    return f"the mean reward rose from {first:.2f} to {last:.2f} in {now.steps[-1].step} steps"


def proven(_before: Scene, now: Scene) -> str | None:
    """Everybody has the trainer's last version, and its bits."""
    if now.ended is None or not now.rollouts:
        return None
    told = [now.sums.get(one.name) for one in now.rollouts]
    if any(one is None or one[0] != now.ended.seq for one in told):
        return None
    if any(one is not None and one[1] != now.ended.wire_sum for one in told):
        return None  # what `differing` tells in the error
    return f"version {now.ended.seq}: {len(told)} rollouts and the trainer have SHA-256 {now.ended.wire_sum[:16]}…"


def differing(now: Scene) -> str | None:
    """Who has other bits than the trainer under the same version: what must never be."""
    if now.ended is None:
        return None
    wrong = [name for name, (seq, told) in now.sums.items() if seq == now.ended.seq and told != now.ended.wire_sum]
    return f"{', '.join(sorted(wrong))} and the trainer differ in version {now.ended.seq}." if wrong else None


# --- figures ----------------------------------------------------------------------------------------------------------


def first_reward(steps: Sequence[Step]) -> float:
    """Of the first steps, on average."""
    return _mean([one.reward for one in steps[:WINDOW]])


def last_reward(steps: Sequence[Step]) -> float:
    """Of the last ones."""
    return _mean([one.reward for one in steps[-WINDOW:]])


def change(was: PlannedLink, now: PlannedLink) -> str:
    """What the plan changed of a link."""
    parts = [
        f"streams start at {was.streams} → {now.streams}" if was.streams != now.streams else "",
        f"bucket {kib(was.bucket_bytes)} → {kib(now.bucket_bytes)}" if was.bucket_bytes != now.bucket_bytes else "",
        f"codec {was.codec} → {now.codec}" if was.codec != now.codec else "",
    ]
    return ", ".join(part for part in parts if part) or "its figures"


def planned_rate(link: PlannedLink) -> float | None:
    """Bits a second that the plan rests on, as its reason has it; None where nothing was measured."""
    match = _MEASURED.search(link.message)
    return None if match is None else float(match[1]) * (1e9 if match[2] == "G" else 1e6)


def described(shape: str) -> str:
    """`90ms/2M/1%` in words."""
    rtt, rate, loss = shape.split("/")
    parts = [rtt.replace("ms", " ms"), rate.replace("M", " Mbit/s"), *([f"{loss} loss"] if loss != "0%" else [])]
    return ", ".join(parts)


def link_words(link: Link) -> str:
    """A link's figures."""
    return f"{mbit(link.capacity_bits_per_second)}, {millis(link.rtt_micros)}, {percent(link.loss_ppm)} lost"


def _join(before: Scene, now: Scene) -> Delta | None:
    """The delta from version 0 to one that was not there when the successor was made."""
    found = [one for one in now.deltas if one.base == 0 and one.merged and one.target >= (before.seq or 0)]
    return min(found, key=lambda one: one.size_bytes, default=None)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
