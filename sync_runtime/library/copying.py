"""The coder `sidecar`: states are copied through the ring, lists of new bits come back. Needs numpy and torch only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from sync_runtime.errors import LocalProtocolError
from sync_runtime.library.coders import Encoded, Opening, Receiver
from sync_runtime.library.folding import BitList, folded, max_list_bytes, parse_list, scatter
from sync_runtime.library.streams import StateSink, state_chunks
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import End, Opened, Scrub, Stage


class CopyPublisher:
    """Sends the whole state for every version; the sidecar finds what changed."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._digest: str | None = None

    def opening(self) -> Opening:
        """The state itself."""
        return Opening((), state_chunks(self._weights))

    def opened(self, opened: Opened) -> None:
        """Keeps the digest that both ends know."""
        self._digest = opened.digest

    def resuming(self) -> tuple[str, ...]:
        """The last version that was seen durable."""
        return () if self._digest is None else (self._digest,)

    def resumed(self, opened: Opened) -> None:
        """The sidecar may be one version further than was seen."""
        self._digest = opened.digest

    def encode(self) -> Encoded:
        """The state as it is."""
        spent_us = [0]

        def timed() -> Iterator[memoryview]:
            began = time.perf_counter_ns()
            yield from state_chunks(self._weights)
            spent_us[0] = (time.perf_counter_ns() - began) // 1000

        return Encoded(timed(), lambda: End(None, {"copy": spent_us[0]}))

    def count(self) -> Iterable[memoryview]:
        """The sidecar counts for itself."""
        raise LocalProtocolError("with coder `sidecar` the sidecar codes, and asks for no counts")

    def recode(self, tables: bytes | None) -> Encoded:
        """The sidecar codes."""
        raise LocalProtocolError("with coder `sidecar` the sidecar codes, and asks for no object")

    def published(self, digest: str) -> None:
        """The sidecar's mirror is there."""
        self._digest = digest

    def anchor(self, seq: int, blocks: list[int]) -> Iterable[memoryview]:
        """The sidecar has the weights itself."""
        raise LocalProtocolError("with coder `sidecar` the sidecar has a mirror of the weights and asks for no blocks")


class CopySubscriber:
    """Keeps lists of new bits and writes them."""

    def __init__(self, weights: Weights, between: Callable[[], None]) -> None:
        self._weights, self._between = weights, between

    def opening(self) -> Opening:
        """The state itself."""
        return Opening((), state_chunks(self._weights))

    def receive(self, stage: Stage) -> Receiver:
        """A list, or a whole state for weights that are no version."""
        if stage.form == "list":
            return _ListReceiver(stage.bytes, self._weights, self._between)
        if stage.form == "state":
            if stage.bytes != self._weights.state_bytes:
                raise LocalProtocolError(f"a state has {self._weights.state_bytes} bytes, not {stage.bytes}")
            return _StateReceiver(self._weights)
        raise LocalProtocolError("objects are for coder `library`; this one takes lists")

    def fold(self, earlier: BitList, later: BitList) -> BitList:
        """One list of two."""
        return folded(earlier, later, self._between)

    def apply(self, layer: BitList) -> None:
        """Scatters the list."""
        scatter(self._weights.layout, self._weights.tensors(), layer)

    def share(self) -> str | None:
        """None: the sidecar has all weights."""
        return None

    def scrub(self, version: Version) -> tuple[Scrub, Iterable[memoryview]]:
        """The sidecar compares the state with its mirror."""
        return Scrub(version.lineage, version.seq, None, (), True), state_chunks(self._weights)


class _ListReceiver:
    def __init__(self, size_bytes: int, weights: Weights, between: Callable[[], None]) -> None:
        limit = max_list_bytes(weights.layout)
        if size_bytes > limit:
            raise LocalProtocolError(f"a list of {size_bytes} bytes is announced; the layout allows {limit}")
        self._data = np.empty(size_bytes, np.uint8)
        self._layout, self._between, self._filled = weights.layout, between, 0

    def feed(self, data: memoryview) -> None:
        end = self._filled + len(data)
        if end > self._data.size:
            raise LocalProtocolError("a list is longer than was announced")
        self._data[self._filled : end] = np.frombuffer(data, np.uint8)
        self._filled = end

    def finish(self, base: Version | None, under: BitList | None) -> BitList:
        if self._filled != self._data.size:
            raise LocalProtocolError("a list is shorter than was announced")
        return parse_list(self._data, self._layout, self._between)


class _StateReceiver:
    def __init__(self, weights: Weights) -> None:
        self._sink = StateSink(weights)

    def feed(self, data: memoryview) -> None:
        self._sink.feed(data)

    def finish(self, base: Version | None, under: BitList | None) -> BitList:
        self._sink.finish()
        return BitList()


def make_publisher(weights: Weights, *, host_snapshot: bool = False) -> CopyPublisher:
    """For one publisher; the sidecar keeps the snapshot."""
    del host_snapshot
    return CopyPublisher(weights)


def make_subscriber(weights: Weights, between: Callable[[], None]) -> CopySubscriber:
    """For one subscriber."""
    return CopySubscriber(weights, between)
