"""The GPU runtime of SyncGroup: what runs beside and inside trainers and rollout workers.

    publisher = sync_runtime.Publisher(model)           # in the trainer
    publisher.publish(step=step)

    subscriber = sync_runtime.Subscriber(model)         # in a rollout worker
    subscriber.activate()                               # at a safe point

Importing this package imports nothing else: each part (contract, tuning, identity, library, sidecar …) has its own
dependencies and is imported by name. `Publisher`, `Subscriber`, `Shard` and `Generation` are found when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sync_runtime.library.generation import Generation
    from sync_runtime.library.publisher import Publisher
    from sync_runtime.library.shards import Shard
    from sync_runtime.library.subscriber import Subscriber

__all__ = ["Generation", "Publisher", "Shard", "Subscriber"]

_HOMES = {
    "Generation": "sync_runtime.library.generation",
    "Publisher": "sync_runtime.library.publisher",
    "Shard": "sync_runtime.library.shards",
    "Subscriber": "sync_runtime.library.subscriber",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not importlib: this file runs before every module of ours, and those that decide purely may not reach it.
    return getattr(__import__(_HOMES[name], fromlist=[name]), name)
