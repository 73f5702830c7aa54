"""Staged streams on their way to a GPU: deltas are kept until they are whole, anchors are used block by block."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sync_runtime.codec.limits import ENTRY_BYTES, HEADER_BYTES, MAX_TABLES_BYTES
from sync_runtime.errors import LimitError, LocalProtocolError, WrongBaseError
from sync_runtime.library.coders import Receiver
from sync_runtime.library.device_anchors import AnchorReader
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import Stage, VersionRef
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.digest import Digest, parse_digest

Layer = tuple[ChangeList, ...]
"""New bits, by section."""


class StageTarget(Protocol):
    """What receivers hand their bytes to."""

    def decode(self, data: memoryview, under: Layer | None, step: Digest) -> Layer:
        """A delta's list over what is staged; raises DigestError where it does not add `step` to the digest."""

    def write(self, block: Block, bits: torch.Tensor) -> None:
        """A block of whole weights, into the live tensors."""

    def check_whole(self, promised: str) -> Layer:
        """Whole weights have come; raises DigestError where they are not the version."""

    def repair(self, blocks: list[tuple[Block, torch.Tensor]]) -> Layer:
        """What differs between the live weights and blocks as they should be."""


def receiver_for(target: StageTarget, weights: Weights, stage: Stage) -> Receiver:
    """A delta; or whole blocks, for weights that are no version or for a repair."""
    if stage.form != "object":
        raise LocalProtocolError("lists and states are for coder `sidecar`; this one takes objects")
    if stage.base is None:
        return _WholeReceiver(target, weights, stage)
    if stage.base == VersionRef(stage.lineage, stage.seq):
        return _RepairReceiver(target, weights, stage)
    return _DeltaReceiver(target, weights, stage)


class _DeltaReceiver:
    def __init__(self, target: StageTarget, weights: Weights, stage: Stage) -> None:
        dense = weights.state_bytes + (ENTRY_BYTES + 4) * (weights.blocks.num_blocks + 1)
        limit = HEADER_BYTES + MAX_TABLES_BYTES + dense
        if stage.bytes > limit:
            raise LimitError(f"an object of {stage.bytes} bytes is announced; the layout allows {limit}")
        self._target, self._stage, self._filled = target, stage, 0
        self._is_part = weights.is_part  # of several ranks: only the blocks that it holds come
        self._data: NDArray[np.uint8] = np.empty(stage.bytes, np.uint8)

    def feed(self, data: memoryview) -> None:
        end = self._filled + len(data)
        if end > self._data.size:
            raise LocalProtocolError("an object is longer than was announced")
        self._data[self._filled : end] = np.frombuffer(data, np.uint8)
        self._filled = end

    def finish(self, base: Version | None, under: Layer | None) -> Layer:
        if self._filled != self._data.size and not self._is_part:
            raise LocalProtocolError("an object is shorter than was announced")
        if base is None:
            raise WrongBaseError("a delta came where there is no version")
        step = parse_digest(self._stage.digest).minus(parse_digest(base.digest))
        return self._target.decode(self._data[: self._filled].data, under, step)


class _WholeReceiver:
    """Writes blocks as they come: the weights are nobody's until all are there and the digest is right."""

    def __init__(self, target: StageTarget, weights: Weights, stage: Stage) -> None:
        self._target, self._stage, self._blocks = target, stage, weights.blocks
        self._reader = AnchorReader(weights.blocks, stage.seq, target.write)

    def feed(self, data: memoryview) -> None:
        self._reader.feed(data)

    def finish(self, base: Version | None, under: Layer | None) -> Layer:
        self._reader.finish()
        return self._target.check_whole(self._stage.digest)


class _RepairReceiver:
    """Keeps blocks until all are there: live weights are in use, wrong as they are."""

    def __init__(self, target: StageTarget, weights: Weights, stage: Stage) -> None:
        self._target = target
        self._kept: list[tuple[Block, torch.Tensor]] = []
        self._reader = AnchorReader(weights.blocks, stage.seq, lambda block, bits: self._kept.append((block, bits)))

    def feed(self, data: memoryview) -> None:
        self._reader.feed(data)

    def finish(self, base: Version | None, under: Layer | None) -> Layer:
        self._reader.finish()
        return self._target.repair(self._kept)
