"""verl's checkpoint engine over SyncGroup: the trainer's side, as verl's actor drives it. Every send becomes a version.

python -m examples.verl_checkpoint CHECKPOINT

Needs verl and the sidecar of the trainer's pod. A run of verl's own trainers needs no program, only these words:
    actor_rollout_ref.rollout.checkpoint_engine.backend=syncgroup
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=sync_runtime.library.engines.verl
    +actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.syncgroup.checkpoint=CHECKPOINT
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from verl.checkpoint_engine import CheckpointEngineRegistry
from verl.utils.import_utils import import_external_libs


def train(checkpoint: str, steps: int, **options: Any) -> torch.nn.Module:
    """Learns a row of tokens by heart; `options`: the checkpoint engine's."""
    import_external_libs("sync_runtime.library.engines.verl")
    said = {"bucket_size": 1 << 30, "is_master": True, "checkpoint": checkpoint, **options}
    sender = CheckpointEngineRegistry.new("syncgroup", **said)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.arange(2, 18).reshape(1, -1)
    for step in range(steps):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        figures = asyncio.run(sender.send_weights(iter(model.state_dict().items()), global_steps=step))
        sys.stdout.write(f"step {step}: version {figures['syncgroup/version']:.0f}\n")
    sender.close()
    return model


if __name__ == "__main__":
    train(sys.argv[1], steps=10)
