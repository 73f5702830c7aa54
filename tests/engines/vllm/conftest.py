"""The real vLLM, on a CPU: its platform is chosen before it is first imported, and nothing is fetched from anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.update(
    VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", GLOO_SOCKET_IFNAME="lo", TOKENIZERS_PARALLELISM="false",
)  # fmt: skip
collect_ignore_glob: list[str] = []


@pytest.fixture(scope="session", autouse=True)
def one_rank() -> Iterator[None]:
    """vLLM's parallel state with a single rank; several ranks are processes of their own."""
    from tests.engines.vllm import real

    with real.parallel_state(0, 1):
        yield
