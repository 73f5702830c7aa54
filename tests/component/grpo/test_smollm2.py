"""SmolLM2-135M from its GGUF file: it speaks, it learns, and its versions reach a worker bit for bit.

Runs where the file is in the user's cache; `python -m examples.grpo.local --model smollm2 --steps 1` fetches it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.grpo import smollm2
from examples.grpo.model import WIRE, Policy, load
from examples.grpo.settings import SMOLLM2
from examples.grpo.sources import InProcess
from examples.grpo.training import Training, masters_sum, sum_of
from sync_runtime import Publisher, Subscriber
from sync_runtime.library.engines.transformers import engine_copy
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not smollm2.place().exists(), reason="SmolLM2's file is not in the cache, and is not fetched by tests"
    ),
]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load(SMOLLM2)


def test_it_knows_what_two_and_two_is(policy: Policy) -> None:
    prompt = torch.tensor([policy.text.encode(policy.text.question(2, 2))])
    said = engine_copy(policy.model, WIRE).generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=1, do_sample=False, pad_token_id=policy.text.pad
    )
    assert policy.text.decode(said[0, prompt.shape[1] :].tolist()) == "4"


def test_text_survives_tokens(policy: Policy) -> None:
    assert policy.text.decode(policy.text.encode("Hello, 12 worlds: naïve?\n")) == "Hello, 12 worlds: naïve?\n"
    assert policy.text.encode("<|im_end|>") == [policy.text.end]


def test_a_step_reaches_a_worker_bit_for_bit(policy: Policy, tmp_path: Path) -> None:
    settings = replace(SMOLLM2, groups=1, samples=2, steps=1, entropy=0.1)
    engine = engine_copy(policy.model, WIRE)
    before = masters_sum(policy)
    members = [TRAINER, Member("eu-0", "eu", ("trainer-0",))]
    with InsideGroup(tmp_path, members) as group:
        group.start_all()
        with (
            Publisher(
                policy.model, wire_dtype=WIRE, engine="transformers", socket=group.socket("trainer-0")
            ) as publisher,
            Subscriber(engine, engine="transformers", socket=group.socket("eu-0")) as subscriber,
        ):
            while masters_sum(policy) == before:  # a group whose answers are all worth the same teaches nothing
                settings = replace(settings, seed=settings.seed + 1)
                Training(policy, settings, InProcess(policy.model)).run(lambda _: None)
            version = publisher.publish(step=1)
            wait_for(lambda: subscriber.staged == version, 300, what="the version")
            assert subscriber.activate() == version
            assert subscriber.scrub()
    cast = engine_copy(policy.model, WIRE)
    assert sum_of(list(engine.state_dict().items())) == sum_of(list(cast.state_dict().items()))
