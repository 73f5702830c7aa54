"""`fast` blocks: gaps and steps in fixed-width symbols, no base needed (FORMAT.md, section 6.2)."""

# ruff: noqa: PLR0912, PLR0917 -- compiled loops take flat arguments and check as they go

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.cpu.sections import Sections
from sync_runtime.codec.limits import FRAME_SYMBOLS
from sync_runtime.codec.rules import fast_bytes, gap_bits, words32
from sync_runtime.errors import FormatError
from sync_runtime.tensors.dtypes import BITS_DTYPES
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import U32

_SKIP, _PLUS, _MINUS, _ESCAPE = 0, 1, 2, 3
_RAW_ESCAPE = 255
_MAX_STEP = 128
"""The largest |s| that an escape byte holds."""
_FAULTS = {
    1: "a frame's head disagrees with the symbols before it",
    2: "a position lies outside the block",
    3: "a run of skips is not in canonical form",
    4: "there are more changed elements, escapes or raw entries than announced",
    5: "an escape byte is not canonical",
    6: "the last symbol is a skip, or fewer changed elements came than announced",
}


def fast_size_bytes(positions: U32, differences: U32, num_elements: int, width_bits: int) -> int:
    """Body size, without writing it."""
    bits = gap_bits(num_elements, positions.size)
    symbols, escapes, raws = _measure(positions, differences, bits, width_bits)
    return fast_bytes(num_symbols=symbols, bits=bits, num_escapes=escapes, num_raw=raws, width_bits=width_bits)


def encode_fast(positions: U32, differences: U32, num_elements: int, width_bits: int) -> tuple[int, bytes]:
    """(b, body) of a block with at least one change."""
    bits = gap_bits(num_elements, positions.size)
    symbols, escapes, raws = _measure(positions, differences, bits, width_bits)
    frames = np.zeros((-(-symbols // FRAME_SYMBOLS), 3), np.uint32)
    words = np.zeros(words32(symbols * (bits + 2)) + 1, np.uint32)  # the writer stores ahead
    escape_bytes = np.zeros(escapes + -escapes % 4, np.uint8)
    raw = np.zeros(raws, np.uint32)
    _write(positions, differences, bits, width_bits, frames, words, escape_bytes, raw)
    raw_bytes = raw.astype(BITS_DTYPES[width_bits].newbyteorder("<")).tobytes()
    head = np.array([symbols, escapes, raws], "<u4").tobytes()
    parts = [
        head,
        frames.astype("<u4").tobytes(),
        words[:-1].astype("<u4").tobytes(),
        escape_bytes.tobytes(),
        raw_bytes,
    ]
    return bits, b"".join([*parts, bytes(-len(raw_bytes) % 4)])


def decode_fast(
    body: memoryview, *, bits: int, num_changed: int, num_elements: int, width_bits: int
) -> tuple[U32, U32]:
    """(positions, differences) of a body from anywhere; raises FormatError."""
    positions, differences = np.empty(num_changed, np.uint32), np.empty(num_changed, np.uint32)
    parts = _sections(body, bits, num_changed, num_elements, width_bits)
    fault = _read(*parts, bits, width_bits, num_elements, positions, differences)
    if fault:
        raise FormatError(f"a fast block is malformed: {_FAULTS[fault]}")
    return positions, differences


def _sections(
    body: memoryview, bits: int, num_changed: int, num_elements: int, width_bits: int
) -> tuple[int, U32, U32, NDArray[np.uint8], U32]:
    """Symbols and the four sections, their sizes checked against the body."""
    if not 1 <= num_changed <= num_elements or bits != gap_bits(num_elements, num_changed):
        raise FormatError("a fast block announces an impossible number of changes or another gap width than its own")
    sections = Sections(body)
    symbols, escapes, raws = (int(word) for word in sections.u32(3))
    if fast_bytes(num_symbols=symbols, bits=bits, num_escapes=escapes, num_raw=raws, width_bits=width_bits) != len(
        body
    ):
        raise FormatError("the sections of a fast block do not fill its body")
    frames = sections.u32(3 * -(-symbols // FRAME_SYMBOLS))
    words = sections.u32(words32(symbols * (bits + 2)))
    escape_bytes = sections.u8(escapes)
    raw = sections.elements(raws, width_bits)
    if symbols * (bits + 2) % 32 and words[-1] >> np.uint32(symbols * (bits + 2) % 32):
        raise FormatError("the bits after the last symbol are not zero")
    return symbols, frames, words, escape_bytes, raw


@compiled
def _measure(positions: U32, differences: U32, bits: int, width_bits: int) -> tuple[int, int, int]:
    symbols: Any = 0
    escapes: Any = 0
    raws: Any = 0
    previous: Any = -1
    full = 1 << width_bits
    round_up = (1 << bits) - 1
    for k in range(positions.size):
        high = (np.int64(positions[k]) - previous - 1) >> bits
        previous = np.int64(positions[k])
        symbols += 1 + ((high + round_up) >> bits)
        difference = np.int64(differences[k])
        magnitude = min(difference, full - difference)
        escapes += magnitude > 1
        raws += magnitude > _MAX_STEP
    return symbols, escapes, raws


@compiled
def _write(
    positions: U32,
    differences: U32,
    bits: int,
    width_bits: int,
    frames: NDArray[np.uint32],
    words: U32,
    escape_bytes: NDArray[np.uint8],
    raw: U32,
) -> None:
    """Longer than most: symbols, frames and escapes advance together."""
    full, half, low = 1 << width_bits, 1 << (width_bits - 1), (1 << bits) - 1
    held, fill, word = np.uint64(0), 0, 0
    symbol, escape, raws = 0, 0, 0
    covered: Any = 0
    field: Any
    previous: Any = -1
    for k in range(positions.size):
        gap = np.int64(positions[k]) - previous - 1
        previous = np.int64(positions[k])
        difference = np.int64(differences[k])
        step = difference if difference < half else difference - full
        magnitude = abs(step)
        high = gap >> bits
        skips = (high + low) >> bits
        for which in range(skips + 1):
            if symbol % FRAME_SYMBOLS == 0:
                frame = symbol // FRAME_SYMBOLS
                frames[frame, 0], frames[frame, 1], frames[frame, 2] = covered, escape, raws
            if which < skips:
                field = low if which + 1 < skips else (high - 1) & low
                covered += (field + 1) << bits
            else:
                field = gap & low
                covered += field + 1
                field |= (_ESCAPE if magnitude > 1 else _PLUS + (step < 0)) << bits
            held |= np.uint64(field) << np.uint64(fill)
            fill += bits + 2
            words[word] = held & np.uint64(0xFFFFFFFF)
            full_word = fill >> 5
            word += full_word
            held >>= np.uint64(full_word << 5)
            fill &= 31
            symbol += 1
        if magnitude > _MAX_STEP:
            escape_bytes[escape] = _RAW_ESCAPE
            raw[raws] = difference
            escape += 1
            raws += 1
        elif magnitude > 1:
            escape_bytes[escape] = 2 * (magnitude - 2) + (1 if step < 0 else 0)
            escape += 1
    words[word] = held & np.uint64(0xFFFFFFFF)


@compiled
def _escaped(escape: Any, width_bits: int) -> Any:
    """The difference of an escape byte below 254; 0 for one that is never written."""
    magnitude = 2 + (escape >> 1)
    if escape == 254 or (width_bits == 8 and escape >= 252 and escape != 253):
        return 0
    return (1 << width_bits) - magnitude if escape & 1 else magnitude


@compiled
def _read(
    symbols: int,
    frames: U32,
    words: U32,
    escape_bytes: NDArray[np.uint8],
    raw: U32,
    bits: int,
    width_bits: int,
    num_elements: int,
    positions: U32,
    differences: U32,
) -> int:
    """Fills positions and differences; returns a fault number, 0 for none. Longer than most: one pass, all checks."""
    low, minus = (1 << bits) - 1, (1 << width_bits) - 1
    select = np.uint64((1 << (bits + 2)) - 1)
    held, fill, word = np.uint64(0), 0, 0
    found, escape, raws = 0, 0, 0
    covered: Any = 0
    difference: Any
    skipping, open_run = False, True
    for symbol in range(symbols):
        if symbol % FRAME_SYMBOLS == 0:
            head = 3 * (symbol // FRAME_SYMBOLS)
            if frames[head] != covered or frames[head + 1] != escape or frames[head + 2] != raws:
                return 1
        if fill < bits + 2:
            held |= np.uint64(words[word]) << np.uint64(fill)
            word += 1
            fill += 32
        value = np.int64(held & select)
        held >>= np.uint64(bits + 2)
        fill -= bits + 2
        gap, code = value & low, value >> bits
        if code == _SKIP:
            if skipping and not open_run:
                return 3
            skipping, open_run = True, gap == low
            covered += (gap + 1) << bits
            if covered >= num_elements:
                return 2
            continue
        skipping = False
        covered += gap + 1
        if covered > num_elements:
            return 2
        if found == positions.size:
            return 4
        difference = 1 + (code >> 1) * (minus - 1)  # +1 or -1 without a branch: nothing predicts the sign
        if code == _ESCAPE:
            if escape == escape_bytes.size:
                return 4
            byte = np.int64(escape_bytes[escape])
            escape += 1
            if byte != _RAW_ESCAPE:
                difference = _escaped(byte, width_bits)
            elif raws == raw.size:
                return 4
            else:
                difference = np.int64(raw[raws])
                raws += 1
                if min(difference, minus + 1 - difference) <= _MAX_STEP:
                    return 5
            if difference == 0:
                return 5
        positions[found] = covered - 1
        differences[found] = difference
        found += 1
    if skipping or found != positions.size or escape != escape_bytes.size or raws != raw.size:
        return 6
    return 0
