"""What is exported: a base and the state that a `.sgd` delta leads to, tensor by tensor, as a writer wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sync_runtime.delta.apply import Staging
from sync_runtime.errors import SettingsError
from sync_runtime.offline.checkpoints import Checkpoint, MappedState
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.pieces import StagedPiece, split
from sync_runtime.offline.staging import check_base, stage
from sync_runtime.offline.streams import state_digest
from sync_runtime.offline.written import stored_ties
from sync_runtime.tensors.bits import BitTensor


class Pair(NamedTuple):
    """A tensor before and after."""

    name: str
    old: BitTensor
    new: BitTensor


class Written(NamedTuple):
    """What a writer counts."""

    num_changed: int
    num_tensors: int
    """Those with a change."""


class Target:
    """The state that a delta leads to; the base is checked against the delta before anything is made."""

    def __init__(self, base: Checkpoint, delta: Delta, threads: int | None = None) -> None:
        self.base, self.delta = base, delta
        self._live = MappedState(base, delta.layout)
        stored_ties(base, delta.layout)
        check_base(delta, state_digest(delta.blocks, self._live, threads))
        self._staging = Staging(delta.blocks, self._live)
        stage(delta, self._staging, threads)
        self._pieces = self._split()

    def pairs(self) -> Iterator[Pair]:
        """Every tensor of the base, by ascending name. A tied name that the base stores apart follows its tensor."""
        index_of = self.delta.layout.index_of
        for name in sorted(self.base.entries):
            at = index_of[name]
            old = self._live[at]
            yield Pair(name, old, self._new(at, old))

    def _new(self, at: int, old: BitTensor) -> BitTensor:
        pieces = self._pieces.get(at, [])
        if not pieces:
            return old
        new = BitTensor(old.dtype, old.shape, np.array(old.matrix))
        for piece in pieces:
            piece.write(new)
        return new

    def _split(self) -> dict[int, list[StagedPiece]]:
        found: dict[int, list[StagedPiece]] = {}
        for number, staged in self._staging.staged.items():
            for piece in split(self.delta.blocks.block(number), staged):
                found.setdefault(piece.tensor, []).append(piece)
        return found


@dataclass(frozen=True)
class Export:
    """One order to a writer."""

    target: Target
    output: Path
    variant: str
    meta: Mapping[str, str]
    """What the user adds to the header."""

    def pairs(self) -> Iterator[Pair]:
        """The tensors."""
        return self.target.pairs()

    @property
    def base_seq(self) -> int:
        """The number that the delta gives its base."""
        return self.target.delta.base.seq

    @property
    def target_seq(self) -> int:
        """The number that the delta gives its target."""
        return self.target.delta.target.seq

    def number(self, key: str, default: int) -> int:
        """A number from the user, or the delta's."""
        text = self.meta.get(key)
        if text is None:
            return default
        if not text.isdecimal():
            raise SettingsError(f"{key} is {text!r}; the format wants a number there")
        return int(text)
