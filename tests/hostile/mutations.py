"""Blind damage: truncations, flipped bits, and bytes altered without a look at what they mean."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.dice import Dice

EXTREMES = (0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


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
    dice = Dice(seed)
    for _ in range(count):
        damaged = blindly_damaged(data, dice)
        if damaged != data:
            yield damaged


def blindly_damaged(data: bytes, dice: Dice) -> bytes:
    """One to three random damages; now and then they cancel out."""
    damaged = bytearray(data)
    for _ in range(1 + dice.below(3)):
        damage(damaged, dice)
    return bytes(damaged)


def damage(damaged: bytearray, dice: Dice) -> None:
    """One random damage, in place."""
    at = dice.below(max(1, len(damaged)))
    size = 1 + dice.below(16)
    kind = dice.below(6)
    if kind == 0:
        damaged[at : at + 1] = bytes([dice.below(256)])
    elif kind == 1:
        damaged[at & ~3 : (at & ~3) + 4] = dice.pick(EXTREMES).to_bytes(4, "little")
    elif kind == 2:
        word = int.from_bytes(damaged[at & ~1 : (at & ~1) + 2], "little") + dice.below(5) - 2
        damaged[at & ~1 : (at & ~1) + 2] = (word & 0xFFFF).to_bytes(2, "little")
    elif kind == 3:
        del damaged[at : at + size]
    elif kind == 4:
        damaged[at:at] = damaged[at : at + size]
    else:
        other = dice.below(max(1, len(damaged) - size))
        damaged[at : at + size], damaged[other : other + size] = (
            damaged[other : other + size],
            damaged[at : at + size],
        )
