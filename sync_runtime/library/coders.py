"""What a coder does for the library, and which coders there are, found by name.

Coder `sidecar`: the library only copies; the sidecar keeps a mirror of the weights and codes on the CPU. Coder
`library`: weights are on a GPU; what travels to the sidecar is coded already.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sync_runtime.errors import LayoutError
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import Coder, End, Opened, Scrub, Stage

CODERS: Mapping[Coder, str] = {
    "sidecar": "sync_runtime.library.copying",
    "library": "sync_runtime.library.device",
}
"""Modules with `make_publisher(weights)` and `make_subscriber(weights)`."""


@dataclass(frozen=True)
class Opening:
    """What OPEN says about the weights as they are."""

    digests: tuple[str, ...]
    chunks: Iterable[memoryview] | None
    """The state, where the sidecar takes the digest."""
    block_digests: str = ""
    """Of the blocks that one of several ranks holds, as PART says them."""


@dataclass(frozen=True)
class Encoded:
    """What PUBLISH sends."""

    chunks: Iterable[memoryview]
    finish: Callable[[], End]
    """When all chunks were sent."""


class PublishCoder(Protocol):
    """A publisher's side. Called by the publishing thread, but for `resume` and `anchor`."""

    def opening(self) -> Opening:
        """Weights as they are, at a moment when they stand still."""

    def opened(self, opened: Opened) -> None:
        """They are a version, or the start of a lineage."""

    def resuming(self) -> tuple[str, ...]:
        """Digests that it can go on from without a look at live weights; the best first."""

    def resumed(self, opened: Opened) -> None:
        """It goes on from one of them."""

    def encode(self) -> Encoded:
        """The weights as they are, for a new version."""

    def count(self) -> Iterable[memoryview]:
        """What this rank counts for the tables of the version that was encoded last."""

    def recode(self, tables: bytes | None) -> Encoded:
        """That version once more, as `tight`; under tables of all ranks, or the own ones where there is one rank."""

    def published(self, digest: str) -> None:
        """The new version is durable."""

    def anchor(self, seq: int, blocks: list[int]) -> Iterable[memoryview]:
        """Anchor blocks of the last durable version, as an object."""


class Receiver(Protocol):
    """One staged stream on its way in."""

    def feed(self, data: memoryview) -> None:
        """The next bytes; they are gone afterwards."""

    def finish(self, base: Version | None, under: Any | None) -> Any:
        """All came: the layer that leads from `base`, which is the live weights under the layer `under`.

        Raises SyncError. Activation may write `under` into the live weights meanwhile: base is the same then.
        """


class StageCoder(Protocol):
    """A subscriber's side; a *layer* is its kind of list. Called by the background thread, but for `apply`."""

    def opening(self) -> Opening:
        """The live weights."""

    def receive(self, stage: Stage) -> Receiver:
        """A stream that begins."""

    def fold(self, earlier: Any, later: Any) -> Any:
        """One layer of two; later bits win."""

    def apply(self, layer: Any) -> None:
        """Writes a layer into the live weights, whole. Repeatable. Called at a safe point by the user's thread."""

    def share(self) -> str | None:
        """What this rank adds to the digest of the version that was received last; None: it checked all by itself."""

    def scrub(self, version: Version) -> tuple[Scrub, Iterable[memoryview]]:
        """The request, and the stream behind it where it says `state`."""


class CoderModule(Protocol):
    """A module of `CODERS`."""

    def make_publisher(self, weights: Weights, *, host_snapshot: bool = False) -> PublishCoder:
        """For one publisher; `host_snapshot`: its snapshot lies in the host's memory."""

    def make_subscriber(self, weights: Weights, between: Callable[[], None]) -> StageCoder:
        """For one subscriber; `between` is called in the middle of long work."""


def choose_coder(wanted: Coder | None, weights: Weights) -> Coder:
    """The wanted coder, or the one that fits where the weights are; raises LayoutError where it cannot hold them."""
    if wanted == "sidecar" and weights.is_part:
        raise LayoutError("several ranks need the coder `library`: with coder `sidecar` one process has everything")
    return wanted or ("library" if weights.is_part or weights.device.type == "cuda" else "sidecar")


def load_coder(name: Coder) -> CoderModule:
    """The module of a coder; imports triton only where it is needed."""
    return cast("CoderModule", importlib.import_module(CODERS[name]))
