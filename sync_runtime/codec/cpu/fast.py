"""`fast` blocks: gaps and steps in fixed-width symbols, no base needed (FORMAT.md, section 6.2)."""

# ruff: noqa: PLR0912, PLR0915, PLR0917 -- compiled loops take flat arguments and check as they go

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.cpu.sections import Sections
from sync_runtime.codec.limits import FRAME_SYMBOLS
from sync_runtime.codec.rules import fast_bytes, gap_bits, words32
from sync_runtime.errors import FormatError, TruncatedError
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
    7: "the bits after the end of a section are not zero",
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
    if not 1 <= num_changed <= num_elements or bits != gap_bits(num_elements, num_changed):
        raise FormatError("a fast block announces an impossible number of changes or another gap width than its own")
    if len(body) < 12:
        raise TruncatedError("a fast block is cut off")
    sections = Sections(body)
    view = sections.u32(len(body) // 4)
    symbols, escapes, raws = view[:3].tolist()
    size = fast_bytes(num_symbols=symbols, bits=bits, num_escapes=escapes, num_raw=raws, width_bits=width_bits)
    if size != len(body) or symbols < num_changed:  # so the lists below are bounded by bytes that are here
        raise FormatError("the sections of a fast block do not fill its body, or are too small for its changes")
    positions, differences = np.empty(num_changed, np.uint32), np.empty(num_changed, np.uint32)
    fault = _read(view, bits, width_bits, num_elements, positions, differences)
    if fault:
        raise FormatError(f"a fast block is malformed: {_FAULTS[fault]}")
    return positions, differences


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
def _put(words: U32, word: int, held: np.uint64, fill: int, field: Any, size: int) -> tuple[int, np.uint64, int]:
    """Appends a symbol to a bit string; stores ahead, so that only the index depends on what is full."""
    held |= np.uint64(field) << np.uint64(fill)
    fill += size
    words[word] = held & np.uint64(0xFFFFFFFF)
    full_words = fill >> 5
    return word + full_words, held >> np.uint64(full_words << 5), fill & 31


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
    for k in range(positions.size):
        gap = np.int64(positions[k]) - covered
        difference = np.int64(differences[k])
        negative = np.int64(difference >= half)
        magnitude = full - difference if negative else difference
        high = gap >> bits
        for left in range((high + low) >> bits, -1, -1):  # the skips, then room for the element
            if symbol % FRAME_SYMBOLS == 0:
                frame = symbol // FRAME_SYMBOLS
                frames[frame, 0], frames[frame, 1], frames[frame, 2] = covered, escape, raws
            symbol += 1
            if left:
                field = low if left > 1 else (high - 1) & low
                covered += (field + 1) << bits
                word, held, fill = _put(words, word, held, fill, field, bits + 2)
        covered = np.int64(positions[k]) + 1
        code: Any = _PLUS + negative
        if magnitude > 1:
            code = _ESCAPE
            if magnitude > _MAX_STEP:
                escape_bytes[escape] = _RAW_ESCAPE
                raw[raws] = difference
                raws += 1
            else:
                escape_bytes[escape] = 2 * (magnitude - 2) + negative
            escape += 1
        word, held, fill = _put(words, word, held, fill, (gap & low) | (code << bits), bits + 2)
    words[word] = held & np.uint64(0xFFFFFFFF)


@compiled
def _escaped(escape: Any, width_bits: int) -> Any:
    """The difference of an escape byte below 254; 0 for one that is never written."""
    magnitude = 2 + (escape >> 1)
    if escape == 254 or (width_bits == 8 and escape >= 252 and escape != 253):
        return 0
    return (1 << width_bits) - magnitude if escape & 1 else magnitude


@compiled
def _field(words: U32, at: Any, size: Any) -> Any:
    """`size` bits (8, 16 or 32) of a string of such fields; a field never crosses a word."""
    return (np.int64(words[(at * size) >> 5]) >> ((at * size) & 31)) & ((1 << size) - 1)


@compiled
def _is_padded(words: U32, used_bits: Any) -> Any:
    """Whether the rest of the last word is zero."""
    return used_bits & 31 == 0 or words[words.size - 1] >> np.uint32(used_bits & 31) == 0


@compiled
def _read(body: U32, bits: int, width_bits: int, num_elements: int, positions: U32, differences: U32) -> int:
    """Fills positions and differences; returns a fault number, 0 for none. Longer than most: one pass, all checks.

    The sections are known to fill the body.
    """
    symbols, escapes, raws = np.int64(body[0]), np.int64(body[1]), np.int64(body[2])
    words_at = 3 + 3 * ((symbols + FRAME_SYMBOLS - 1) // FRAME_SYMBOLS)
    escapes_at = words_at + ((symbols * (bits + 2) + 31) >> 5)
    raws_at = escapes_at + ((escapes + 3) >> 2)
    words, escape_words, raw_words = body[words_at:escapes_at], body[escapes_at:raws_at], body[raws_at:]
    if not (
        _is_padded(words, symbols * (bits + 2))
        and _is_padded(escape_words, 8 * escapes)
        and _is_padded(raw_words, width_bits * raws)
    ):
        return 7
    low, minus = (1 << bits) - 1, (1 << width_bits) - 1
    select = np.uint64((1 << (bits + 2)) - 1)
    held, fill, word = np.uint64(0), 0, 0
    found, escape, raw = 0, 0, 0
    covered: Any = 0
    difference: Any
    skipping, open_run = False, True
    for symbol in range(symbols):
        if symbol % FRAME_SYMBOLS == 0:
            head = 3 + 3 * (symbol // FRAME_SYMBOLS)
            if body[head] != covered or body[head + 1] != escape or body[head + 2] != raw:
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
            if escape == escapes:
                return 4
            byte = _field(escape_words, escape, 8)
            escape += 1
            if byte != _RAW_ESCAPE:
                difference = _escaped(byte, width_bits)
            elif raw == raws:
                return 4
            else:
                difference = _field(raw_words, raw, width_bits)
                raw += 1
                if min(difference, minus + 1 - difference) <= _MAX_STEP:
                    return 5
            if difference == 0:
                return 5
        positions[found] = covered - 1
        differences[found] = difference
        found += 1
    if skipping or found != positions.size or escape != escapes or raw != raws:
        return 6
    return 0
