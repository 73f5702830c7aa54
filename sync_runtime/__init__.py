"""The GPU runtime of SyncGroup: what runs beside and inside trainers and rollout workers.

    publisher = sync_runtime.Publisher(model)           # in the trainer
    publisher.publish(step=step)

    subscriber = sync_runtime.Subscriber(model)         # in a rollout worker
    subscriber.activate()                               # at a safe point

    work = sync_runtime.Work()                          # in the trainer: prompt groups out, results back, once each
    worker = sync_runtime.Worker(subscriber)            # in a rollout worker

Importing this package imports nothing else: each part (contract, tuning, identity, library, sidecar …) has its own
dependencies and is imported by name. What users call is found when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sync_runtime.library.generation import Generation
    from sync_runtime.library.publisher import Publisher
    from sync_runtime.library.shards import Shard
    from sync_runtime.library.subscriber import Subscriber
    from sync_runtime.library.work import PromptGroup, Work
    from sync_runtime.library.worker import Worker

__all__ = ["Generation", "PromptGroup", "Publisher", "Shard", "Subscriber", "Work", "Worker"]

_HOMES = {
    "Generation": "sync_runtime.library.generation",
    "PromptGroup": "sync_runtime.library.work",
    "Publisher": "sync_runtime.library.publisher",
    "Shard": "sync_runtime.library.shards",
    "Subscriber": "sync_runtime.library.subscriber",
    "Work": "sync_runtime.library.work",
    "Worker": "sync_runtime.library.worker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not importlib: this file runs before every module of ours, and those that decide purely may not reach it.
    return getattr(__import__(_HOMES[name], fromlist=[name]), name)
