"""A publisher's rank that has nothing to count: fewer rows than ranks, or copies of what others have.

It takes part in every version with an object of no blocks, so that the others need not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sync_runtime.codec.frame import END_RECORD, Header, pack_header
from sync_runtime.codec.limits import CODEC_NUMBERS, KIND_DELTA, LAYOUT_HASH_BYTES
from sync_runtime.codec.tables import num_counts
from sync_runtime.errors import LocalProtocolError
from sync_runtime.library.coders import Encoded, Opening
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import End, Opened, Totals
from sync_runtime.tensors.digest import ZERO

NOTHING = str(ZERO)
"""The digest of no elements."""


class IdlePublisher:
    """Nothing, again and again."""

    def __init__(self, weights: Weights) -> None:
        self._layout, self._blocks = weights.layout, weights.blocks
        self._totals = Totals("fast", 0, 0, NOTHING, NOTHING * len(weights.layout.tensors))

    def opening(self) -> Opening:
        """The digest of nothing."""
        return Opening((NOTHING,), None)

    def opened(self, opened: Opened) -> None:
        """There is no snapshot to take over."""

    def resuming(self) -> tuple[str, ...]:
        """It can go on from anything."""
        return (NOTHING,)

    def resumed(self, opened: Opened) -> None:
        """There is no snapshot to bring level."""

    def encode(self) -> Encoded:
        """An object of no blocks."""
        return self._nothing(self._totals, b"")

    def count(self) -> Iterable[memoryview]:
        """Nothing was counted."""
        return (memoryview(bytes(8 * num_counts(self._blocks))),)

    def recode(self, tables: bytes | None) -> Encoded:
        """The others' tables, and no blocks."""
        return self._nothing(replace(self._totals, codec="tight"), tables or b"")

    def _nothing(self, totals: Totals, tables: bytes) -> Encoded:
        codec = CODEC_NUMBERS[totals.codec]
        header = Header(KIND_DELTA, codec, self._layout.hash[:LAYOUT_HASH_BYTES], len(tables))
        return Encoded((memoryview(pack_header(header) + tables + END_RECORD),), lambda: End(totals, {}))

    def published(self, digest: str) -> None:
        """There is no snapshot that follows."""

    def anchor(self, seq: int, blocks: list[int]) -> Iterable[memoryview]:
        """Nobody asks a rank for blocks that it does not count."""
        raise LocalProtocolError(f"version {seq}: blocks were asked for that another rank has")
