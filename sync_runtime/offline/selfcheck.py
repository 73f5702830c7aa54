"""Small weights through every codec and back: shows that an installation can do it, and compiles the loops for it.

For self-tests of images, and for building them; nothing else calls it. Makes no connection and writes no file.
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sync_runtime.contract.selftest import SelfTestError
from sync_runtime.offline.anchors import read_anchor, write_anchor, write_block
from sync_runtime.offline.surface import apply, diff, digest, invert, layout_of, merge
from sync_runtime.tensors.bits import bind
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest

CODECS: Final = ("fast", "tight", "auto")
NUM_ELEMENTS: Final = 1 << 15
NUM_CHANGED: Final = NUM_ELEMENTS // 100
Weights = dict[str, NDArray[Any]]


def codec_sentence() -> str:
    """Codes, merges and undoes, and says how it went; raises SelfTestError, or the error of the stage that failed."""
    random = np.random.default_rng(0)
    wide = random.random(NUM_ELEMENTS, np.float32)
    first: Weights = {
        "counts": np.arange(NUM_ELEMENTS).astype(np.int8),
        "narrow": wide.astype(np.float16),
        "wide": wide,
    }
    second, third = _nudged(first, 1), _nudged(first, 2)
    sizes = [_there_and_back(codec, first, second, third) for codec in CODECS]
    _join(third)
    full_bytes = sum(tensor.nbytes for tensor in first.values())
    return (
        f"weights came back bit for bit from deltas ({', '.join(CODECS)}: {min(sizes)} bytes at best, of {full_bytes}) "
        "and from an anchor."
    )


def _nudged(weights: Weights, seed: int) -> Weights:
    random = np.random.default_rng(seed)
    changed = {name: tensor.copy() for name, tensor in weights.items()}
    for tensor in changed.values():
        step = tensor.dtype.type(1 if tensor.dtype.kind == "i" else 0.125)
        tensor[random.choice(tensor.size, NUM_CHANGED, replace=False)] += step
    return changed


def _there_and_back(codec: str, first: Weights, second: Weights, third: Weights) -> int:
    """The size of one delta."""
    there = diff(first, second, codec=codec)
    onward = diff(second, third, codec=codec, seqs=(1, 2))
    held = {name: tensor.copy() for name, tensor in first.items()}
    apply(held, there)
    apply(held, onward)
    _must_equal(digest(held), digest(third), f"a {codec} delta")
    apply(held, invert(onward, base=second))
    _must_equal(digest(held), digest(second), f"an inverted {codec} delta")
    held = {name: tensor.copy() for name, tensor in first.items()}
    if codec == "fast":  # the others need their own bases, which nobody has who is two versions behind
        apply(held, merge(there, onward))
        _must_equal(digest(held), digest(third), "a merged delta")
    return sum(bucket.size_bytes for bucket in there.manifest.buckets)


def _join(weights: Weights) -> None:
    layout = layout_of(weights)
    blocks, sink = BlockMap(layout), io.BytesIO()
    write_anchor(sink, blocks, bind(layout, weights), seq=2)
    joined = {name: np.zeros_like(tensor) for name, tensor in weights.items()}
    bound = bind(layout, joined, writable=True)
    for block in read_anchor(memoryview(sink.getvalue()), blocks):
        write_block(block, bound)
    _must_equal(digest(joined), digest(weights), "an anchor")


def _must_equal(found: Digest, wanted: Digest, what: str) -> None:
    if found != wanted:
        raise SelfTestError(f"{what} gave other bits than it was made of.")
