"""Rollouts of the GRPO example: what they depend on, how they travel, and what they are worth."""

import json
from dataclasses import replace

import pytest
import torch

from examples.grpo.model import WIRE, Characters, Policy, load
from examples.grpo.rollout import PayloadError, Request, Rollout, SeededSampling, roll_out
from examples.grpo.settings import TINY, Settings
from examples.grpo.sources import InProcess
from examples.grpo.task import ENDED, NEAR, RIGHT, WELL_FORMED, Problem, problems_of, reward_of
from examples.grpo.training import requests_of
from sync_runtime.library.engines.transformers import engine_copy

pytestmark = pytest.mark.timeout(60)  # the first import of transformers

SMALL = replace(TINY, groups=3, samples=4, max_new_tokens=4)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load(SMALL)


def request_of(policy: Policy, step: int = 0, settings: Settings = SMALL) -> Request:
    return requests_of(settings, policy, step)[0]


def test_problems_follow_from_seed_and_step() -> None:
    assert problems_of(SMALL, 3) == problems_of(SMALL, 3)
    assert problems_of(SMALL, 3) != problems_of(SMALL, 4)
    assert problems_of(SMALL, 3) != problems_of(replace(SMALL, seed=1), 3)
    assert all(0 <= one.a <= SMALL.largest and 0 <= one.b <= SMALL.largest for one in problems_of(SMALL, 3))


@pytest.mark.parametrize(
    ("said", "worth"),
    [("7\n", RIGHT), ("07\n", RIGHT), ("8\n", NEAR), ("1\n", WELL_FORMED), ("7", 0.0), ("\n", ENDED), ("7+\n", ENDED)],
)
def test_an_answer_is_worth_what_can_be_checked(said: str, worth: float) -> None:
    text = Characters()
    assert reward_of(Problem(3, 4), text, text.encode(said)) == worth


def test_nothing_said_is_worth_nothing() -> None:
    assert reward_of(Problem(0, 0), Characters(), []) == 0.0


def test_a_group_is_the_same_whoever_makes_it_and_beside_what(policy: Policy) -> None:
    requests = requests_of(SMALL, policy, 0)
    alone = [roll_out(engine_copy(policy.model, WIRE).generate, one) for one in requests]
    source = InProcess(policy.model)
    source.submit(list(reversed(requests)))
    torch.manual_seed(99)  # the process's own stream plays no part
    together = [one.rollout for one in source.take(len(requests))]
    assert list(reversed(together)) == alone


def test_every_sample_has_a_stream_of_its_own(policy: Policy) -> None:
    model = engine_copy(policy.model, WIRE)
    first = roll_out(model.generate, request_of(policy))
    assert len(set(first.samples)) == SMALL.samples
    for other in (request_of(policy, step=1), request_of(policy, settings=replace(SMALL, seed=1))):
        assert roll_out(model.generate, replace(other, prompt=request_of(policy).prompt)) != first


def test_probabilities_are_those_of_the_weights_that_answered(policy: Policy) -> None:
    model = engine_copy(policy.model, torch.float32)
    request = replace(request_of(policy), temperature=0.7)
    for sample in roll_out(model.generate, request).samples:
        ids = torch.tensor([[*request.prompt, *sample.tokens]])
        logits = model(ids[:, :-1]).logits[0, len(request.prompt) - 1 :] / request.temperature
        expected = logits.log_softmax(-1).gather(1, torch.tensor(sample.tokens)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(sample.log_probs), expected, atol=1e-5)


def test_draws_follow_the_distribution(policy: Policy) -> None:
    request = replace(request_of(policy), samples=4000)
    scores = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(4000, 4)
    drawn = SeededSampling(request)(torch.zeros(4000, 1), scores).argmax(-1)
    shares = torch.bincount(drawn, minlength=4) / 4000
    assert torch.allclose(shares, scores[0].softmax(-1), atol=0.03)


def test_answers_end_where_they_end(policy: Policy) -> None:
    model = engine_copy(policy.model, WIRE)
    for step in range(5):
        for sample in roll_out(model.generate, request_of(policy, step)).samples:
            assert len(sample.tokens) == len(sample.log_probs)
            assert policy.text.end not in sample.tokens[:-1]
            assert sample.tokens[-1] == policy.text.end or len(sample.tokens) == SMALL.max_new_tokens


def test_requests_and_answers_cross_bit_for_bit(policy: Policy) -> None:
    request = request_of(policy)
    assert Request.from_bytes(request.to_bytes()) == request
    made = roll_out(engine_copy(policy.model, WIRE).generate, request)
    assert Rollout.from_bytes(made.to_bytes(), request, policy.model.config.vocab_size) == made


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.pop(),
        lambda rows: rows[0].update(tokens=[99] * len(rows[0]["tokens"])),
        lambda rows: rows[0].update(tokens=[2] * 50),
        lambda rows: rows[0].update(tokens=[]),
        lambda rows: rows[0].update(logProbs="AACAPw=="),
        lambda rows: rows[0].update(logProbs="!"),
        lambda rows: rows[0].pop("tokens"),
        lambda rows: rows.append(7),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(policy: Policy, change: object) -> None:
    request = request_of(policy)
    document = json.loads(roll_out(engine_copy(policy.model, WIRE).generate, request).to_bytes())
    assert callable(change)
    change(document["samples"])
    with pytest.raises(PayloadError, match="answer to group 0-0"):
        Rollout.from_bytes(json.dumps(document).encode(), request, policy.model.config.vocab_size)


def test_bytes_that_are_no_request_are_refused() -> None:
    for wrong in (b"", b"[]", b"{}", b'{"prompt": 3}', b"\xff"):
        with pytest.raises(PayloadError, match="request"):
            Request.from_bytes(wrong)
