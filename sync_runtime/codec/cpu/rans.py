"""Lanes of rANS: the compiled loops of `tight` and of anchors (FORMAT.md, sections 6.3 and 8).

State 32 bits in 64-bit registers, words of 16 bits. Step by step, all lanes of a step together: the chains are
independent, so one core overlaps them, and decoded positions come out in order. Faults are numbers: see FAULTS.

The three coders put and take a symbol in the same few lines, which stand in each of them: as a function of their own
that takes the lanes' arrays and branches, they made the loops many times slower (the arrays' reference counts
then go up and down with every symbol). What happens once per block is shared.
"""

# ruff: noqa: PLR0917 -- compiled loops take flat arguments and check as they go

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.rules import ANCHOR_BITS, ANCHOR_ONE, PROBABILITY_BITS, PROBABILITY_ONE, STATE_LOW
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import U32, Bits

U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

_BAD_STATE, _NO_WORD, _TOO_MANY, _BAD_END, _TOO_FEW, _NO_TABLE = 1, 2, 3, 4, 5, 6
FAULTS = {
    _BAD_STATE: "a lane's state is out of range",
    _NO_WORD: "a lane needs more words than it has",
    _TOO_MANY: "more elements are decoded as changed than announced",
    _BAD_END: "a lane does not end where it must: altered bytes, or another base than the coded one",
    _TOO_FEW: "fewer elements are decoded as changed than announced",
    _NO_TABLE: "a changed element has a context without a table",
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
_NONE = np.uint64(0)


@compiled
def _pushed(state: Any, f: Any, start: Any, bits: Any) -> Any:
    """A lane's state with one symbol more, of frequency f out of 2^bits."""
    quotient = np.uint64(np.uint32(state) // np.uint32(f))
    return (quotient << bits) + (state - quotient * f) + start


@compiled
def _finish(x: U64, at: I64, cap: Any, states: U32, counts: I64) -> None:
    """What a body says of every lane."""
    for lane in range(x.size):
        states[lane] = x[lane]
        counts[lane] = cap - at[lane]


@compiled
def _begin(states: U32, ends: I64) -> tuple[bool, U64, I64]:
    """(whether all states are in range, states, where each lane's words begin)."""
    x = np.empty(states.size, np.uint64)
    at = np.zeros(states.size, np.int64)
    sound = True
    for lane in range(states.size):
        x[lane] = states[lane]
        sound = sound and x[lane] >= _LOW
        if lane:
            at[lane] = ends[lane - 1]
    return sound, x, at


@compiled
def _ended(x: U64, at: I64, ends: I64) -> bool:
    """Whether every lane is where its encoder began."""
    for lane in range(x.size):
        if x[lane] != _LOW or at[lane] != ends[lane]:
            return False
    return True


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
            f, start = _ONE - p, p
            if changed[first + lane]:
                f, start = p, _NONE
            state = x[lane]
            if state >> _SPILL >= f:
                at[lane] -= 1
                words[lane, at[lane]] = state & _WORD_MASK
                state >>= _WORD
            x[lane] = _pushed(state, f, start, _BITS)
    _finish(x, at, cap, states, counts)


@compiled
def decode_positions(
    old: Bits, shift: int, mask: int, table: U32, words: U16, ends: I64, states: U32, positions: U32
) -> int:
    """Fills `positions`; the words of lane j are those before ends[j]. Returns a fault, 0 for none."""
    sound, x, at = _begin(states, ends)
    if not sound:
        return _BAD_STATE
    lanes = states.size
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
                    return _TOO_MANY
                positions[found] = first + lane
                found += 1
                state = p * (state >> _BITS) + slot
            else:
                state = (_ONE - p) * (state >> _BITS) + slot - p
            if state < _LOW:
                if at[lane] == ends[lane]:
                    return _NO_WORD
                state = (state << _WORD) | np.uint64(words[at[lane]])
                at[lane] += 1
            x[lane] = state
    if not _ended(x, at, ends):
        return _BAD_END
    return 0 if found == positions.size else _TOO_FEW


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
        x[lane] = _pushed(state, f, np.uint64(starts[contexts[k], classes[k]]), _BITS)
    _finish(x, at, cap, states, counts)


@compiled
def decode_classes(contexts: U8, frequencies: U32, words: U16, ends: I64, states: U32, classes: U8) -> int:
    """Fills `classes`. Returns a fault, 0 for none."""
    sound, x, at = _begin(states, ends)
    if not sound:
        return _BAD_STATE
    lanes = states.size
    for k in range(classes.size):
        lane = k % lanes
        state = x[lane]
        slot = state & _SLOT
        number, start = 0, _NONE
        f = np.uint64(frequencies[contexts[k], 0])
        while slot >= start + f:
            start += f
            number += 1
            if number == frequencies.shape[1]:
                return _NO_TABLE
            f = np.uint64(frequencies[contexts[k], number])
        classes[k] = number
        state = f * (state >> _BITS) + slot - start
        if state < _LOW:
            if at[lane] == ends[lane]:
                return _NO_WORD
            state = (state << _WORD) | np.uint64(words[at[lane]])
            at[lane] += 1
        x[lane] = state
    return 0 if _ended(x, at, ends) else _BAD_END


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
            x[lane] = _pushed(state, f, np.uint64(starts[context]), _A_BITS)
    _finish(x, at, cap, states, counts)


@compiled
def decode_contexts(table: U32, words: U16, ends: I64, states: U32, contexts: U8) -> int:
    """Fills `contexts`; the table sums to 2^12. Returns a fault, 0 for none."""
    sound, x, at = _begin(states, ends)
    if not sound:
        return _BAD_STATE
    lanes = states.size
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
                    return _NO_WORD
                state = (state << _WORD) | np.uint64(words[at[lane]])
                at[lane] += 1
            x[lane] = state
    return 0 if _ended(x, at, ends) else _BAD_END
