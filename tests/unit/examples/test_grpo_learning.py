"""The learner and the loop of the GRPO example: what a step does, and that runs repeat bit for bit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.grpo import plots
from examples.grpo import settings as run_settings
from examples.grpo.learner import Judged, Learner, advantages_of
from examples.grpo.model import WIRE, load
from examples.grpo.output import FIGURES, Output
from examples.grpo.rollout import Rollout, Sample
from examples.grpo.settings import TINY
from examples.grpo.sources import InProcess
from examples.grpo.training import (
    Figures,
    Training,
    load_masters,
    masters_sum,
    read_checkpoint,
    requests_of,
    sum_of,
    wire_sum,
)
from sync_runtime.library.engines.transformers import engine_copy

pytestmark = pytest.mark.timeout(60)  # the first import of transformers

SMALL = replace(TINY, groups=2, samples=8, steps=4, entropy=0.0)


def judged(rewards: tuple[float, ...]) -> Judged:
    """A group whose first answer is `4` and an end, the others `5` and an end."""
    policy = load(SMALL)
    request = replace(requests_of(SMALL, policy, 0)[0], samples=len(rewards))
    answers = [policy.text.encode("4\n")] + [policy.text.encode("5\n")] * (len(rewards) - 1)
    samples = tuple(Sample(tuple(tokens), (-2.6, -2.6)) for tokens in answers)
    return Judged(request, Rollout(samples), rewards)


def probability(model: torch.nn.Module, group: Judged) -> float:
    ids = torch.tensor([[*group.request.prompt, *group.rollout.samples[0].tokens]])
    logits = model(ids[:, :-1]).logits[0, len(group.request.prompt) - 1 :]
    return float(logits.log_softmax(-1).gather(1, ids[0, len(group.request.prompt) :, None]).sum().exp().detach())


def test_advantages_are_relative_to_the_group() -> None:
    found = advantages_of([1.0, 0.0, 0.0, 0.0])
    assert found[0] > 0 > found[1]
    assert abs(float(found.sum())) < 1e-5
    assert torch.equal(advantages_of([0.3, 0.3]), torch.zeros(2))


def test_a_step_makes_the_better_answer_likelier() -> None:
    policy, group = load(SMALL), judged((1.0, 0.0, 0.0, 0.0))
    before = probability(policy.model, group)
    learned = Learner(policy.model, SMALL).learn([group])
    assert probability(policy.model, group) > before
    assert learned.groups_used == 1
    assert learned.reward == 0.25


def test_groups_that_teach_nothing_change_nothing() -> None:
    policy = load(SMALL)
    before = masters_sum(policy)
    assert Learner(policy.model, SMALL).learn([judged((0.1, 0.1))]).groups_used == 0
    assert masters_sum(policy) == before


def test_ratios_beyond_the_clip_give_no_gradient() -> None:
    policy, group = load(SMALL), judged((1.0, 0.0))
    rich = tuple(replace(one, log_probs=(-9.0, -9.0)) for one in group.rollout.samples[:1])
    poor = tuple(replace(one, log_probs=(-0.01, -0.01)) for one in group.rollout.samples[1:])
    before = masters_sum(policy)
    learned = Learner(policy.model, SMALL).learn([replace(group, rollout=Rollout(rich + poor))])
    assert learned.grad_norm == 0.0
    assert masters_sum(policy) == before


def finished(checkpoint: Path | None = None, stop_at: int | None = None) -> str:
    """The sum of the masters after a run, in two processes' worth where it is stopped on the way."""
    policy = load(SMALL)
    training = Training(policy, SMALL, InProcess(policy.model), checkpoint)
    training.run(lambda _: None, until=stop_at)
    if checkpoint is None or stop_at is None:
        return masters_sum(policy)
    saved = read_checkpoint(checkpoint)
    assert saved is not None
    again = load(replace(SMALL, seed=5))
    load_masters(again, saved)
    rest = Training(again, SMALL, InProcess(again.model), checkpoint)
    rest.load_learner(saved)
    rest.load_source(saved)
    rest.run(lambda _: None)
    return masters_sum(again)


def test_runs_repeat_bit_for_bit_and_a_checkpoint_is_a_place_to_go_on_from(tmp_path: Path) -> None:
    whole = finished()
    assert finished() == whole
    assert finished(tmp_path / "checkpoint.pt", stop_at=2) == whole
    assert masters_sum(load(SMALL)) != whole


def test_a_run_ends_after_the_step_in_which_it_is_told_to() -> None:
    policy, told = load(SMALL), list[Figures]()
    Training(policy, SMALL, InProcess(policy.model)).run(told.append, stop=lambda: len(told) == 2)
    assert [one.step for one in told] == [1, 2]


def test_a_worker_has_the_masters_as_they_travel() -> None:
    policy = load(SMALL)
    assert wire_sum(policy) == sum_of(list(engine_copy(policy.model, WIRE).state_dict().items()))
    assert wire_sum(policy) != masters_sum(policy)


@pytest.mark.parametrize("settings", [TINY, replace(TINY, width=96, layers=3)])
def test_the_tiny_models_size_is_known_without_making_it(settings: run_settings.Settings) -> None:
    elements = sum(one.numel() for one in load(settings).model.parameters())
    assert run_settings.tiny_parameters(settings) == elements


def test_figures_become_a_picture_and_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    with Output(tmp_path) as output:
        for step in (1, 2, 2, 3):  # a trainer that went back takes a step twice
            output.step(Figures(step, 0.1 * step, 0.0, 0.0, 2, 0.5, 40, 0.1, 0.05, 1000 * step, 2))
        output.end(sum="0")
    assert [line["step"] for line in plots.read(tmp_path / FIGURES)] == [1, 2, 3]
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "run.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page
    assert "<td>0.300</td>" in page


def test_a_run_without_a_network_is_drawn_too(tmp_path: Path) -> None:
    line = Figures(1, 0.1, 0.0, 0.0, 2, 0.0, 40, 0.1, 0.05, None, 1).to_line()
    (tmp_path / FIGURES).write_text(line + "\n")
    assert all(path.stat().st_size > 0 for path in plots.draw(tmp_path / FIGURES, tmp_path))


def test_the_mean_runs_behind() -> None:
    assert plots.smoothed([1.0, 3.0, 5.0], window=2) == [1.0, 2.0, 4.0]


def test_settings_survive_the_command_line() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    run_settings.add_arguments(parser)
    for settings in (TINY, run_settings.SMOLLM2, replace(TINY, seed=7, learning_rate=1e-5, ahead=2)):
        assert run_settings.from_arguments(parser.parse_args(list(run_settings.as_arguments(settings)))) == settings
    assert run_settings.from_arguments(parser.parse_args(["--model", "smollm2", "--steps", "3"])) == replace(
        run_settings.SMOLLM2, steps=3
    )
