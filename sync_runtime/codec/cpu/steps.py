"""Steps of changed elements: class, sign and extra bits, and the histograms that tables are built from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.rules import SAMPLE_EVERY, SAMPLE_RUN_BITS
from sync_runtime.codec.tables import MAX_CLASSES, MAX_CONTEXTS, Histograms
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import U32, Bits

U8 = NDArray[np.uint8]


def count_block(old: Bits, positions: U32, differences: U32, block: Block, *, sampled: bool) -> Histograms:
    """What one block adds to the histograms."""
    dtype = block.dtype
    elements, changed = np.zeros(MAX_CONTEXTS, np.int64), np.zeros(MAX_CONTEXTS, np.int64)
    classes = np.zeros((MAX_CONTEXTS, MAX_CLASSES), np.int64)
    _count_elements(old, dtype.context_shift, dtype.context_mask, sampled, elements)
    contexts = contexts_of(old, positions, dtype.context_shift, dtype.context_mask)
    _count_changed(contexts, differences, dtype.width_bits, changed, classes)
    return Histograms({block.group: elements}, {block.group: changed}, {dtype.code: classes})


@compiled
def contexts_of(old: Bits, positions: U32, shift: int, mask: int) -> U8:
    """The old contexts at some positions."""
    found = np.empty(positions.size, np.uint8)
    for k in range(positions.size):
        found[k] = (old[positions[k]] >> shift) & mask
    return found


@compiled
def class_of(difference: Any, full: int) -> Any:
    """Significant bits of |s| - 1."""
    rest = min(difference, full - difference) - 1
    number = 0
    while rest:
        number += 1
        rest >>= 1
    return number


@compiled
def split(differences: U32, width_bits: int, classes: U8, signs: U32) -> int:
    """Fills classes and sign bits; returns how many extra bits the steps need."""
    full, half = 1 << width_bits, 1 << (width_bits - 1)
    extra_bits = 0
    for k in range(differences.size):
        difference = np.int64(differences[k])
        number = class_of(difference, full)
        classes[k] = number
        extra_bits += max(0, number - 1)
        if difference >= half:
            signs[k >> 5] |= np.uint32(1) << np.uint32(k & 31)
    return extra_bits


@compiled
def write_extras(differences: U32, classes: U8, width_bits: int, words: U32) -> None:
    """The low bits of |s| - 1, string after string."""
    full = 1 << width_bits
    at: Any = 0
    size: Any
    for k in range(differences.size):
        size = np.int64(classes[k]) - 1
        if size > 0:
            difference = np.int64(differences[k])
            rest = (min(difference, full - difference) - 1) & ((1 << size) - 1)
            words[at >> 5] |= np.uint32((rest << (at & 31)) & 0xFFFFFFFF)
            if (at & 31) + size > 32:
                words[(at >> 5) + 1] |= np.uint32(rest >> (32 - (at & 31)))
            at += size


@compiled
def count_extra_bits(classes: U8) -> Any:
    """How many extra bits the classes announce."""
    total: Any = 0
    for k in range(classes.size):
        if classes[k] > 1:
            total += np.int64(classes[k]) - 1
    return total


@compiled
def join(classes: U8, signs: U32, extras: U32, width_bits: int, differences: U32) -> bool:
    """Fills the differences; False where a step does not exist (+2^(w-1))."""
    full, half = 1 << width_bits, 1 << (width_bits - 1)
    at: Any = 0
    size: Any
    for k in range(classes.size):
        size = np.int64(classes[k]) - 1
        rest = np.int64(0)
        if size >= 0:
            rest = np.int64(1) << size
        if size > 0:
            low = np.int64(extras[at >> 5]) >> (at & 31)
            if (at & 31) + size > 32:
                low |= np.int64(extras[(at >> 5) + 1]) << (32 - (at & 31))
            rest |= low & ((1 << size) - 1)
            at += size
        magnitude = rest + 1
        if (signs[k >> 5] >> np.uint32(k & 31)) & np.uint32(1):
            differences[k] = full - magnitude
        elif magnitude < half:
            differences[k] = magnitude
        else:
            return False
    return True


@compiled
def _count_elements(old: Bits, shift: int, mask: int, sampled: bool, counts: NDArray[np.int64]) -> None:
    run = 1 << SAMPLE_RUN_BITS
    stride = run * SAMPLE_EVERY if sampled else run
    for first in range(0, old.size, stride):
        for i in range(first, min(first + run, old.size)):
            counts[(old[i] >> shift) & mask] += 1


@compiled
def _count_changed(
    contexts: U8, differences: U32, width_bits: int, changed: NDArray[np.int64], classes: NDArray[np.int64]
) -> None:
    full = 1 << width_bits
    for k in range(contexts.size):
        changed[contexts[k]] += 1
        classes[contexts[k], class_of(np.int64(differences[k]), full)] += 1
