"""A snapshot: the last state that others can have, kept apart from the weights that training goes on changing."""

from __future__ import annotations

import numpy as np

from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.staging import state_digests
from sync_runtime.offline.surface import apply, diff, layout_of
from sync_runtime.tensors.bits import BitTensor, State, bind
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest, total
from sync_runtime.tensors.layout import Layout


class Snapshot:
    """A private copy of a state. It advances only when told: a delta that was lost is made again, byte for byte."""

    def __init__(self, state: State, *, layout: Layout | None = None, threads: int | None = None) -> None:
        self.layout = layout or layout_of(state)
        self._threads = threads
        self._state: dict[str, BitTensor] = {}
        for at, bits in bind(self.layout, state).items():
            name = self.layout.tensors[at].name
            held = np.array(bits.tile(slice(None), slice(None)))  # a copy; of what travels, where that is a cast
            self._state[name] = BitTensor(bits.dtype, bits.shape, held)
        self._digest = total(state_digests(BlockMap(self.layout), bind(self.layout, self._state), threads))

    @property
    def digest(self) -> Digest:
        """The digest of the state it holds."""
        return self._digest

    def diff(self, state: State, *, codec: str = "fast", label: str = "") -> Delta:
        """What changed since the snapshot; changes nothing here."""
        return diff(self._state, state, codec=codec, layout=self.layout, label=label, threads=self._threads)

    def advance(self, delta: Delta) -> None:
        """Moves on along a delta, once it is durable."""
        apply(self._state, delta, held=self._digest, threads=self._threads)
        self._digest = delta.target.digest
