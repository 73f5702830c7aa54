"""A rollout worker inside the test's process, whose model follows the trainer through a sidecar of its own."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from sync_runtime import Subscriber
from tests.support.following import follow
from tests.support.language_models import VOCABULARY

TOKENS = 6


class FollowingWorker:
    """What TRL's trainers ask of a worker. It generates nothing new before its weights are the announced version's."""

    def __init__(self, model: torch.nn.Module, socket: str, check: Callable[[int], None]) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.versions: list[int] = []
        self._check, self._group = check, 0
        self._subscriber = Subscriber(model, engine="transformers", socket=socket)

    def start(self) -> None:
        """Called after the first weight sync."""
        self._produce()

    def stop(self) -> None:
        """Called when training ends."""
        self._subscriber.close()

    def update_model_version(self, model_version: int) -> None:
        """The trainer's number is the version's."""
        follow(self._subscriber, model_version)
        self.versions.append(model_version)
        self._check(model_version)
        if model_version > 1:
            self._produce()

    def check_health(self, stale_after_s: float) -> None:
        """It has no process that could die."""

    def _produce(self) -> None:
        for advantage in (1.0, -1.0):
            tokens = np.arange(TOKENS) * (self._group + 3) % VOCABULARY + (advantage > 0)
            self.rollout_buffer.put(
                RolloutSample(
                    prompt=[], completion=[], input_ids=np.minimum(tokens, VOCABULARY - 1),
                    completion_mask=(np.arange(TOKENS) >= 2).astype(np.int64),
                    old_log_probs=np.full(TOKENS, -3.0, np.float32), advantage=advantage,
                    model_version=self.versions[-1], group_id=self._group, metrics={},
                )
            )  # fmt: skip
        self._group += 1
