"""Generation with a Hugging Face model over real sidecars: every token is of one version, every cache too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache

from sync_runtime import Generation, Publisher, Subscriber
from sync_runtime.errors import LocalError, SettingsError
from sync_runtime.library.engines.transformers import engine_copy
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.language_models import PAD, VOCABULARY, tiny_llama
from tests.support.models import nudge, same_bits

pytestmark = pytest.mark.timeout(60)

PROMPT = torch.arange(2, 12).reshape(2, 5)
LONG = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": PAD, "eos_token_id": None}


class Pair:
    """A trainer with fp32 masters, and a worker in bf16."""

    def __init__(self, group: InsideGroup) -> None:
        group.start_all()
        self.masters = tiny_llama()
        self.model = engine_copy(self.masters, torch.bfloat16)
        self.publisher = Publisher(
            self.masters, wire_dtype=torch.bfloat16, engine="transformers", socket=group.socket("trainer-0")
        )
        self.group = group
        self.subscriber = Subscriber(self.model, engine="transformers", socket=group.socket("eu-0"), patience=0.5)
        # Opened before its sidecar knew the trainer's version, the worker is given it as one to switch to.
        assert self.subscriber.wait(0, timeout=20) == self.publisher.version
        self.subscriber.activate()
        assert self.subscriber.version == self.publisher.version

    def publish(self, seed: int) -> Any:
        """A step; returns when the worker has it staged."""
        nudge(self.masters, seed, share=0.5)
        version = self.publisher.publish(step=seed)
        wait_for(lambda: self.subscriber.staged == version, what="a staged version")
        return version

    def expected(self, ids: torch.Tensor, **options: Any) -> torch.Tensor:
        """What the trainer's weights say."""
        made: torch.Tensor = engine_copy(self.masters, torch.bfloat16).generate(
            ids, attention_mask=torch.ones_like(ids), **{**LONG, **options}
        )
        return made

    def close(self) -> None:
        self.subscriber.close()
        self.publisher.close(drain=0.0)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    members = [TRAINER, Member("eu-0", "eu", ("trainer-0",))]
    with InsideGroup(tmp_path, members, ringBytes=1 << 22) as group:
        made = Pair(group)
        yield made
        made.close()


def test_calls_between_versions_say_what_the_trainers_weights_say(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber)
    first = generation.generate(PROMPT, **LONG)
    assert first.version == pair.publisher.version
    assert torch.equal(first.output, pair.expected(PROMPT))
    version = pair.publish(1)
    second = generation.generate(PROMPT, **LONG)
    assert second.version == version
    assert same_bits(pair.model, engine_copy(pair.masters, torch.bfloat16))
    assert torch.equal(second.output, pair.expected(PROMPT))
    assert not torch.equal(second.output, first.output)
    assert pair.model.lm_head.weight.data_ptr() == pair.model.model.embed_tokens.weight.data_ptr()
    assert pair.subscriber.scrub()


def test_asked_for_alone_a_version_waits_until_its_user_wants_it(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber, switch="asked")
    first = pair.subscriber.version
    version = pair.publish(1)
    assert generation.generate(PROMPT, **LONG).version == first
    assert generation.activate() == version
    assert generation.generate(PROMPT, **LONG).version == version


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_cache_from_an_older_version_is_emptied(pair: Pair, kind: str) -> None:
    config = pair.model.config
    cache = DynamicCache(config=config) if kind == "dynamic" else StaticCache(config=config, max_cache_len=64)
    generation = Generation(pair.model, pair.subscriber)
    said = generation.generate(PROMPT, past_key_values=cache, **LONG).output
    kept = int(cache.get_seq_length())
    assert kept >= PROMPT.shape[1]
    again = generation.generate(said, past_key_values=cache, **LONG).output
    assert torch.equal(again, pair.expected(said))
    assert int(cache.get_seq_length()) > kept  # under one version it is of use
    pair.publish(1)
    after = generation.generate(again, past_key_values=cache, **LONG).output
    assert torch.equal(after, pair.expected(again))


def test_a_version_waits_for_calls_that_run(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber)
    first = pair.subscriber.version
    inside, go_on = threading.Event(), threading.Event()

    def hold(_: torch.Tensor, __: Any, **___: Any) -> torch.Tensor:
        inside.set()
        assert go_on.wait(20)
        return torch.zeros(PROMPT.shape[0], dtype=torch.bool)

    made: list[Any] = []
    slow = threading.Thread(
        target=lambda: made.append(generation.generate(PROMPT, stopping_criteria=[hold], **LONG)), daemon=True
    )
    slow.start()
    assert inside.wait(20)
    expected = pair.expected(PROMPT)
    version = pair.publish(1)
    switch = threading.Thread(target=lambda: made.append(generation.activate()), daemon=True)
    switch.start()
    switch.join(0.2)
    assert switch.is_alive()
    assert pair.subscriber.version == first
    go_on.set()
    slow.join(20)
    switch.join(20)
    assert made[0].version == first
    assert torch.equal(made[0].output, expected)
    assert made[1] == version


def test_between_tokens_what_was_said_is_read_anew(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber, switch="tokens")
    first = pair.subscriber.version
    old = pair.expected(PROMPT)
    tokens, versions = [0], [first]

    def publish_once(_: torch.Tensor, __: Any, **___: Any) -> torch.Tensor:
        tokens[0] += 1
        if tokens[0] == 4:
            versions.append(pair.publish(1))
        return torch.zeros(PROMPT.shape[0], dtype=torch.bool)

    made = generation.generate(PROMPT, stopping_criteria=[publish_once], **LONG)
    assert [(span.start, span.version) for span in made.spans] == [(0, versions[0]), (4, versions[1])]
    assert made.version is None
    half = PROMPT.shape[1] + 4
    assert torch.equal(made.output[:, :half], old[:, :half])
    assert torch.equal(made.output, pair.expected(old[:, :half], max_new_tokens=8))


def test_between_tokens_rows_that_ended_stay_ended(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber, switch="tokens")
    new = pair.expected(PROMPT)[:, PROMPT.shape[1] :]
    end = int(new[0, 1])  # the first row ends after its second token
    assert end not in new[1, :3]

    def publish_once(ids: torch.Tensor, _: Any, **__: Any) -> torch.Tensor:
        if ids.shape[1] == PROMPT.shape[1] + 3 and pair.subscriber.staged is None:
            pair.publish(1)
        return torch.zeros(ids.shape[0], dtype=torch.bool)

    options = {**LONG, "eos_token_id": end}
    made = generation.generate(PROMPT, stopping_criteria=[publish_once], **options)
    assert len(made.spans) == 2
    rest = made.output[0, PROMPT.shape[1] + 2 :]
    assert bool((rest == PAD).all())
    assert torch.equal(made.output[1, : PROMPT.shape[1] + 3], torch.cat([PROMPT[1], new[1, :3]]))


def test_a_sidecar_that_is_away_stops_nobody(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber)
    first = pair.subscriber.version
    version = pair.publish(1)
    pair.group.stop("eu-0")
    assert generation.generate(PROMPT, **LONG).version == first
    pair.group.start("eu-0")
    wait_for(lambda: generation.generate(PROMPT, **LONG).version == version, what="the new version")


def test_dropout_is_off_even_after_the_user_trained(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber)
    pair.model.train()
    generation.generate(PROMPT, **LONG)
    assert not pair.model.training


def test_a_worker_with_other_weights_waits_for_its_first_version(tmp_path: Path) -> None:
    members = [TRAINER, Member("eu-0", "eu", ("trainer-0",))]
    with InsideGroup(tmp_path, members, ringBytes=1 << 22) as group:
        group.start_all()
        masters, other = tiny_llama(), engine_copy(tiny_llama(seed=7), torch.bfloat16)
        with Subscriber(other, engine="transformers", socket=group.socket("eu-0")) as subscriber:
            with pytest.raises(LocalError, match=r"no version arrived within 0.1 s"):
                Generation(other, subscriber, timeout=0.1).generate(PROMPT, **LONG)
            with Publisher(
                masters, wire_dtype=torch.bfloat16, engine="transformers", socket=group.socket("trainer-0")
            ) as publisher:
                made = Generation(other, subscriber).generate(PROMPT, **LONG)
                assert made.version == publisher.version
        assert same_bits(other, engine_copy(masters, torch.bfloat16))


def test_what_cannot_be_switched_between_tokens_is_refused(pair: Pair) -> None:
    generation = Generation(pair.model, pair.subscriber, switch="tokens")
    for wrong in ({"num_beams": 2}, {"return_dict_in_generate": True}, {"max_new_tokens": None}):
        options = {key: value for key, value in {**LONG, **wrong}.items() if key != "max_new_tokens" or value}
        with pytest.raises(SettingsError, match="switch 'tokens'"):
            generation.generate(PROMPT, **options)
    with pytest.raises(SettingsError, match="no method `generate`"):
        Generation(torch.nn.Linear(2, 2), pair.subscriber)
    assert int(PROMPT.max()) < VOCABULARY
