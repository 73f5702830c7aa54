"""One of several ranks of SGLang's tensor parallelism, a process of its own, for tests; says what it found wrong.

python -m tests.engines.sglang.rank_program RANK RANKS STORE FOLDER FOLDER [whole-experts]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", GLOO_SOCKET_IFNAME="lo")

import torch

SMALL = 512
"""What is small here: the models are tiny."""


def main() -> None:
    """Maps a rank's model, writes the second checkpoint into it, and compares it with what SGLang loads."""
    from sync_runtime.library.weights import Weights
    from sync_runtime.tensors import layout

    layout.SMALL_ELEMENTS = SMALL
    from sync_runtime.library.engines import checkpoint_files
    from sync_runtime.library.engines.sglang import Request, _ranks, mapped
    from tests.engines.sglang import real
    from tests.support.engine_models import part

    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    folders = [Path(word) for word in sys.argv[4:6]]
    more: dict[str, Any] = {"ep_size": ranks} if "whole-experts" in sys.argv[6:] else {}
    torch.set_num_threads(1)
    with real.parallel_state(folders[0], rank, ranks, sys.argv[3], **more):
        config = real.config_of(folders[0])
        model = real.load(config)
        engine = mapped(model, config, Request(), _ranks(), lambda: None)
        second = {name: checkpoint_files.read(one) for name, one in checkpoint_files.stored_in(folders[1]).items()}
        weights = Weights(engine, rank=rank, world_size=ranks)
        shards = engine.shards()
        for name, tensor in engine.tensors().items():
            tensor.copy_(part(second[name], shards.get(name), tensor))
        engine.flush()
        wrong = real.differing(model, real.load(real.config_of(folders[1])))
        cut = sum(1 for name, shard in shards.items() if 0 < shard.tensor.numel() < second[name].numel())
        counted = ",".join(str(number) for number in weights.holding.counted)
        sys.stdout.write(f"wrong={wrong} cut={cut} blocks={weights.blocks.num_blocks} counted={counted}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
