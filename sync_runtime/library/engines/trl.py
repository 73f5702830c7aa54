"""TRL's asynchronous trainers: the object that they take as `weight_transfer`.

    transfer = WeightTransfer(wire_dtype=torch.bfloat16)
    trainer = AsyncGRPOTrainer(..., weight_transfer=transfer, rollout_worker=...)
    transfer.trainer = trainer
    trainer.train()

The trainer calls it in its first rank alone and hands over whole trainable parameters, gathered where ranks share them.
Parameters that lie whole in this rank are read where they are; the others are kept in buffers. What is not handed over
(frozen parameters, buffers) comes from the model. Imports nothing of TRL: it asks for five methods and for no class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sync_runtime.errors import LayoutError, LocalError, SyncError
from sync_runtime.library import engines
from sync_runtime.library.engines import Engine
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.shards import Shard
from sync_runtime.library.version import Version


class GatheredEngine:
    """A model's tensors, all whole: those that are spread over ranks as they were handed over last.

    `wire_dtype`: fp32 ones are kept as they travel, in half the memory.
    """

    def __init__(self, model: Any, wire_dtype: torch.dtype | None = None) -> None:
        self._inner = engines.attach("dtensor", model)
        held, self._ties = self._inner.tensors(), dict(self._inner.ties())
        self._names = frozenset(held)
        kept = {torch.float32: wire_dtype} if wire_dtype is not None else {}
        self._gathered = {
            name: held[name].new_empty(shard.shape, dtype=kept.get(held[name].dtype, held[name].dtype))
            for name, shard in self._inner.shards().items()
            if name in held
        }
        self._missing = set(self._gathered)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Live ones, and buffers of those that are spread."""
        return {**self._inner.tensors(), **self._gathered}

    def ties(self) -> Mapping[str, str]:
        """The model's."""
        return self._ties

    def shards(self) -> Mapping[str, Shard]:
        """None: everything is whole here."""
        return {}

    def take(self, name: str, tensor: torch.Tensor) -> None:
        """A parameter that was handed over; raises LayoutError where the model has no such one."""
        found = self._ties.get(name, name)
        if found not in self._gathered:
            if found not in self._names:
                raise LayoutError(f"{name!r} was handed over, and the model has no such parameter: merge its adapters")
            return
        if tensor.shape != self._gathered[found].shape:
            raise LayoutError(f"{name!r} was handed over as {list(tensor.shape)}: whole parameters are expected")
        self._gathered[found].copy_(tensor)
        self._missing.discard(found)

    def check_complete(self) -> None:
        """Raises LayoutError where a spread parameter was never handed over."""
        if self._missing:
            raise LayoutError(
                f"{min(self._missing)!r} is spread over ranks and was not handed over, as frozen parameters are not: "
                "train it, or keep it whole in every rank"
            )


class WeightTransfer:
    """Publishes what a trainer sends. `pause` and `resume` do nothing: workers switch at their own safe points.

    Args:
        trainer: whose `model` is published; it may be set later, before training begins.
        options: a Publisher's own (`wire_dtype`, `socket`, `timeout`, `patience`, `host_snapshot` ...).
    """

    def __init__(self, trainer: Any = None, **options: Any) -> None:
        self.trainer = trainer
        self._options = options
        self._engine: GatheredEngine | None = None
        self._publisher: Publisher | None = None
        self._sent = 0

    @property
    def version(self) -> Version | None:
        """The last that is durable."""
        return None if self._publisher is None else self._publisher.version

    def init_weight_transfer(self) -> None:
        """Looks at the model; raises SyncError where it cannot be published."""
        if self.trainer is None:
            raise LocalError("nobody said whose weights travel: set `transfer.trainer = trainer` before training")
        self._engine = GatheredEngine(self.trainer.model, self._options.get("wire_dtype"))

    def pause(self) -> None:
        """Nothing waits for weights."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """A version of what is handed over; durable when this returns, and otherwise it raises."""
        if self._engine is None:
            raise LocalError("weights were sent before `init_weight_transfer` was called")
        engine = self._engine
        try:
            for name, tensor in iterator:
                engine.take(name, tensor)
            engine.check_complete()
        except SyncError:
            deque(iterator, maxlen=0)  # other ranks wait in the collectives that gather the rest
            raise
        if self._publisher is None:
            self._publisher = Publisher(engine, engine="trl", **self._options)
        self._publisher.publish(step=self._sent)
        self._sent += 1

    def resume(self) -> None:
        """Nothing was paused."""

    def destroy(self) -> None:
        """Lets the last version out and hangs up."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None


def attach(model: Any) -> Engine:
    """An engine over what a trainer hands over."""
    return model if isinstance(model, GatheredEngine) else GatheredEngine(model)
