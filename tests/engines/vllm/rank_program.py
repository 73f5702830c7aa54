"""One of several ranks of vLLM's tensor parallelism, a process of its own, for tests; says what it found wrong.

python -m tests.engines.vllm.rank_program RANK RANKS STORE FOLDER FOLDER [whole-experts]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1", GLOO_SOCKET_IFNAME="lo")

import torch

SMALL = 512
"""What is small here: the models are tiny."""


def main() -> None:
    """Maps a rank's model, writes the second checkpoint into it, and compares it with what vLLM loads."""
    from sync_runtime.library.weights import Weights
    from sync_runtime.tensors import layout

    layout.SMALL_ELEMENTS = SMALL
    from vllm.config import set_current_vllm_config

    from sync_runtime.library.engines import checkpoint_files
    from sync_runtime.library.engines.vllm import SyncGroupInitInfo, _ranks, mapped
    from tests.engines.vllm import real
    from tests.support.engine_models import part

    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    folders = [Path(word) for word in sys.argv[4:6]]
    torch.set_num_threads(1)
    with real.parallel_state(rank, ranks, sys.argv[3]):
        whole_experts = "whole-experts" in sys.argv[6:]
        config = real.vllm_config(folders[0], ranks, whole_experts=whole_experts)
        model = real.load(config)
        with set_current_vllm_config(config):
            engine = mapped(model, config.model_config, SyncGroupInitInfo(), _ranks(config.parallel_config))
        second = {name: checkpoint_files.read(one) for name, one in checkpoint_files.stored_in(folders[1]).items()}
        weights = Weights(engine, rank=rank, world_size=ranks)
        shards = engine.shards()
        for name, tensor in engine.tensors().items():
            tensor.copy_(part(second[name], shards.get(name), tensor))
        with set_current_vllm_config(config):
            engine.flush()
        wrong = real.differing(model, real.load(real.vllm_config(folders[1], ranks, whole_experts=whole_experts)))
        cut = sum(1 for name, shard in shards.items() if 0 < shard.tensor.numel() < second[name].numel())
        counted = ",".join(str(number) for number in weights.holding.counted)
        sys.stdout.write(f"wrong={wrong} cut={cut} blocks={weights.blocks.num_blocks} counted={counted}\n")


if __name__ == "__main__":
    main()
