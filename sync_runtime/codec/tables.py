"""Probability tables: built from histograms, written, parsed (FORMAT.md, section 7). Integers only.

Ranks add their histograms and then build equal tables, so this module is shared by CPU and GPU and needs numpy alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.rules import PROBABILITY_ONE, SAMPLE_EVERY, SAMPLED_GROUP_ELEMENTS, pad4
from sync_runtime.errors import FormatError, TruncatedError
from sync_runtime.tensors.blocks import BlockMap, Group
from sync_runtime.tensors.dtypes import BY_CODE

MAX_CONTEXTS = 256
MAX_CLASSES = 32
_VALUE, _POSITION = 1, 2
_HEAD = struct.Struct("<BBHHH")

Counts = NDArray[np.int64]


@dataclass
class Histograms:
    """What the tables are built from; adding two is adding what two ranks saw."""

    elements: dict[int, Counts] = field(default_factory=dict)
    """Per group: elements per context, sampled where `is_sampled`."""
    changed: dict[int, Counts] = field(default_factory=dict)
    """Per group: changed elements per context."""
    classes: dict[int, Counts] = field(default_factory=dict)
    """Per dtype code: changed elements per context and step class."""

    def add(self, other: Histograms) -> None:
        """Adds another rank's or block's counts."""
        for mine, theirs in (
            (self.elements, other.elements),
            (self.changed, other.changed),
            (self.classes, other.classes),
        ):
            for key, counts in theirs.items():
                mine[key] = mine[key] + counts if key in mine else counts.copy()


def num_counts(blocks: BlockMap) -> int:
    """Counts that a rank of a layout hands over, whichever blocks it has."""
    return 2 * len(blocks.groups) * MAX_CONTEXTS + len(_codes(blocks)) * MAX_CONTEXTS * MAX_CLASSES


def histograms_of(counts: Counts, blocks: BlockMap) -> Histograms:
    """All ranks' counts, added up, as what tables are built from; raises FormatError where they contradict themselves.

    Counts come in this order: elements by group and context, changed ones by group and context, changed ones by dtype,
    context and class (PROTOCOL.md, section 6, Ranks).
    """
    groups, codes = blocks.groups, _codes(blocks)
    rows = len(groups) * MAX_CONTEXTS
    elements = counts[:rows].reshape(-1, MAX_CONTEXTS)
    changed = counts[rows : 2 * rows].reshape(-1, MAX_CONTEXTS)
    classes = counts[2 * rows :].reshape(-1, MAX_CONTEXTS, MAX_CLASSES)
    sizes = np.array([group.num_elements for group in groups], np.int64)
    if counts.size and (counts.min() < 0 or counts.max() > sizes.max()):
        raise FormatError("ranks counted more elements than the layout has")
    if (elements.sum(1) > sizes).any() or (changed.sum(1) > sizes).any():
        raise FormatError("ranks counted more elements than a group of tensors has")
    for code, by_class in zip(codes, classes, strict=True):
        mine = [at for at, group in enumerate(groups) if group.dtype.code == code]
        if (changed[mine].sum(0) != by_class.sum(1)).any():
            raise FormatError("ranks counted other changes by context than by class")
    return Histograms(
        elements=dict(enumerate(elements)),
        changed=dict(enumerate(changed)),
        classes=dict(zip(codes, classes, strict=True)),
    )


def _codes(blocks: BlockMap) -> list[int]:
    return sorted({group.dtype.code for group in blocks.groups})


@dataclass(frozen=True)
class Tables:
    """What tight blocks are coded under."""

    position: Mapping[int, NDArray[np.uint32]]
    """Per group: probability of a change per context, of 2^15."""
    value: Mapping[int, NDArray[np.uint32]]
    """Per dtype code: contexts by classes; the frequencies of a context with an entry sum to 2^15."""


def is_sampled(group: Group) -> bool:
    """Whether only every sixteenth run of the group's elements is counted."""
    return group.num_elements >= SAMPLED_GROUP_ELEMENTS


def build_tables(histograms: Histograms, groups: Sequence[Group]) -> Tables:
    """The canonical tables of an object."""
    position = {
        number: _position_table(counts, histograms.elements[number], sampled=is_sampled(groups[number]))
        for number, counts in histograms.changed.items()
        if counts.any()
    }
    value = {code: value_table(counts) for code, counts in histograms.classes.items() if counts.any()}
    return Tables(position, value)


def _position_table(changed: Counts, elements: Counts, *, sampled: bool) -> NDArray[np.uint32]:
    total = elements * SAMPLE_EVERY + SAMPLE_EVERY // 2 if sampled else elements
    scaled = (changed * PROBABILITY_ONE + total // 2) // np.maximum(np.maximum(total, changed), 1)
    clipped = np.clip(scaled, 1, PROBABILITY_ONE - 1)
    return np.where(changed > 0, clipped, 0).astype(np.uint32)


def value_table(counts: Counts) -> NDArray[np.uint32]:
    """Frequencies per context from class counts."""
    return np.stack([normalised(row, PROBABILITY_ONE) for row in counts])


def normalised(counts: Counts, one: int) -> NDArray[np.uint32]:
    """Frequencies that sum to `one`, none lost; all zero where nothing was counted."""
    total = int(counts.sum())
    if not total:
        return np.zeros(counts.shape, np.uint32)
    present = counts > 0
    frequencies = np.where(present, 1 + counts * (one - int(present.sum())) // total, 0)
    frequencies[int(np.argmax(counts))] += one - int(frequencies.sum())  # argmax: the lowest of equals
    return frequencies.astype(np.uint32)


def pack_tables(tables: Tables) -> bytes:
    """The tables section."""
    parts = []
    for code in sorted(tables.value):
        table = tables.value[code]
        first, end = _used(table.max(axis=1) > 0)
        parts.append(_HEAD.pack(_VALUE, 0, code, first, end - first))
        parts.extend(_pack_classes(row) for row in table[first:end])
        parts.append(_padding(parts))
    for group in sorted(tables.position):
        row = tables.position[group]
        first, end = _used(row > 0)
        parts.append(_HEAD.pack(_POSITION, 0, group, first, end - first))
        parts.append(row[first:end].astype("<u2").tobytes())
        parts.append(_padding(parts))
    return b"".join(parts)


def parse_tables(section: memoryview, groups: Sequence[Group]) -> Tables:
    """Reads a tables section; raises FormatError for anything a writer would not write."""
    position: dict[int, NDArray[np.uint32]] = {}
    value: dict[int, NDArray[np.uint32]] = {}
    at, previous = 0, (0, -1)
    while at < len(section):
        if len(section) - at < _HEAD.size:
            raise TruncatedError("the tables section ends inside a head")
        kind, reserved, index, first, count = _HEAD.unpack_from(section, at)
        if (kind, index) <= previous or kind not in (_VALUE, _POSITION) or reserved or not count:
            raise FormatError("a table's head is malformed or out of order")
        if (kind == _VALUE and index not in BY_CODE) or (kind == _POSITION and index >= len(groups)):
            raise FormatError(f"there is a table for number {index}, which does not exist")
        dtype = BY_CODE[index] if kind == _VALUE else groups[index].dtype
        if first + count > dtype.num_contexts:
            raise FormatError("a table has more contexts than its dtype")
        body = section[at + _HEAD.size :]
        if kind == _VALUE:
            value[index], used = _parse_value(body, first, count, dtype.width_bits)
        else:
            position[index], used = _parse_position(body, first, count)
        end = at + _HEAD.size + used
        at = pad4(end)
        if at > len(section) or any(section[end:at]):
            raise FormatError("a table's padding is missing or not zero")
        previous = (kind, index)
    return Tables(position, value)


def _parse_position(body: memoryview, first: int, count: int) -> tuple[NDArray[np.uint32], int]:
    if len(body) < 2 * count:
        raise TruncatedError("the tables section ends inside a position table")
    row = np.zeros(MAX_CONTEXTS, np.uint32)
    row[first : first + count] = np.frombuffer(body[: 2 * count], "<u2")
    if row.max() >= PROBABILITY_ONE or not row[first] or not row[first + count - 1]:
        raise FormatError("a position table has an entry that is too large, or empty ends")
    return row, 2 * count


def _parse_value(body: memoryview, first: int, count: int, num_classes: int) -> tuple[NDArray[np.uint32], int]:
    """Follows the masks first, then reads all frequencies at once: a decoder waits for this."""
    masks, starts, size = _value_masks(body, count)
    if not masks[0] or not masks[-1] or any(mask >> num_classes for mask in masks):
        raise FormatError("a value table has empty ends, or classes that its dtype does not have")
    if size > len(body):
        raise TruncatedError("the tables section ends inside a value table")
    present = (np.array(masks, np.int64)[:, None] >> np.arange(MAX_CLASSES)) & 1 > 0  # [contexts, classes]
    places = np.array(starts)[:, None] // 2 + np.cumsum(present, axis=1) - 1
    words = np.frombuffer(body[:size], "<u2")
    rows = np.where(present, words[np.where(present, places, 0)], 0).astype(np.uint32)
    if (present & (rows == 0)).any() or (present.any(axis=1) & (rows.sum(axis=1) != PROBABILITY_ONE)).any():
        raise FormatError("the frequencies of a value context do not sum to one")
    table = np.zeros((MAX_CONTEXTS, MAX_CLASSES), np.uint32)
    table[first : first + count] = rows
    return table, size


def _value_masks(body: memoryview, count: int) -> tuple[list[int], list[int], int]:
    """Masks of the classes present, where each context's frequencies start, and the bytes of all."""
    masks, starts, at = [], [], 0
    for _ in range(count):
        if len(body) - at < 4:
            raise TruncatedError("the tables section ends inside a value table")
        masks.append(int.from_bytes(body[at : at + 4], "little"))
        starts.append(at + 4)
        at += 4 + 2 * masks[-1].bit_count()
    return masks, starts, at


def _pack_classes(row: NDArray[np.uint32]) -> bytes:
    present = np.flatnonzero(row)
    mask = sum(1 << int(number) for number in present)
    return mask.to_bytes(4, "little") + row[present].astype("<u2").tobytes()


def _used(present: NDArray[np.bool_]) -> tuple[int, int]:
    at = np.flatnonzero(present)
    return int(at[0]), int(at[-1]) + 1


def _padding(parts: list[bytes]) -> bytes:
    return bytes(-sum(map(len, parts)) % 4)
