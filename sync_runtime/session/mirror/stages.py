"""What is staged over a mirror: versions that are decoded and checked, one over the other, and not yet active.

The mirror is touched by `commit` alone. A commit writes absolute bits and may be repeated; after a death in the middle
of one the mirror is a mixture, which its full digest shows. Knows neither where deltas come from nor who activates.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.delta.apply import Staging
from sync_runtime.errors import SequenceError
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.staging import check_base, stage
from sync_runtime.session.mirror.state import Mirror
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import Digest
from sync_runtime.tensors.sparse import Bits


class Layer(Staging):
    """One version's redo list, over the versions staged before it."""

    def __init__(
        self, blocks: BlockMap, live: Mapping[int, BitTensor], below: Layer | None, *, ref: VersionRef, digest: Digest
    ) -> None:
        super().__init__(blocks, live)
        self.ref = ref
        self.digest = digest
        self._below = below

    def current(self, block: Block) -> Bits:
        """The block's elements under everything that is staged up to here."""
        below = self._below
        if below is None:
            return super().current(block)
        bits = below.current(block)
        staged = self.staged.get(block.number)
        if staged is not None:
            bits = bits.copy()
            bits[staged.positions] = staged.bits
        return bits

    def settle(self) -> None:
        """Everything below is committed: it is in the live state now."""
        self._below = None


class Stages:
    """A proven mirror and the versions staged over it, oldest first.

    Thread-safe: one at a time changes it, which may take seconds; looking at it never waits.
    """

    def __init__(self, mirror: Mirror, ref: VersionRef, digest: Digest, threads: int | None = None) -> None:
        self.mirror = mirror
        self._ref, self._digest = ref, digest
        self._threads = threads
        self._layers: tuple[Layer, ...] = ()
        self._lock = threading.Lock()

    @property
    def active(self) -> VersionRef:
        """The version that the mirror holds."""
        return self._ref

    @property
    def active_digest(self) -> Digest:
        """Its digest."""
        return self._digest

    @property
    def newest(self) -> VersionRef:
        """The last version that is staged, or the active one."""
        layers = self._layers
        return layers[-1].ref if layers else self._ref

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What is staged, oldest first."""
        return self._layers

    def stage(self, delta: Delta, ref: VersionRef) -> Layer:
        """Decodes a delta over all that is staged and checks it; touches no weights.

        Raises a SequenceError where it starts from another state, DigestError where it does not lead to its target.
        """
        with self._lock:
            top = self._layers[-1] if self._layers else None
            check_base(delta, self._digest if top is None else top.digest)
            layer = Layer(self.mirror.blocks, self.mirror.bound(), top, ref=ref, digest=delta.target.digest)
            stage(delta, layer, self._threads)
            self._layers = (*self._layers, layer)
            return layer

    def commit(self, ref: VersionRef) -> None:
        """Writes what is staged, up to this version, into the mirror. Repeatable until it returns."""
        with self._lock:
            if ref == self._ref:
                return
            going = self._up_to(ref)
            for layer in going:
                layer.commit()
            self._ref, self._digest = going[-1].ref, going[-1].digest
            self._layers = self._layers[len(going) :]
            if self._layers:
                self._layers[0].settle()

    def unstage(self, ref: VersionRef) -> tuple[VersionRef, ...]:
        """Forgets what is staged after this version; returns what was forgotten."""
        with self._lock:
            keep = 0 if ref == self._ref else len(self._up_to(ref))
            gone = self._layers[keep:]
            self._layers = self._layers[:keep]
            return tuple(layer.ref for layer in gone)

    def is_sound(self) -> bool:
        """Whether the mirror's full digest is the active version's: a scrub of the mirror itself."""
        return self.mirror.digest(self._threads) == self._digest

    def _up_to(self, ref: VersionRef) -> tuple[Layer, ...]:
        for at, layer in enumerate(self._layers):
            if layer.ref == ref:
                return self._layers[: at + 1]
        raise SequenceError(f"version {ref.seq} of {ref.lineage} is neither staged nor active")
