"""A publisher whose weights are on a GPU: extracts, encodes and digests there; the sidecar gets finished bytes.

The snapshot is the last durable version. It advances by the extracted differences, and only when the sidecar has said
that the version is durable; if that word was lost, both states are offered when the sidecar is back.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from sync_runtime.codec.gpu.encode import DeltaEncoder, EncodedObject
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.codec.limits import CODEC_FAST, CODEC_TIGHT
from sync_runtime.codec.tables import parse_tables
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.delta.kernels.scrub import tensor_digests
from sync_runtime.delta.snapshot import DeviceSnapshot
from sync_runtime.errors import LayoutError, LocalError, LocalProtocolError
from sync_runtime.library.coders import Encoded, Opening
from sync_runtime.library.device_anchors import anchor_chunks
from sync_runtime.library.device_state import LiveState, Sums, on_device
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import End, Opened, Totals
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.sections import sections_of
from sync_runtime.tensors.digest import ZERO, Digest, total

Digests = tuple[Digest, ...]
"""Per tensor of the layout."""


@dataclass(frozen=True)
class Pending:
    """A version that was extracted and is not known to be durable."""

    lists: tuple[ChangeList, ...]
    """The extractors' own: valid until the next extraction."""
    digests: Digests


@contextmanager
def enough_memory() -> Iterator[None]:
    """A version that is durable already must not fail for want of memory to code it once more."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise LocalError("the device has no memory left to code the version as tight") from error


class DevicePublisher:
    """Extraction against a snapshot, again and again."""

    def __init__(self, weights: Weights, *, pinned: bool = False) -> None:
        self._weights = weights
        sections = sections_of(weights.blocks, weights.device, weights.holding.counted)
        if not sections:
            raise LayoutError("the model, or this rank's part of it, has no elements to publish")
        self._sections = sections
        self._live = LiveState(weights, sections, writable=False)
        self._snapshot = DeviceSnapshot(weights.layout, sections, pinned=pinned, places=weights.places)
        self._digests: Digests = ()
        """Of the snapshot."""
        self._opening: Digests = ()
        """Of the live weights when they were last offered."""
        self._pending: Pending | None = None
        self._extractors: tuple[Extractor, ...] = ()
        self._encoder: DeltaEncoder | None = None
        self._tight: DeltaEncoder | None = None
        """Made where a link wants it."""

    def opening(self) -> Opening:
        """The full digest of the live weights."""
        with on_device(self._weights.device):
            self._look()
            self._opening = self._per_tensor(self._live.sums())
        return Opening((str(total(self._opening)),), None)

    def opened(self, opened: Opened) -> None:
        """The live weights are the version: the snapshot takes them over."""
        if opened.digest != str(total(self._opening)):
            raise LocalProtocolError("the sidecar opened another version than the live weights are")
        with on_device(self._weights.device):
            self._snapshot.seed(self._live.state())
        self._digests, self._pending = self._opening, None

    def resuming(self) -> tuple[str, ...]:
        """The version that may have become durable unseen, then the snapshot."""
        known = () if self._pending is None else (str(total(self._pending.digests)),)
        return (*known, str(total(self._digests)))

    def resumed(self, opened: Opened) -> None:
        """Advances the snapshot where the version was durable after all."""
        if self._pending is not None and opened.digest == str(total(self._pending.digests)):
            self._advance(self._pending)
        elif opened.digest != str(total(self._digests)):
            raise LocalProtocolError("the sidecar goes on from a version that this publisher did not offer")
        self._pending = None

    def encode(self) -> Encoded:
        """Extracts and encodes; the bytes are fetched from the device as they are sent."""
        began_ns = time.perf_counter_ns()
        with on_device(self._weights.device):
            self._pending = None  # its lists are overwritten now
            self._look()
            for extractor in self._extractors:
                extractor.run()
            extracted_ns = time.perf_counter_ns()
            if self._encoder is None:
                self._encoder = DeltaEncoder(self._weights.blocks, self._parts(), CODEC_FAST)
            made = self._encoder.encode()
            digests = self._per_tensor(tuple(one.sums for one in self._extractors))
            totals = self._totals(digests)
        encoded_ns = time.perf_counter_ns()
        self._pending = Pending(tuple(one.changes for one in self._extractors), digests)
        timings = {"extract": (extracted_ns - began_ns) // 1000, "encode": (encoded_ns - extracted_ns) // 1000}
        return Encoded(self._chunks(made), lambda: End(totals, timings))

    def count(self) -> Iterable[memoryview]:
        """Histograms of this rank's part of the version that was encoded last."""
        with on_device(self._weights.device), enough_memory():
            words = self._tight_encoder().count().words.cpu().numpy()
        yield memoryview(words.astype("<i8", copy=False).tobytes())

    def recode(self, tables: bytes | None) -> Encoded:
        """Codes the same lists once more: their old bits are the snapshot's, which has not advanced yet."""
        began_ns, pending, blocks = time.perf_counter_ns(), self._pending, self._weights.blocks
        if pending is None:
            raise LocalProtocolError("there is no version that could be coded once more")
        given = None if tables is None else parse_tables(memoryview(tables), blocks.groups)
        with on_device(self._weights.device), enough_memory():
            made = self._tight_encoder().encode(given=given)
            totals = replace(self._totals(pending.digests), codec="tight")
        spent_us = (time.perf_counter_ns() - began_ns) // 1000
        return Encoded(self._chunks(made), lambda: End(totals, {"encode": spent_us}))

    def published(self, digest: str) -> None:
        """The version is durable: the snapshot may follow."""
        if self._pending is None or digest != str(total(self._pending.digests)):
            raise LocalProtocolError("the sidecar made another version durable than it was sent")
        self._advance(self._pending)
        self._pending = None

    def anchor(self, seq: int, blocks: list[int]) -> Iterable[memoryview]:
        """Blocks of the snapshot."""
        places = self._weights.places
        return anchor_chunks(self._weights.blocks, self._snapshot.tensors, seq=seq, numbers=blocks, places=places)

    def _look(self) -> None:
        """Binds anew where tensors were replaced."""
        if not self._live.refresh() and self._extractors:
            return
        pairs = zip(self._live.bounds, self._snapshot.bounds, strict=True)
        self._extractors = tuple(Extractor(live, old) for live, old in pairs)
        self._encoder = self._tight = None

    def _parts(self) -> list[Part]:
        return [Part(one.snapshot, one.live, one.changes) for one in self._extractors]

    def _tight_encoder(self) -> DeltaEncoder:
        if self._tight is None:
            self._tight = DeltaEncoder(self._weights.blocks, self._parts(), CODEC_TIGHT)
        return self._tight

    def _advance(self, pending: Pending) -> None:
        with on_device(self._weights.device):
            self._snapshot.advance(pending.lists)
        self._digests = pending.digests

    def _chunks(self, made: EncodedObject) -> Iterator[memoryview]:
        for piece in made.pieces(self._weights.layout.hash):
            yield memoryview(piece)

    def _totals(self, digests: Digests) -> Totals:
        counts = [np.diff(one.changes.first.cpu().numpy()) for one in self._extractors]
        changes = "".join(str(new.minus(old)) for new, old in zip(digests, self._digests, strict=True))
        return Totals(
            codec="fast",
            blocks=sum(int((count > 0).sum()) for count in counts),
            changed=sum(int(count.sum()) for count in counts),
            digest=str(total(digests)),
            digest_changes=changes,
        )

    def _per_tensor(self, sums: Sums) -> Digests:
        found = [ZERO] * len(self._weights.layout.tensors)
        for section, words in zip(self._sections, sums, strict=True):
            for tensor, digest in tensor_digests(section, words).items():
                found[tensor] = found[tensor].plus(digest)
        return tuple(found)
