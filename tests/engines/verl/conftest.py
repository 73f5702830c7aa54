"""The real verl, on a CPU: nothing is fetched from anywhere, and nothing is reported to anyone."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup

if TYPE_CHECKING:
    from tests.engines.verl.pair import Pair

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
    CUDA_VISIBLE_DEVICES="", RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32),
)  # fmt: skip
os.environ.update(  # a busy machine is not a dead one
    RAY_health_check_timeout_ms="60000", RAY_health_check_failure_threshold="100", RAY_worker_niceness="0",
)  # fmt: skip
os.environ.update(
    VERL_USE_EXTERNAL_MODULES="tests.engines.verl.cpu_platform", VERL_PLATFORM="cpu", VERL_ENGINE_DEVICE="cuda"
)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    """A trainer's sidecar and two rollouts'."""
    members = [TRAINER, Member("eu-0", "eu", ("trainer-0",)), Member("eu-1", "eu", ("trainer-0",))]
    with InsideGroup(tmp_path, members, ringBytes=1 << 20) as made:
        made.start_all()
        yield made


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """What both ends begin with, in fp32."""
    from tests.support.language_models import tiny_llama  # transformers reads the environment above when it is imported

    tiny_llama().save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.fixture
def pair(group: InsideGroup, checkpoint: Path) -> Iterator[Pair]:
    """A trainer and a rollout."""
    from tests.engines.verl.pair import Pair  # and so does verl

    made = Pair(group, checkpoint)
    yield made
    made.close()
