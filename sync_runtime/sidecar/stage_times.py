"""How long stages of versions took at one sidecar, for as long as it runs: distributions by stage.

Told by trainer and rollout as stages end. Knows no version: figures by version would grow without end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sync_runtime.contract.figures.runtime import PAUSE_SECONDS, STAGE_SECONDS, SYNC_SECONDS
from sync_runtime.contract.traces import STAGES
from sync_runtime.control.exposition import Distribution, Reading


class StageTimes:
    """Not thread-safe: the sidecar's loop owns it."""

    def __init__(self) -> None:
        self._stages: dict[str, Distribution] = {}
        self._pauses = Distribution(PAUSE_SECONDS)
        self._syncs = Distribution(SYNC_SECONDS)

    def took(self, stage: str, spent_us: int) -> None:
        """A stage ended; names that are no stage, and times below nothing, are left out."""
        if stage in STAGES and spent_us >= 0:
            self._stages.setdefault(stage, Distribution(STAGE_SECONDS)).add(spent_us / 1e6)

    def all_took(self, timings_us: Mapping[str, int]) -> None:
        """Several stages ended."""
        for stage, spent_us in timings_us.items():
            self.took(stage, spent_us)

    def paused(self, pause_us: int) -> None:
        """Generation paused for a version."""
        self._pauses.add(pause_us / 1e6)

    def synced(self, sync_s: float) -> None:
        """A version is staged and verified, so long after its first word."""
        self._syncs.add(sync_s)

    def readings(self, *, is_rollout: bool) -> Iterator[Reading]:
        """All of it; a trainer neither pauses nor receives."""
        if is_rollout:
            yield Reading(SYNC_SECONDS, self._syncs)
            yield Reading(PAUSE_SECONDS, self._pauses)
        for stage in sorted(self._stages):
            yield Reading(STAGE_SECONDS, self._stages[stage], (stage,))
