"""A publisher whose weights are on a GPU: extracts, encodes and digests there; the sidecar gets finished bytes.

The snapshot is the last durable version. It advances by the extracted differences, and only when the sidecar has said
that the version is durable; if that word was lost, both states are offered when the sidecar is back.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sync_runtime.codec.gpu.encode import DeltaEncoder, EncodedObject
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.codec.limits import CODEC_FAST
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.delta.kernels.scrub import tensor_digests
from sync_runtime.delta.snapshot import DeviceSnapshot
from sync_runtime.errors import LayoutError, LocalProtocolError
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
                parts = [Part(one.snapshot, one.live, one.changes) for one in self._extractors]
                self._encoder = DeltaEncoder(self._weights.blocks, parts, CODEC_FAST)
            made = self._encoder.encode()
            digests = self._per_tensor(tuple(one.sums for one in self._extractors))
            totals = self._totals(digests)
        encoded_ns = time.perf_counter_ns()
        self._pending = Pending(tuple(one.changes for one in self._extractors), digests)
        timings = {"extract": (extracted_ns - began_ns) // 1000, "encode": (encoded_ns - extracted_ns) // 1000}
        return Encoded(self._chunks(made), lambda: End(totals, timings))

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
        self._encoder = None

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
