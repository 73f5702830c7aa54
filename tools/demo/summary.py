"""The last words of a run: what was promised and seen, bytes saved, times. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tools.demo.stage import Record
from tools.demo.story import first_reward, last_reward
from tools.demo.words import clock, seconds, size


@dataclass(frozen=True)
class Savings:
    """Bytes that left the trainer, against all weights of every version to every rollout."""

    versions: int
    receivers: int
    sent_bytes: int
    full_bytes: int

    @property
    def factor(self) -> float:
        """How many times fewer."""
        return self.full_bytes / self.sent_bytes if self.sent_bytes else 0.0


def savings(record: Record, full_bytes: int) -> Savings:
    """What deltas saved."""
    scene = record.scene
    versions, receivers = scene.seq or 0, len(scene.rollouts)
    return Savings(versions, receivers, scene.sent_bytes, versions * receivers * full_bytes)


def middle(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def facts_of(record: Record, full_bytes: int, took_s: float) -> list[tuple[str, str]]:
    """Name and figure, for text and page."""
    saved, steps = savings(record, full_bytes), record.scene.steps
    tokens, busy_s = sum(one.tokens for one in steps), sum(one.seconds for one in steps)
    slowest = max(record.sync_millis, default=None)
    pauses = middle(record.pause_millis)
    return [
        ("weights", f"{size(full_bytes)} in bf16; {saved.versions} versions to {saved.receivers} rollouts"),
        (
            "bytes",
            f"{size(saved.sent_bytes)} left the trainer instead of {size(saved.full_bytes)}"
            f" ({saved.factor:.1f} times fewer)",
        ),
        ("sync", f"{seconds(middle(record.sync_millis))} per version in the middle, {seconds(slowest)} at the most"),
        ("pause", "not measured" if pauses is None else f"{pauses:.0f} ms of generation per version, in the middle"),
        ("reward", f"{first_reward(steps):.2f} → {last_reward(steps):.2f} in {len(steps)} steps"),
        ("tokens", f"{tokens} sampled, {tokens / max(busy_s, 1e-9):.0f} a second"),
        ("plan", f"revision {record.scene.plan_revision}; members replaced: {record.scene.replacements_total}"),
        ("time", clock(took_s)),
    ]


def text(
    record: Record,
    full_bytes: int,
    took_s: float,
    further: Sequence[str],
    *,
    trace: Sequence[str] = (),
    width: int = 100,
) -> str:
    """The summary as it is printed; `trace`: a version's waterfall."""
    lines = ["", "What was promised, and seen:"]
    for one in record.outcomes:
        lines += textwrap.wrap(
            f"{one.act}: {one.seen}", width, initial_indent="  ✓ ", subsequent_indent="    ", break_long_words=False
        )
    lines += ["", "In figures:"]
    for name, figure in facts_of(record, full_bytes, took_s):
        lines.append(f"  {name:8} {figure}")
    lines += ["", "One version, one trace:", *(f"  {line}" for line in trace)] if trace else []
    lines += ["", "Look further:", *(f"  {line}" for line in further)]
    return "\n".join(lines)
