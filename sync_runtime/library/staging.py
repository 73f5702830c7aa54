"""What a subscriber has live and staged: versions, their lists, and the one list that a pause will write.

Pure bookkeeping; a *layer* is whatever the coder calls a list. Its owner locks. Layers are kept apart as well as
folded, so that what was superseded can be forgotten without being sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sync_runtime.errors import WrongBaseError
from sync_runtime.library.version import Version
from sync_runtime.local.messages import Stage, VersionRef

Fold = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Staged:
    """One version that waits, and what leads to it from the one below."""

    version: Version
    layer: Any


class Staging:
    """Live weights under staged versions."""

    def __init__(self) -> None:
        self.live: Version | None = None
        """What the live weights are; None: no version, out of service."""
        self.is_poisoned = False
        """Whether a scrub found live weights that are not what they should be."""
        self.folded: Any | None = None
        """The one list that leads from live to the top."""
        self.turn = 0
        """Grows whenever live or staged versions change otherwise than by `add`."""
        self._layers: list[Staged] = []

    @property
    def staged(self) -> Version | None:
        """The newest version that can be activated."""
        return self._layers[-1].version if self._layers else None

    @property
    def top(self) -> Version | None:
        """What the next version must have as base."""
        return self.staged or self.live

    def is_repair(self, stage: Stage) -> bool:
        """Whether a version leads to itself: what is live, mended."""
        return stage.base is not None and stage.base == VersionRef(stage.lineage, stage.seq)

    def check(self, stage: Stage) -> None:
        """Raises WrongBaseError where a version does not follow from what is here."""
        if stage.base is None:
            if self._layers or (self.live is not None and not self.is_poisoned):
                raise WrongBaseError("whole weights are for a member out of service; this one has a version")
            return
        wanted = self.live if self.is_repair(stage) else self.top
        if wanted is None or wanted.ref != stage.base:
            here = "no version" if wanted is None else f"version {wanted.seq} of lineage {wanted.lineage}"
            raise WrongBaseError(
                f"the staged version starts from {stage.base.seq} of {stage.base.lineage}, here is {here}"
            )

    def add(self, version: Version, layer: Any, folded: Any) -> None:
        """A version that follows from the top."""
        self._layers.append(Staged(version, layer))
        self.folded = folded

    def add_repair(self, layer: Any, folded: Any) -> None:
        """Bits that the live version should have had, under everything staged."""
        if self.live is None:
            raise WrongBaseError("there is no live version to repair")
        self._layers.insert(0, Staged(self.live, layer))
        self.folded = folded
        self.turn += 1

    def prove(self, version: Version) -> None:
        """The live weights, of no version when they were opened, are one after all."""
        if self.live is None and not self._layers:
            self.live = version
            self.turn += 1

    def replace_live(self) -> None:
        """Whole weights are being written over the live ones."""
        self.live, self.is_poisoned = None, False
        self.turn += 1

    def activated(self, version: Version, fold: Fold) -> None:
        """What was staged up to a version is live now."""
        self.live = version
        done = next((at + 1 for at, staged in enumerate(self._layers) if staged.version == version), 0)
        del self._layers[:done]
        self._refold(fold)

    def upto(self, ref: VersionRef, fold: Fold) -> tuple[Version | None, Any]:
        """A staged version and the one list that leads there from live; None where it is not staged."""
        last = max((at for at, staged in enumerate(self._layers) if staged.version.ref == ref), default=-1)
        if last < 0:
            return None, None
        if last == len(self._layers) - 1:
            return self._layers[last].version, self.folded
        folded = self._layers[0].layer
        for staged in self._layers[1 : last + 1]:
            folded = fold(folded, staged.layer)
        return self._layers[last].version, folded

    def unstage(self, after: VersionRef | None, fold: Fold) -> None:
        """Forgets what was staged after a version; after None or a version that is not here, everything staged."""
        kept = 0
        for at, staged in enumerate(self._layers):
            if staged.version.ref == after:
                kept = at + 1
        if kept == len(self._layers):
            return
        del self._layers[kept:]
        self._refold(fold)

    def forget(self) -> None:
        """The sidecar is gone; it stages again what is still wanted."""
        self._layers.clear()
        self.folded = None
        self.turn += 1

    def _refold(self, fold: Fold) -> None:
        self.folded = None
        for staged in self._layers:
            self.folded = staged.layer if self.folded is None else fold(self.folded, staged.layer)
        self.turn += 1
