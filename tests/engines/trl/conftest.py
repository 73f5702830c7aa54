"""The real TRL, on a CPU: nothing is fetched from anywhere, and nothing is reported to anyone."""

from __future__ import annotations

import os

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
    CUDA_VISIBLE_DEVICES="", TRL_EXPERIMENTAL_SILENCE="1",
)  # fmt: skip
