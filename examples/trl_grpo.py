"""TRL's asynchronous GRPO over SyncGroup: the trainer's side. Every weight sync becomes a version that workers follow.

python -m examples.trl_grpo CHECKPOINT

Needs TRL, a GPU for TRL's attention, the sidecar of the trainer's pod, and workers (TRL's own ask the vLLM server).
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from datasets import Dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

from sync_runtime.library.engines.trl import WeightTransfer

PROMPTS = [[{"role": "user", "content": f"Say {number} in words, shortly."}] for number in range(64)]


def brevity(completions: list[Any], **_: Any) -> list[float]:
    """Short answers are good ones."""
    return [-float(len(str(one))) for one in completions]


def train(checkpoint: str, config: AsyncGRPOConfig, *, worker: Any = None, **options: Any) -> AsyncGRPOTrainer:
    """Trains; `worker`: in place of TRL's own, `options`: a Publisher's."""
    transfer = WeightTransfer(wire_dtype=torch.bfloat16, **options)
    dataset = Dataset.from_dict({"prompt": PROMPTS})
    trainer = AsyncGRPOTrainer(
        checkpoint, brevity, config, dataset, rollout_worker=worker, weight_transfer=transfer,
    )  # fmt: skip
    transfer.trainer = trainer
    trainer.train()
    return trainer


if __name__ == "__main__":
    train(sys.argv[1], AsyncGRPOConfig("trl-output", max_steps=100, learning_rate=1e-5))
