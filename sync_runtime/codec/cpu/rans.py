"""Lanes of rANS: the compiled loops of `tight` and of anchors (FORMAT.md, sections 6.3 and 8).

State 32 bits in 64-bit registers, words of 16 bits. Step by step, all lanes of a step together: the chains are
independent, so one core overlaps them, and decoded positions come out in order. Faults are numbers: see FAULTS.
"""

# ruff: noqa: PLR0912, PLR0917 -- compiled loops take flat arguments and check as they go

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.rules import ANCHOR_BITS, ANCHOR_ONE, PROBABILITY_BITS, PROBABILITY_ONE, STATE_LOW
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import U32, Bits

U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

FAULTS = {
    1: "a lane's state is out of range",
    2: "a lane needs more words than it has",
    3: "more elements are decoded as changed than announced",
    4: "a lane does not end where it must: altered bytes, or another base than the coded one",
    5: "fewer elements are decoded as changed than announced",
    6: "a changed element has a context without a table",
}
_LOW = np.uint64(STATE_LOW)
_WORD = np.uint64(16)
_WORD_MASK = np.uint64(0xFFFF)
_ONE = np.uint64(PROBABILITY_ONE)
_BITS = np.uint64(PROBABILITY_BITS)
_SPILL = np.uint64(32 - PROBABILITY_BITS)
_SLOT = np.uint64(PROBABILITY_ONE - 1)
_A_BITS = np.uint64(ANCHOR_BITS)
_A_SPILL = np.uint64(32 - ANCHOR_BITS)
_A_SLOT = np.uint64(ANCHOR_ONE - 1)


@compiled
def encode_positions(
    old: Bits, shift: int, mask: int, changed: U8, table: U32, words: U16, states: U32, counts: I64
) -> None:
    """One lane per row of `words`, filled from its end. The table must have an entry wherever something changed."""
    lanes, cap = words.shape
    x = np.full(lanes, _LOW, np.uint64)
    at = np.full(lanes, cap, np.int64)
    for step in range(cap - 1, -1, -1):
        first = step * lanes
        for lane in range(min(lanes, old.size - first)):
            p = np.uint64(table[(old[first + lane] >> shift) & mask])
            if p == 0:
                continue
            f, c = _ONE - p, p
            if changed[first + lane]:
                f, c = p, np.uint64(0)
            state = x[lane]
            if state >> _SPILL >= f:
                at[lane] -= 1
                words[lane, at[lane]] = state & _WORD_MASK
                state >>= _WORD
            quotient = np.uint64(np.uint32(state) // np.uint32(f))
            x[lane] = (quotient << _BITS) + (state - quotient * f) + c
    for lane in range(lanes):
        states[lane] = x[lane]
        counts[lane] = cap - at[lane]


@compiled
def decode_positions(
    old: Bits, shift: int, mask: int, table: U32, words: U16, ends: I64, states: U32, positions: U32
) -> int:
    """Fills `positions`; the words of lane j are those before ends[j]. Returns a fault, 0 for none."""
    lanes = states.size
    x = np.empty(lanes, np.uint64)
    at = np.zeros(lanes, np.int64)
    for lane in range(lanes):
        x[lane] = states[lane]
        if x[lane] < _LOW:
            return 1
        if lane:
            at[lane] = ends[lane - 1]
    found = 0
    for first in range(0, old.size, lanes):
        for lane in range(min(lanes, old.size - first)):
            p = np.uint64(table[(old[first + lane] >> shift) & mask])
            if p == 0:
                continue
            state = x[lane]
            slot = state & _SLOT
            if slot < p:
                if found == positions.size:
                    return 3
                positions[found] = first + lane
                found += 1
                state = p * (state >> _BITS) + slot
            else:
                state = (_ONE - p) * (state >> _BITS) + slot - p
            if state < _LOW:
                if at[lane] == ends[lane]:
                    return 2
                state = (state << _WORD) | np.uint64(words[at[lane]])
                at[lane] += 1
            x[lane] = state
    for lane in range(lanes):
        if x[lane] != _LOW or at[lane] != ends[lane]:
            return 4
    return 0 if found == positions.size else 5


@compiled
def encode_classes(contexts: U8, classes: U8, frequencies: U32, words: U16, states: U32, counts: I64) -> None:
    """One lane per row of `words`, filled from its end; frequencies are contexts by classes."""
    lanes, cap = words.shape
    starts = np.zeros_like(frequencies)
    for context in range(frequencies.shape[0]):
        for number in range(1, frequencies.shape[1]):
            starts[context, number] = starts[context, number - 1] + frequencies[context, number - 1]
    x = np.full(lanes, _LOW, np.uint64)
    at = np.full(lanes, cap, np.int64)
    for k in range(classes.size - 1, -1, -1):
        lane = k % lanes
        f = np.uint64(frequencies[contexts[k], classes[k]])
        state = x[lane]
        if state >> _SPILL >= f:
            at[lane] -= 1
            words[lane, at[lane]] = state & _WORD_MASK
            state >>= _WORD
        quotient = np.uint64(np.uint32(state) // np.uint32(f))
        x[lane] = (quotient << _BITS) + (state - quotient * f) + np.uint64(starts[contexts[k], classes[k]])
    for lane in range(lanes):
        states[lane] = x[lane]
        counts[lane] = cap - at[lane]


@compiled
def decode_classes(contexts: U8, frequencies: U32, words: U16, ends: I64, states: U32, classes: U8) -> int:
    """Fills `classes`. Returns a fault, 0 for none."""
    lanes = states.size
    x = np.empty(lanes, np.uint64)
    at = np.zeros(lanes, np.int64)
    for lane in range(lanes):
        x[lane] = states[lane]
        if x[lane] < _LOW:
            return 1
        if lane:
            at[lane] = ends[lane - 1]
    for k in range(classes.size):
        lane = k % lanes
        state = x[lane]
        slot = state & _SLOT
        number, start = 0, np.uint64(0)
        f = np.uint64(frequencies[contexts[k], 0])
        while slot >= start + f:
            start += f
            number += 1
            if number == frequencies.shape[1]:
                return 6
            f = np.uint64(frequencies[contexts[k], number])
        classes[k] = number
        state = f * (state >> _BITS) + slot - start
        if state < _LOW:
            if at[lane] == ends[lane]:
                return 2
            state = (state << _WORD) | np.uint64(words[at[lane]])
            at[lane] += 1
        x[lane] = state
    for lane in range(lanes):
        if x[lane] != _LOW or at[lane] != ends[lane]:
            return 4
    return 0


@compiled
def encode_contexts(bits: Bits, shift: int, mask: int, table: U32, words: U16, states: U32, counts: I64) -> None:
    """The contexts of an anchor block under one table of 2^12."""
    lanes, cap = words.shape
    starts = np.zeros_like(table)
    for number in range(1, table.size):
        starts[number] = starts[number - 1] + table[number - 1]
    x = np.full(lanes, _LOW, np.uint64)
    at = np.full(lanes, cap, np.int64)
    for step in range(cap - 1, -1, -1):
        first = step * lanes
        for lane in range(min(lanes, bits.size - first)):
            context = (bits[first + lane] >> shift) & mask
            f = np.uint64(table[context])
            state = x[lane]
            if state >> _A_SPILL >= f:
                at[lane] -= 1
                words[lane, at[lane]] = state & _WORD_MASK
                state >>= _WORD
            quotient = np.uint64(np.uint32(state) // np.uint32(f))
            x[lane] = (quotient << _A_BITS) + (state - quotient * f) + np.uint64(starts[context])
    for lane in range(lanes):
        states[lane] = x[lane]
        counts[lane] = cap - at[lane]


@compiled
def decode_contexts(table: U32, words: U16, ends: I64, states: U32, contexts: U8) -> int:
    """Fills `contexts`; the table sums to 2^12. Returns a fault, 0 for none."""
    lanes = states.size
    x = np.empty(lanes, np.uint64)
    at = np.zeros(lanes, np.int64)
    for lane in range(lanes):
        x[lane] = states[lane]
        if x[lane] < _LOW:
            return 1
        if lane:
            at[lane] = ends[lane - 1]
    starts = np.zeros(table.size, np.uint32)
    symbol_of = np.empty(ANCHOR_ONE, np.uint8)
    total: Any = 0
    for number in range(table.size):
        starts[number] = total
        for slot_number in range(total, total + np.int64(table[number])):
            symbol_of[slot_number] = number
        total += np.int64(table[number])
    for first in range(0, contexts.size, lanes):
        for lane in range(min(lanes, contexts.size - first)):
            state = x[lane]
            slot = state & _A_SLOT
            number = symbol_of[np.int64(slot)]
            contexts[first + lane] = number
            state = np.uint64(table[number]) * (state >> _A_BITS) + slot - np.uint64(starts[number])
            if state < _LOW:
                if at[lane] == ends[lane]:
                    return 2
                state = (state << _WORD) | np.uint64(words[at[lane]])
                at[lane] += 1
            x[lane] = state
    for lane in range(lanes):
        if x[lane] != _LOW or at[lane] != ends[lane]:
            return 4
    return 0
