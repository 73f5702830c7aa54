"""The real SGLang, on a CPU: its platform is chosen before it is first imported, and nothing is fetched anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.update(
    CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
    GLOO_SOCKET_IFNAME="lo", TOKENIZERS_PARALLELISM="false",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """SGLang's parallel state with a single rank; several ranks are processes of their own."""
    from tests.engines.sglang import real

    folder = tmp_path_factory.mktemp("state")
    with real.parallel_state(real.save(real.trainer_model("llama"), folder / "model"), 0, 1, f"file://{folder}/store"):
        yield
