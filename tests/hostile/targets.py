"""What is attacked: deltas, anchors and files, each with the question that damaged bytes must answer.

A trial raises our error, or ends with the state that the bytes promise. Anything else fails an assertion or is a
foreign exception: both are finds.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sync_runtime.bucket.manifest import Bucket
from sync_runtime.codec.frame import parse_object
from sync_runtime.delta.apply import Staging
from sync_runtime.errors import DigestError, SyncError
from sync_runtime.offline import Delta, apply, diff, digest, invert, layout_of
from sync_runtime.offline.anchors import read_anchor, write_anchor, write_block
from sync_runtime.offline.deltafile import parse
from sync_runtime.offline.staging import stage
from sync_runtime.tensors.bits import BitTensor, bind
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.dtypes import BY_CODE
from tests.support.states import copied, noise, same_bits, stepped, tensor, weights

CODECS = ("fast", "tight")
TABLES_BYTES = len(BY_CODE) * (32 << 10)
"""Value tables of every dtype, as FORMAT.md allows them (section 11)."""


class Attacked(ABC):
    """A target of the fuzzer."""

    name: str
    seeds: Sequence[bytes]
    """Sound bytes to start from; the first of them are taken."""
    limit_bytes: int
    """No trial may have more in use at a time."""

    @abstractmethod
    def trial(self, damaged: bytes) -> None:
        """Takes the bytes, all of them and rightly, or raises our error."""


def tiny_pair() -> tuple[dict[str, BitTensor], dict[str, BitTensor]]:
    """Two states of a few hundred elements in three widths: small deltas with each of their modes."""
    before = {
        "a": tensor("BF16", (300,), noise(300, 1) % np.uint64(700) + np.uint64(0x3C00)),
        "b": tensor("F8_E4M3", (40,), noise(40, 2) % np.uint64(24)),
        "c": tensor("F32", (6,), noise(6, 3) % np.uint64(1 << 24)),
        "d": tensor("U8", (5,), noise(5, 4)),
    }
    after = {name: stepped(bits, at, 120, 200) for at, (name, bits) in enumerate(before.items())}
    after["b"].matrix[0, 7] = before["b"].matrix[0, 7] ^ np.uint8(0x80)  # the one step without a counterpart
    after["c"].matrix[...] = noise(6, 9).astype(np.uint32)  # dense
    after["d"].matrix[...] = before["d"].matrix + np.uint8(77)  # dense, with padding
    return before, after


class Target(Attacked):
    """A base and a good delta; tries damaged objects in its place.

    The manifest is made to fit what the damaged object has for size and totals, so that the decoder and the digest
    themselves are what stands between.
    """

    def __init__(self, codec: str) -> None:
        self.name = codec
        self.before, self.after = tiny_pair()
        self.delta = diff(self.before, self.after, codec=codec, layout=layout_of(self.before), threads=1)
        self.object = bytes(self.delta.object)
        self.seeds = [self.object]
        self._bound = bind(self.delta.layout, self.before)
        elements = sum(spec.numel for spec in self.delta.layout.tensors)
        self.limit_bytes = (64 << 10) + TABLES_BYTES + 24 * elements + 4 * len(self.object)

    def survives(self, damaged: bytes) -> bool:
        """True where the damaged object was taken; then it leads to the right state, or this fails the test."""
        try:
            self.trial(damaged)
        except SyncError:
            return False
        return True

    def trial(self, damaged: bytes) -> None:
        """Stages the object; what it stages must be the promised state, and a refusal must stage nothing."""
        staging = Staging(self.delta.blocks, self._bound)
        try:
            stage(self._described(damaged), staging, threads=1)
        except SyncError:
            assert not staging.staged, "a refused delta left something in the list"
            raise
        state = copied(self.before)
        live = Staging(self.delta.blocks, bind(self.delta.layout, state))
        for number, staged in staging.staged.items():
            live.add(self.delta.blocks.block(number), staged)
        live.commit()
        assert digest(state, layout=self.delta.layout, threads=1) == self.delta.target.digest

    def _described(self, damaged: bytes) -> Delta:
        manifest = replace(self.delta.manifest, buckets=(Bucket(len(damaged), "0" * 64),))
        delta = Delta(self.delta.layout, manifest, memoryview(damaged))
        try:
            records = list(parse_object(delta.object)[2])
        except SyncError:
            return delta
        fitting = replace(manifest, num_blocks=len(records), num_changed=sum(record.count for record in records))
        return replace(delta, manifest=fitting)


class AnchorTarget(Attacked):
    """A state and its anchor, with packed and raw blocks in three widths."""

    name = "anchor"

    def __init__(self) -> None:
        self.state = {
            "a": weights((400,), 3),
            "b": tensor("F8_E4M3", (90,), noise(90, 2) % np.uint64(24)),
            "c": tensor("F32", (6,), noise(6, 3)),
            "d": tensor("I16", (5,), noise(5, 3)),
        }
        self._blocks = BlockMap(layout_of(self.state))
        self._digest = digest(self.state, threads=1)
        sink = io.BytesIO()
        write_anchor(sink, self._blocks, bind(self._blocks.layout, self.state), seq=7, threads=1)
        self.seeds = [sink.getvalue()]
        elements = sum(bits.matrix.size for bits in self.state.values())
        self.limit_bytes = (64 << 10) + 24 * elements + 4 * len(self.seeds[0])

    def trial(self, damaged: bytes) -> None:
        """Reads the anchor over an altered state; a wrong digest refuses what the format alone cannot."""
        restored = copied(self.state)
        bound = bind(self._blocks.layout, restored)
        for anchor in read_anchor(memoryview(damaged), self._blocks, threads=1):
            assert anchor.bits.size == anchor.block.num_elements
            write_block(anchor, bound)
        if digest(restored, layout=self._blocks.layout, threads=1) != self._digest:
            raise DigestError("the anchor leads to another state than its manifest promises")


class FileTarget(Attacked):
    """A base and `.sgd` files: layout, manifest and trailer are hostile too."""

    name = "file"

    def __init__(self, codecs: Sequence[str] = ("fast", "tight")) -> None:
        self.targets = [Target(codec) for codec in codecs]
        self.before, after = self.targets[0].before, self.targets[0].after
        elsewhere = {name: stepped(bits, 50, 200) for name, bits in after.items()}
        strangers = [diff(after, self.before, threads=1), diff(after, elsewhere, threads=1)]  # a replay, a wrong base
        self.seeds = [delta.to_bytes() for delta in (*(target.delta for target in self.targets), *strangers)]
        self.limit_bytes = max(target.limit_bytes for target in self.targets) + 64 * max(map(len, self.seeds))

    def trial(self, damaged: bytes) -> None:
        """Parses, inverts where that needs no base, applies; a refusal must not have touched the state."""
        state = copied(self.before)
        try:
            delta = parse(memoryview(damaged))
            if delta.manifest.codec == "fast":
                invert(delta, threads=1)
            for _ in delta.reader().records():
                pass
            apply(state, delta, threads=1)
        except SyncError:
            assert same_bits(state, self.before), "a refused file changed the state"
            raise
        assert digest(state, layout=delta.layout, threads=1) == delta.target.digest
