"""Subscriber: a rollout worker's end. Versions arrive while the engine generates; `activate` switches to the newest."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from sync_runtime.errors import LayoutError
from sync_runtime.library import engines
from sync_runtime.library.coders import StageCoder, choose_coder, load_coder
from sync_runtime.library.cuts import CutEngine, Cuts
from sync_runtime.library.engines import Engine
from sync_runtime.library.export_sessions import ExportedSubscribeSession
from sync_runtime.library.settings import NO_RANKS, GpuAccess, LibrarySettings, SubscribeOptions
from sync_runtime.library.subscribing import SubscribeSession
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import PROTOCOLS, Coder, Hello

SCRUB_TIMEOUT_S = 600.0


class ConnectionView(Protocol):
    """The other end."""

    @property
    def is_open(self) -> bool:
        """Whether it is there and knows the weights."""


class StagingView(Protocol):
    """What waits, and what was found."""

    @property
    def staged(self) -> Version | None:
        """The newest version that can be activated."""

    @property
    def is_poisoned(self) -> bool:
        """Whether a scrub found wrong weights."""


class Subscribing(Protocol):
    """Who answers a subscriber's calls: a session of this process, or a GPU worker's."""

    @property
    def connection(self) -> ConnectionView:
        """The sidecar, or the GPU worker."""

    @property
    def staging(self) -> StagingView:
        """What waits."""

    @property
    def version(self) -> Version | None:
        """What the live weights are."""

    @property
    def is_stale(self) -> bool:
        """Whether something newer is known."""

    def open(self, timeout_s: float) -> None:
        """Waits until it follows; raises SyncError."""

    def wait(self, seq: int | None, timeout_s: float | None) -> Version | None:
        """Waits for a version."""

    def activate(self, patience_s: float) -> Version | None:
        """One switch or none."""

    def scrub(self, timeout_s: float) -> bool:
        """Live weights against what they should be."""

    def note(self, tokens_per_second: int | None) -> None:
        """Figures for the member's report."""

    def close(self) -> None:
        """Hangs up."""


def make_session(
    engine: Engine, options: SubscribeOptions, settings: LibrarySettings,
    guard: Callable[[StageCoder], StageCoder] = lambda coder: coder,
) -> SubscribeSession:  # fmt: skip
    """A session of this process over an engine's tensors; not yet open. `guard` may stand between it and its coder."""
    weights = Weights(engine, rank=options.rank, world_size=options.world_size)
    name = choose_coder(options.coder, weights)
    hello = Hello(PROTOCOLS, "subscriber", options.rank, options.world_size, os.getpid(), name, settings.release)
    made: list[SubscribeSession] = []

    def between() -> None:
        made[0].between()

    coder = guard(load_coder(name).make_subscriber(weights, between))
    # A scrub of several ranks is one of all of them: only their user knows when all can take part.
    scrubs = name == "library" and not weights.is_part if options.auto_scrub is None else options.auto_scrub
    if scrubs and weights.is_part:
        raise LayoutError(
            "several ranks do not scrub by themselves: leave out `auto_scrub` and call `scrub` in every rank"
        )
    made.append(SubscribeSession(weights, coder, settings.socket, hello, auto_scrub=scrubs))
    return made[0]


class Subscriber:
    """Keeps the weights of a model at the trainer's versions, bit for bit.

        with Subscriber(model) as subscriber:
            while True:
                generate(model, subscriber.version)
                subscriber.activate()  # between two batches: the safe point

    Versions are received, checked and folded in the background. Nothing touches the weights but `activate`, and then
    all tensors change or none does. Results made under a version carry its lineage, seq and digest.

    While `version` is None the weights are of no known version (a worker that joins with other weights): whole weights
    are being written into them, and results made now are nobody's.

    Args:
        model: a `torch.nn.Module` or a mapping from names to tensors, on the CPU or one GPU, with the names, shapes and
            dtypes that the trainer publishes. With several ranks: a mapping that names all tensors in every rank, those
            that are spread as `Shard`s, cut where the trainer's are; what other ranks than 0 give whole is a copy.
        socket: the sidecar's socket; by default what `SYNCGROUP_SOCKET` says, else its place in every pod.
        timeout: seconds to wait for a sidecar when opening.
        patience: seconds that `activate` waits for the sidecar's leave.
        engine: where tensors come from; see `sync_runtime.library.engines`.
        coder: `"sidecar"` or `"library"`; by default the library codes where weights are on a GPU.
        auto_scrub: whether all weights are compared with the version in the background after every switch; by default
            on a GPU, where that takes milliseconds. `poisoned` tells what it found.
        gpu_access: `"InProcess"`, or `"CudaIpc"` (experimental): a GPU worker process decodes and applies, through
            handles of the tensors. By default what `SYNCGROUP_GPU_ACCESS` says, else `"InProcess"`.
        worker_socket: the GPU worker's socket, where there is one.
        cuts: where the trainer cuts tensors, for a worker that codes on a GPU: what `Publisher.cuts` says there, or the
            number that was given to it.
        rank, world_size: which of how many processes of one engine this is. Every rank calls `activate` (and `scrub`)
            at the same safe point: all switch to the newest version that all have staged, or none does.
    """

    def __init__(
        self, model: Any, *, socket: str | None = None, timeout: float = 60.0, patience: float = 5.0,
        engine: str = "module", coder: Coder | None = None, auto_scrub: bool | None = None, rank: int = 0,
        world_size: int = 1, gpu_access: GpuAccess | None = None, worker_socket: str | None = None,
        cuts: Cuts | None = None,
    ) -> None:  # fmt: skip
        attached = engines.attach(engine, model)
        if cuts:
            attached = CutEngine(attached, cuts)
        settings = LibrarySettings.read(socket, gpu_access=gpu_access, worker_socket=worker_socket)
        options = SubscribeOptions(coder, auto_scrub, rank, world_size, timeout, patience)
        self._patience_s = patience
        self._session: Subscribing
        if settings.gpu_access == "CudaIpc":
            if world_size > 1 or cuts:
                raise LayoutError(NO_RANKS)
            self._session = ExportedSubscribeSession(attached, options, settings.worker_socket)
        else:
            self._session = make_session(attached, options, settings)
        self._session.open(timeout)

    @property
    def version(self) -> Version | None:
        """The version that the weights are; None while they are none."""
        return self._session.version

    @property
    def staged(self) -> Version | None:
        """The version that `activate` would switch to; None where there is none."""
        return self._session.staging.staged

    @property
    def stale(self) -> bool:
        """Whether something newer is known than what is live, or live weights are of no version or were found wrong."""
        return self._session.is_stale

    @property
    def poisoned(self) -> bool:
        """Whether a scrub found weights that are not the version's; results since the last good one do not count."""
        return self._session.staging.is_poisoned

    def wait(self, seq: int | None = None, *, timeout: float | None = None) -> Version | None:
        """Waits until a version is staged that is newer than the live one; with `seq`: staged or live, that or later.

        Returns it, or None after `timeout` seconds. Raises `LayoutError` where the trainer's tensors are others.
        """
        return self._session.wait(seq, timeout)

    def activate(self) -> Version | None:
        """Switches to the newest staged version and returns it. Call it while nothing reads the weights.

        Returns None, and changes nothing, where nothing is staged or a new trainer has taken over meanwhile. Raises
        `SidecarLostError` where the sidecar is away: the weights stay as they are, and calling again later helps; and
        `LayoutError`, as `wait` does. If this is interrupted while it writes, the next call completes it first.
        """
        return self._session.activate(self._patience_s)

    def scrub(self) -> bool:
        """Compares all weights with what the version says; False: they are wrong, and a repair will be staged.

        Call it after generation has resumed; weights are only read.
        """
        return self._session.scrub(SCRUB_TIMEOUT_S)

    def note(self, *, tokens_per_second: int | None = None) -> None:
        """Tells the sidecar how fast this worker generates, for the member's report."""
        self._session.note(tokens_per_second)

    def close(self) -> None:
        """Hangs up; the weights stay as they are."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
