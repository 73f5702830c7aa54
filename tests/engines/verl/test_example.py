"""The example runs, and a worker elsewhere has the bits of its last version."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from examples.verl_checkpoint import train
from sync_runtime import Subscriber
from sync_runtime.library.engines.transformers import engine_copy
from tests.engines.verl.pair import same_bits
from tests.support.following import follow
from tests.support.inside import InsideGroup
from tests.support.language_models import tiny_llama

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("default")]
STEPS = 3


def test_a_worker_follows_the_example(group: InsideGroup, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = engine_copy(tiny_llama(), torch.bfloat16)
    with Subscriber(live, engine="transformers", socket=group.socket("eu-0")) as worker:
        trained = train(str(checkpoint), STEPS, socket=group.socket("trainer-0"))
        follow(worker, STEPS)
    assert same_bits(live.state_dict(), dict(trained.state_dict()))
    assert not same_bits(live.state_dict(), dict(tiny_llama().state_dict())), "nothing was trained"
    assert capsys.readouterr().out.splitlines()[-1] == "step 2: version 3"
