"""verl (0.9 or newer): a checkpoint engine called `syncgroup`, which verl imports where its configuration says so.

    checkpoint_engine:
      backend: syncgroup
      custom_backend_module: sync_runtime.library.engines.verl
      engine_kwargs: {syncgroup: {checkpoint: /models/policy}}

The trainer's first rank publishes what verl hands over; the others only walk through it, since every tensor is gathered
by all. Rollout workers of verl keep a copy of the weights in host memory that follows through the sidecar of their pod,
and hand it to verl's own server adapter. Workers elsewhere follow with an engine of theirs. Knows verl, and nothing
of deltas.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket as sockets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from sync_runtime.errors import LayoutError, LocalError
from sync_runtime.library.engines.contents import Read, content_of
from sync_runtime.library.engines.handover import HandedEngine
from sync_runtime.library.engines.host_copy import HostCopy
from sync_runtime.library.engines.mapped import Content
from sync_runtime.library.engines.receiving import Mark, Reader, Receiver, mark_of
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.settings import LibrarySettings
from sync_runtime.library.version import Version
from sync_runtime.local.messages import Coder

BACKEND = "syncgroup"
_TRAINER, _ROLLOUT = "trainer", "rollout"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, None: torch.float32}


@CheckpointEngineRegistry.register(BACKEND)
class SyncGroupCheckpointEngine(CheckpointEngine):  # type: ignore[misc] # verl is not in the checker's environment
    """One process's end, of the trainer or of a rollout. What raises here fails verl's update.

    Args:
        bucket_size: verl's; the sidecar cuts what travels by itself.
        is_master: whether this is the trainer's first rank.
        checkpoint: the folder of the model that all began with; its names, shapes and dtypes are what travels.
        wire_dtype: what fp32 tensors of the checkpoint travel as; None: as they are.
        socket: the sidecar's; by default what `SYNCGROUP_SOCKET` says, else its place in every pod.
        device: where the trainer keeps its copy; by default where verl hands tensors over, `cpu` spares a GPU's memory.
        coder: see `Publisher`.
        timeout_s: for a sidecar when opening.
        patience_s: for one that went away, and for its leave to switch.
        wait_s: how long a rollout waits for the version that the trainer is sending.
    """

    def __init__(
        self, bucket_size: int, is_master: bool = False, *, checkpoint: str, wire_dtype: str | None = "bfloat16",
        socket: str | None = None, device: str | None = None, coder: Coder | None = None, timeout_s: float = 60.0,
        patience_s: float = 5.0, wait_s: float = 600.0,
    ) -> None:  # fmt: skip
        del bucket_size
        if wire_dtype not in _DTYPES:
            raise LayoutError(f"wire_dtype is {wire_dtype!r}; fp32 tensors travel as bfloat16, float16 or null (fp32)")
        self._is_master, self._wait_s = is_master, wait_s
        self._content, self._read = _content(Path(checkpoint), _DTYPES[wire_dtype])
        self._options: dict[str, Any] = {"socket": socket, "timeout": timeout_s, "patience": patience_s}
        self._coder, self._socket = coder, LibrarySettings.read(socket).socket
        self._handed = HandedEngine(self._content, device)
        self._publisher: Publisher | None = None
        self._copy = HostCopy(self._content)
        self._receiver: Receiver | Reader | None = None

    @property
    def version(self) -> Version | None:
        """The last that is durable in the trainer; what a rollout has handed on, or is handing on."""
        end = self._publisher or self._receiver
        return None if end is None else end.version

    def prepare(self) -> dict[str, Any]:
        """Before every update: which sidecar is this process's, and which version there is already."""
        if self._copy.is_closed:
            self._copy = HostCopy(self._content)
        return {"sidecar": _place(self._socket), "version": mark_of(self.version), "copy": self._copy.path}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Who is what. Of rollout workers at one sidecar the first follows, and the others read its copy."""
        rollouts = metadata[actor_wg_world_size:]
        if len(rollouts) != rollout_world_size:
            raise LocalError(f"{len(metadata)} workers are prepared, not {actor_wg_world_size} + {rollout_world_size}")
        firsts: dict[str, str] = {}
        for one in rollouts:
            firsts.setdefault(one["sidecar"], one["copy"])
        sources = [firsts[one["sidecar"]] for one in rollouts]
        number = 1 + secrets.randbelow((1 << 63) - 1)

        def spread(count: int, role: str, found: list[str | None]) -> dict[str, list[Any]]:
            after = metadata[0]["version"]
            return {"role": [role] * count, "source": found, "number": [number] * count, "after": [after] * count}

        own = [None if source == one["copy"] else source for source, one in zip(sources, rollouts, strict=True)]
        nobody: list[str | None] = [None] * actor_wg_world_size
        return spread(actor_wg_world_size, _TRAINER, nobody), spread(rollout_world_size, _ROLLOUT, own)

    def init_process_group(self, role: str, source: str | None, number: int, after: Mark | None) -> None:
        """A rollout opens its sidecar, once; from then on versions arrive in the background. A trainer needs weights.

        Args:
            role: of this process.
            source: the copy of another worker at this sidecar; None: this is the first.
            number: of this update.
            after: the trainer's last version: what is sent now is a later one.
        """
        if role != _ROLLOUT:
            return
        if self._receiver is not None and self._receiver.source != source:
            self._receiver.close()  # workers came or went, and another one is the first now
            self._receiver = None
        if self._receiver is None and source is not None:
            self._receiver = Reader(self._content, source)
        elif self._receiver is None:
            self._receiver = Receiver(self._content, self._read, self._copy, {**self._options, "coder": self._coder})
        self._receiver.begin(number, after)

    async def send_weights(
        self, weights: Iterator[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, float]:
        """A version of what is handed over: durable when this returns, with figures for verl; otherwise it raises."""
        weights = iter(weights)
        if not self._is_master:
            deque(weights, maxlen=0)  # all ranks gather every tensor
            return {}
        began = time.perf_counter()
        try:
            self._handed.begin()
            for name, tensor in weights:
                self._handed.take(name, tensor)
            self._handed.check_complete()
        except Exception:
            deque(weights, maxlen=0)  # other ranks wait in the collectives that gather the rest
            raise
        handed = time.perf_counter()
        if self._publisher is None:
            self._publisher = Publisher(self._handed, engine="handover", coder=self._coder, **self._options)
        version = self._publisher.publish(step=global_steps)
        figures = {
            "version": float(version.seq),
            "handover_s": handed - began,
            "publish_s": time.perf_counter() - handed,
        }
        return {f"{BACKEND}/{name}": value for name, value in figures.items()}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """All tensors of the version that the trainer is sending, once it is here and whole. Only to be read."""
        receiver = self._receiver
        if receiver is None:
            raise LocalError("weights were asked for before `init_process_group` made this process a rollout's")
        await asyncio.to_thread(receiver.switch, global_steps, self._wait_s)
        for name, tensor in receiver.items():
            yield name, tensor

    def finalize(self) -> None:
        """After every update. Connections stay: the next version may come at any time."""

    def close(self) -> None:
        """Hangs up, after the last version is out. verl ends its processes without it, which loses nothing durable."""
        for end in (self._publisher, self._receiver):
            if end is not None:
                end.close()
        self._publisher = self._receiver = None


def _content(folder: Path, dtype: torch.dtype) -> tuple[Content, Read]:
    """What travels, by the checkpoint; raises LayoutError for what is none."""
    if not list(folder.glob("*.safetensors")):
        raise LayoutError(f"checkpoint is {str(folder)!r}: a folder with safetensors files is expected")
    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise LayoutError(f"{folder} has no configuration that transformers can read: {error}") from error
    is_tied = getattr(config, "tie_word_embeddings", False)
    return content_of(folder, dtype, layout=None, cuts=None, ranks=1, is_tied=is_tied)


def _place(socket: str) -> str:
    """The same for all processes at one sidecar, and for no others: pods of two clusters may have one name."""
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    return f"{boot}/{sockets.gethostname()}{os.path.realpath(socket)}"
