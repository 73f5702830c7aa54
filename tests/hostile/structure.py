"""Objects taken apart at their seams, changed there, and put together again with sizes that fit.

Blind damage rarely gets past the first size check. Here sizes are repaired after the change, so that the checks behind
them are met; sums that are checked (frequencies, lanes' words) are kept by moving an amount from one word to another.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from sync_runtime.codec.limits import END_BLOCK, ENTRY_BYTES, HEADER_BYTES
from tests.hostile.dice import Dice
from tests.hostile.mutations import EXTREMES

_ENTRY = struct.Struct("<IBBHII")
_SMALL = (1, 2, 3, 4, 8, 16, 255, 256)


@dataclass
class Parts:
    """An object's header, tables, records (entry, body) and what follows the last of them."""

    header: bytearray
    tables: bytearray
    records: list[tuple[bytearray, bytearray]]
    rest: bytearray

    def joined(self) -> bytes:
        """The object; sizes are those of the parts."""
        self.header[24:28] = len(self.tables).to_bytes(4, "little")
        for entry, body in self.records:
            entry[12:16] = len(body).to_bytes(4, "little")
        pieces = [self.header, self.tables, *(piece for record in self.records for piece in record), self.rest]
        return b"".join(pieces)


def split(data: bytes) -> Parts | None:
    """The parts of an object whose sizes are sound; None for any other."""
    if len(data) < HEADER_BYTES:
        return None
    at = HEADER_BYTES + int.from_bytes(data[24:28], "little")
    if at > len(data):
        return None
    parts = Parts(bytearray(data[:HEADER_BYTES]), bytearray(data[HEADER_BYTES:at]), [], bytearray())
    while len(data) - at >= ENTRY_BYTES:
        block, *_, body_bytes = _ENTRY.unpack_from(data, at)
        end = at + ENTRY_BYTES + body_bytes
        if block == END_BLOCK or end > len(data):
            break
        parts.records.append((bytearray(data[at : at + ENTRY_BYTES]), bytearray(data[at + ENTRY_BYTES : end])))
        at = end
    parts.rest = bytearray(data[at:])
    return parts


def altered(data: bytes, other: bytes, dice: Dice) -> bytes:
    """One change at a seam; `other` lends records and bodies. Bytes without seams come back as they are."""
    parts, lender = split(data), split(other)
    if parts is None:
        return data
    change = dice.pick(_CHANGES)
    change(parts, lender or parts, dice)
    return parts.joined()


def _header(parts: Parts, lender: Parts, dice: Dice) -> None:
    if dice.chance(30):
        parts.header[6:8] = dice.pick((b"\1\1", b"\1\2", b"\1\3", b"\2\0"))  # kinds and codecs that go together
        return
    field = dice.pick((0, 4, 5, 6, 6, 7, 7, 8, 28))
    parts.header[field] = dice.pick((0, 1, 2, 3, 4, 5, 255))


def _entry(parts: Parts, lender: Parts, dice: Dice) -> None:
    if not parts.records:
        return
    entry, _ = dice.pick(parts.records)
    fields = list(_ENTRY.unpack(entry))
    which = dice.pick((0, 1, 2, 3, 4, 4))
    sizes = (0xFFFFFFFF, 0xFF, 0xFF, 0xFFFF, 0xFFFFFFFF)
    step = dice.pick((-2, -1, 1, 2))
    fields[which] = (fields[which] + step if dice.chance(70) else dice.pick(EXTREMES)) & sizes[which]
    entry[:] = _ENTRY.pack(*fields)


def _word(parts: Parts, lender: Parts, dice: Dice) -> None:
    """A word of a body or of the tables: near its front half of the time, where the counts are."""
    region, width = _region(parts, dice), dice.pick((1, 2, 2, 4))
    count = len(region) // width
    if not count:
        return
    at = width * dice.below(min(count, 16 // width) if dice.chance(50) else count)
    value = int.from_bytes(region[at : at + width], "little")
    step = dice.pick(_SMALL)
    choices = (value + step, value - step, value ^ (1 << dice.below(8 * width)), dice.pick(EXTREMES))
    region[at : at + width] = (dice.pick(choices) & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _transfer(parts: Parts, lender: Parts, dice: Dice) -> None:
    """An amount from one 16-bit word to another: their sum stays."""
    region = _region(parts, dice)
    count = len(region) // 2
    if count < 2:
        return
    giver, taker = 2 * dice.below(count), 2 * dice.below(count)
    amount = min(dice.pick((*_SMALL, 1 << 12, 1 << 15)), int.from_bytes(region[giver : giver + 2], "little"))
    for at, change in ((giver, -amount), (taker, amount)):
        value = int.from_bytes(region[at : at + 2], "little") + change
        region[at : at + 2] = (value & 0xFFFF).to_bytes(2, "little")


def _resize(parts: Parts, lender: Parts, dice: Dice) -> None:
    """Whole words cut out, doubled, or zeros added, at any place or at the end."""
    region = _region(parts, dice)
    size = 4 * (1 + dice.below(3))
    at = len(region) if dice.chance(40) else 4 * dice.below(len(region) // 4 + 1)
    kind = dice.below(3)
    if kind == 0:
        del region[max(0, at - size) : at]
    elif kind == 1:
        region[at:at] = region[max(0, at - size) : at]
    else:
        region[at:at] = bytes(size)


def _high_bit(parts: Parts, lender: Parts, dice: Dice) -> None:
    """A bit near the end of a region, where padding is."""
    region = _region(parts, dice)
    if region:
        region[-1 - dice.below(min(4, len(region)))] ^= 1 << dice.below(8)


def _records(parts: Parts, lender: Parts, dice: Dice) -> None:
    """Records dropped, doubled, exchanged or taken from elsewhere."""
    kind = dice.below(4)
    if kind == 0 and parts.records:
        del parts.records[dice.below(len(parts.records))]
    elif kind == 1 and lender.records:
        entry, body = dice.pick(lender.records)
        parts.records.insert(dice.below(len(parts.records) + 1), (bytearray(entry), bytearray(body)))
    elif kind == 2 and len(parts.records) > 1:
        at = dice.below(len(parts.records) - 1)
        parts.records[at], parts.records[at + 1] = parts.records[at + 1], parts.records[at]
    elif kind == 3 and lender.records and parts.records:
        entry, body = dice.pick(lender.records)
        parts.records[dice.below(len(parts.records))] = (bytearray(entry), bytearray(body))


def _splice(parts: Parts, lender: Parts, dice: Dice) -> None:
    """The front of one body and the end of another; or the whole tables of another object."""
    if dice.chance(25):
        parts.tables[:] = lender.tables
    elif parts.records and lender.records:
        _, body = dice.pick(parts.records)
        _, tail = dice.pick(lender.records)
        at = 4 * dice.below(len(body) // 4 + 1)
        body[at:] = tail[min(at, len(tail)) :]


def _end(parts: Parts, lender: Parts, dice: Dice) -> None:
    if dice.chance(30):
        parts.rest += bytes(4)
    elif parts.rest:
        parts.rest[dice.below(len(parts.rest))] ^= 1 << dice.below(8)


def _region(parts: Parts, dice: Dice) -> bytearray:
    bodies = [body for _, body in parts.records]
    return parts.tables if not bodies or (parts.tables and dice.chance(25)) else dice.pick(bodies)


_CHANGES: tuple[Callable[[Parts, Parts, Dice], None], ...] = (
    _word, _word, _word, _transfer, _transfer, _resize, _entry, _entry, _high_bit, _records, _splice, _header, _end,
)  # fmt: skip
"""Those that find most come more than once."""
