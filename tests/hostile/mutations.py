"""Damage for bytes, and the question that every damaged delta must answer: our error, or the right state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sync_runtime.bucket.manifest import Bucket
from sync_runtime.delta.apply import Staging
from sync_runtime.errors import SyncError
from sync_runtime.offline import Delta, diff, digest, layout_of
from sync_runtime.offline.staging import stage
from sync_runtime.tensors.bits import BitTensor, bind
from tests.support.states import copied, noise, stepped, tensor

CODECS = ("fast", "tight")
EXTREMES = (0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def tiny_pair() -> tuple[dict[str, BitTensor], dict[str, BitTensor]]:
    """Two states of a few hundred elements in three widths: deltas of about half a kilobyte with every mode."""
    before = {
        "a": tensor("BF16", (300,), noise(300, 1) % np.uint64(700) + np.uint64(0x3C00)),
        "b": tensor("F8_E4M3", (40,), noise(40, 2) % np.uint64(24)),
        "c": tensor("F32", (6,), noise(6, 3) % np.uint64(1 << 24)),
    }
    after = {name: stepped(bits, at, 120, 200) for at, (name, bits) in enumerate(before.items())}
    after["c"].matrix[...] = noise(6, 9).astype(np.uint32)  # dense
    return before, after


class Target:
    """A base and a good delta; tries damaged objects in its place."""

    def __init__(self, codec: str) -> None:
        self.before, self.after = tiny_pair()
        self.delta = diff(self.before, self.after, codec=codec, layout=layout_of(self.before), threads=1)
        self.object = bytes(self.delta.object)
        self._bound = bind(self.delta.layout, self.before)
        self._wanted = bind(self.delta.layout, self.after)
        self.survivors = 0

    def survives(self, damaged: bytes) -> bool:
        """True where the damaged object was taken; then it leads to the right state, or this fails the test.

        The manifest's hash is made to fit, so that the decoder itself is what stands between.
        """
        manifest = replace(self.delta.manifest, buckets=(Bucket(len(damaged), "0" * 64),))
        staging = Staging(self.delta.blocks, self._bound)
        try:
            stage(Delta(self.delta.layout, manifest, memoryview(damaged)), staging, threads=1)
        except SyncError:
            assert not staging.staged, "a refused delta left something in the list"
            return False
        state = copied(self.before)
        live = Staging(self.delta.blocks, bind(self.delta.layout, state))
        for number, staged in staging.staged.items():
            live.add(self.delta.blocks.block(number), staged)
        live.commit()
        assert digest(state, layout=self.delta.layout, threads=1) == self.delta.target.digest
        return True


def truncations(data: bytes) -> Iterator[bytes]:
    """Every prefix."""
    return (data[:size] for size in range(len(data)))


def bit_flips(data: bytes) -> Iterator[bytes]:
    """Every single bit."""
    for at in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[at >> 3] ^= 1 << (at & 7)
        yield bytes(damaged)


def random_mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Bytes set, words replaced by extremes, pieces cut out, doubled, exchanged; one to three times each."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(int(random.integers(1, 4))):
            _damage(damaged, random)
        if damaged != data:
            yield bytes(damaged)


def _damage(damaged: bytearray, random: np.random.Generator) -> None:
    at = int(random.integers(0, max(1, len(damaged))))
    size = int(random.integers(1, 17))
    kind = int(random.integers(0, 6))
    if kind == 0:
        damaged[at : at + 1] = bytes([int(random.integers(0, 256))])
    elif kind == 1:
        damaged[at & ~3 : (at & ~3) + 4] = EXTREMES[int(random.integers(0, len(EXTREMES)))].to_bytes(4, "little")
    elif kind == 2:
        word = int.from_bytes(damaged[at & ~1 : (at & ~1) + 2], "little") + int(random.integers(-2, 3))
        damaged[at & ~1 : (at & ~1) + 2] = (word & 0xFFFF).to_bytes(2, "little")
    elif kind == 3:
        del damaged[at : at + size]
    elif kind == 4:
        damaged[at:at] = damaged[at : at + size]
    else:
        other = int(random.integers(0, max(1, len(damaged) - size)))
        damaged[at : at + size], damaged[other : other + size] = (
            damaged[other : other + size],
            damaged[at : at + size],
        )
