"""A fuzzer that learns from refusals: a mutant that is refused somewhere new, or taken, becomes a seed for others.

Coverage tools do not see into compiled loops, but every check of a reader ends in an error of its own. What counts as
new is therefore the triple (error, place, mode of the block); see `sites`. Everything follows from the seed.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sync_runtime.errors import SyncError
from tests.hostile.dice import Dice
from tests.hostile.filestructure import altered_file
from tests.hostile.mutations import blindly_damaged, damage
from tests.hostile.sites import Reached, Site, reached_by
from tests.hostile.structure import altered
from tests.hostile.targets import Attacked

MEASURED_EVERY = 16
"""The memory of every so many mutants is measured, and of all that reach something new: tracing is slow."""
_TAKEN = Reached("taken", None, 0)


@dataclass
class Findings:
    """What a campaign has met."""

    reached: Counter[Reached] = field(default_factory=Counter)
    tried: int = 0
    taken: int = 0
    peak_bytes: int = 0

    @property
    def sites(self) -> set[Site]:
        """The places that refused something."""
        return {reached.site for reached in self.reached if reached.site is not None}


class MemoryFoundError(AssertionError):
    """A trial used more memory than the format declares."""


class Campaign:
    """Attacks one target. Blind: damages the sound bytes only and learns nothing."""

    def __init__(self, target: Attacked, seed: int, *, blind: bool = False) -> None:
        self.findings = Findings()
        self.corpus: list[bytes] = list(target.seeds)
        self._chosen = [0] * len(self.corpus)
        self.target, self._blind = target, blind
        self._dice = Dice(seed)
        target.trial(target.seeds[0])
        for data in target.seeds:
            self._outcome(data)  # what is compiled on first use is compiled before anything is measured
        self._altered: Callable[[bytes, bytes, Dice], bytes] = altered_file if target.name == "file" else altered

    def attack(self) -> bytes:
        """The next mutant; never sound bytes as they were."""
        while (data := self._mutant()) in self.target.seeds:
            pass
        return data

    def _mutant(self) -> bytes:
        if self._blind:
            return blindly_damaged(self._dice.pick(self.target.seeds), self._dice)
        data = self._next_seed()
        for _ in range(1 + self._dice.below(4)):
            data = self._altered(data, self._dice.pick(self.corpus), self._dice)
        if self._dice.chance(15):
            raw = bytearray(data)
            damage(raw, self._dice)
            data = bytes(raw)
        return data[: self._dice.below(len(data) + 1)] if self._dice.chance(3) else data

    def run(self, damaged: bytes) -> None:
        """Tries a mutant, looks at how it ended, and keeps it where that is new."""
        found = self.findings
        measured = found.tried % MEASURED_EVERY == 0
        found.tried += 1
        reached = self._traced(damaged) if measured else self._outcome(damaged)
        if reached not in found.reached:
            if not measured:
                self._traced(damaged)
            if not self._blind:
                self.corpus.append(damaged)
                self._chosen.append(0)
        found.reached[reached] += 1
        found.taken += reached is _TAKEN

    def _outcome(self, damaged: bytes) -> Reached:
        error = self._refusal(damaged)
        return _TAKEN if error is None else reached_by(error)

    def _refusal(self, damaged: bytes) -> SyncError | None:
        try:
            self.target.trial(damaged)
        except SyncError as error:
            return error
        return None

    def _traced(self, damaged: bytes) -> Reached:
        """numpy reports its arrays to tracemalloc; what compiled loops allocate is fixed in size and small."""
        tracemalloc.start()
        try:
            error = self._refusal(damaged)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.findings.peak_bytes = max(self.findings.peak_bytes, peak_bytes)
        if peak_bytes > self.target.limit_bytes:
            raise MemoryFoundError(f"{peak_bytes} bytes in use, {self.target.limit_bytes} are declared")
        return _TAKEN if error is None else reached_by(error)

    def _next_seed(self) -> bytes:
        """Of two seeds the one that was chosen less often: new ones get their turn, old ones are not forgotten."""
        first, second = self._dice.below(len(self.corpus)), self._dice.below(len(self.corpus))
        at = first if self._chosen[first] <= self._chosen[second] else second
        self._chosen[at] += 1
        return self.corpus[at]
