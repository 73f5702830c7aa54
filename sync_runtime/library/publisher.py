"""Publisher: the trainer's end. `publish` turns the weights as they are into a version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library import engines
from sync_runtime.library.coders import choose_coder, load_coder
from sync_runtime.library.cuts import CutEngine, Cuts, cuts_of
from sync_runtime.library.engines import Engine
from sync_runtime.library.export_sessions import ExportedPublishSession
from sync_runtime.library.publishing import PublishSession
from sync_runtime.library.settings import NO_RANKS, GpuAccess, LibrarySettings, PublishOptions
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import PROTOCOLS, Coder, Hello


class Publishing(Protocol):
    """Who answers a publisher's calls: a session of this process, or a GPU worker's."""

    @property
    def version(self) -> Version | None:
        """The last that is durable."""

    def open(self, timeout_s: float) -> None:
        """Waits until it can publish; raises SyncError."""

    def publish(self, step: int | None, label: str, patience_s: float) -> Version:
        """A version of the weights as they are."""

    def close(self, drain_s: float) -> bool:
        """Hangs up after the last version is out."""


def make_session(engine: Engine, options: PublishOptions, settings: LibrarySettings) -> PublishSession:
    """A session of this process over an engine's tensors; not yet open."""
    weights = Weights(engine, options.wire_dtype, rank=options.rank, world_size=options.world_size)
    name = choose_coder(options.coder, weights)
    hello = Hello(PROTOCOLS, "publisher", options.rank, options.world_size, os.getpid(), name, settings.release)
    made = load_coder(name).make_publisher(weights, host_snapshot=options.host_snapshot)
    return PublishSession(weights, made, settings.socket, hello)


class Publisher:
    """Publishes the weights of a model to all members of the group.

        with Publisher(model) as publisher:
            for step, batch in enumerate(batches):
                train(model, batch)
                publisher.publish(step=step)

    Args:
        model: a `torch.nn.Module` or a mapping from names to tensors, on the CPU or one GPU. Parameters and persistent
            buffers travel; tied weights travel once. With several ranks: a module of FSDP2 or tensor parallelism
            (`engine="dtensor"`), or a mapping that names all tensors in every rank, those that are spread as
            `Shard`s; what is given whole is rank 0's.
        wire_dtype: `torch.bfloat16` or `torch.float16` where fp32 tensors are masters of what the engines run.
        socket: the sidecar's socket; by default what `SYNCGROUP_SOCKET` says, else its place in every pod.
        timeout: seconds to wait for a sidecar when opening.
        patience: seconds that `publish` waits for a sidecar that went away.
        engine: where tensors come from; see `sync_runtime.library.engines`.
        coder: `"sidecar"` or `"library"`; by default the library codes where weights are on a GPU.
        host_snapshot: keep the last version (coder `"library"`) in pinned host memory instead of the GPU's.
        gpu_access: `"InProcess"`, or `"CudaIpc"` (experimental): a GPU worker process extracts and encodes, through
            handles of the tensors. By default what `SYNCGROUP_GPU_ACCESS` says, else `"InProcess"`.
        worker_socket: the GPU worker's socket, where there is one.
        cuts: where tensors that this rank has whole are cut for engines of several ranks: a number of parts, each way,
            for all large ones, or rows and columns by name. See `sync_runtime.library.cuts`.
        rank, world_size: which of how many processes this is. Every rank makes a publisher with the same sidecar, and
            every rank calls `publish`: all return the same version, or all raise.

    Opening takes a full digest of the weights: if they are the newest version of the group, its line of versions is
    continued; otherwise a new one starts. Weights must stand still while this object is made and while `publish` runs.
    """

    def __init__(
        self, model: Any, *, wire_dtype: torch.dtype | None = None, socket: str | None = None, timeout: float = 60.0,
        patience: float = 5.0, engine: str = "module", coder: Coder | None = None, host_snapshot: bool = False,
        rank: int = 0, world_size: int = 1, gpu_access: GpuAccess | None = None, worker_socket: str | None = None,
        cuts: Cuts | None = None,
    ) -> None:  # fmt: skip
        attached = engines.attach(engine, model)
        if cuts:
            attached = CutEngine(attached, cuts)
        settings = LibrarySettings.read(socket, gpu_access=gpu_access, worker_socket=worker_socket)
        options = PublishOptions(wire_dtype, coder, host_snapshot, rank, world_size, timeout, patience)
        self._patience_s = patience
        self._cuts: Mapping[str, tuple[int, int]] = {}
        self._session: Publishing
        if settings.gpu_access == "CudaIpc":
            if world_size > 1 or cuts:
                raise LayoutError(NO_RANKS)
            self._session = ExportedPublishSession(attached, options, settings.worker_socket)
        else:
            self._session = session = make_session(attached, options, settings)
            self._cuts = cuts_of(session.layout)
        self._session.open(timeout)

    @property
    def version(self) -> Version | None:
        """The last version that is durable; its digest is that of the weights then."""
        return self._session.version

    @property
    def cuts(self) -> Mapping[str, tuple[int, int]]:
        """Where tensors are cut: what workers that code on a GPU are given as `cuts`. Fit for a JSON file."""
        return self._cuts

    def publish(self, step: int | None = None, *, label: str = "") -> Version:
        """Makes a version of the weights as they are and returns it once it is durable in the sidecar's spool.

        Never waits for a member or a link. On an error nothing of the version stays, and training can go on: the next
        call publishes what this one could not. `retry_helps` of the error says whether calling again can help; a
        sidecar that went away (`SidecarLostError`) is dialled again in the background.

        Args:
            step: the trainer's own number for it; it travels with the version and means nothing to SyncGroup.
            label: a remark, at most 256 characters.
        """
        return self._session.publish(step, label, self._patience_s)

    def close(self, drain: float = 30.0) -> bool:
        """Lets the last version out to the members for at most `drain` seconds; returns whether all have it."""
        return self._session.close(drain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.close(drain=0.0)
