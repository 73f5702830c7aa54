"""What goes wrong around verl's checkpoint engine, and that the next update is whole all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime.errors import LayoutError, LocalError, SidecarLostError
from tests.engines.verl.pair import Pair, State, engine, handed, same_bits, saved, train
from tests.support.inside import InsideGroup
from tests.support.language_models import tiny_llama

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("default")]


def test_ranks_that_do_not_publish_walk_through_all_tensors(group: InsideGroup, checkpoint: Path) -> None:
    other, left = engine(group, "trainer-0", checkpoint), iter(handed(tiny_llama()).items())
    assert asyncio.run(other.send_weights(left, global_steps=0)) == {}
    assert next(left, None) is None
    assert other.version is None


SPOILT: dict[str, tuple[Callable[[State], Any], str]] = {
    "an adapter": (lambda state: state.update(lora_A=torch.zeros(2)), "'lora_A'.*merge adapters"),
    "a tensor is missing": (lambda state: state.pop("model.norm.weight"), "'model.norm.weight'.*not handed over"),
    "a tied tensor has gone its own way": (
        lambda state: state.update({"lm_head.weight": state["lm_head.weight"] + 1}), "'lm_head.weight'.*one tensor",
    ),
    "a part of a tensor": (
        lambda state: state.update({"model.norm.weight": state["model.norm.weight"][:3]}), r"\[3\].*whole",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT.values(), ids=SPOILT)
def test_what_is_not_the_checkpoints_model_is_no_version_and_the_next_update_is(
    case: tuple[Callable[[State], Any], str], pair: Pair
) -> None:
    spoil, said = case
    model = tiny_llama()
    pair.update(handed(model).items(), 0)
    train(model, 1)
    broken = handed(model)
    spoil(broken)
    left = iter(broken.items())
    with pytest.raises(LayoutError, match=said):
        asyncio.run(pair.trainer.send_weights(left, global_steps=1))
    assert next(left, None) is None, "other ranks wait in the collectives that gather the rest"
    assert pair.trainer.version.seq == 1
    train(model, 2)
    assert same_bits(pair.update(handed(model).items(), 1), handed(model))
    assert pair.rollout.version.seq == 2


def test_a_version_that_does_not_come_fails_the_update_and_the_weights_stay(pair: Pair) -> None:
    masters = handed(tiny_llama())
    pair.update(masters.items(), 0)
    pair.prepare()
    pair.rollout._wait_s = 0.5
    with pytest.raises(LocalError, match=r"the version of step 1 did not come within 0.5 s"):
        asyncio.run(anext(pair.rollout.receive_weights(global_steps=1)))
    assert same_bits(dict(pair.rollout._receiver.items()), masters)


def test_where_the_first_worker_fails_the_others_at_its_sidecar_do_too(group: InsideGroup, checkpoint: Path) -> None:
    pair, masters = Pair(group, checkpoint, beside=1), handed(tiny_llama())
    pair.update(masters.items(), 0)
    pair.prepare()
    pair.rollout._wait_s = 0.5  # the other one would wait longer

    async def both() -> list[Any]:
        asked = (anext(one.receive_weights(global_steps=1)) for one in pair.rollouts)
        return await asyncio.gather(*asked, return_exceptions=True)

    first, second = asyncio.run(both())
    assert "did not come within 0.5 s" in str(first)
    assert "the first worker at this sidecar has not got the version" in str(second)
    pair.close()


def test_whoever_waits_in_an_older_update_gives_up_when_the_next_one_begins(pair: Pair) -> None:
    masters = handed(tiny_llama())
    pair.update(masters.items(), 0)
    pair.prepare()

    async def waits() -> None:
        late = asyncio.ensure_future(anext(pair.rollout.receive_weights(global_steps=1)))
        await asyncio.sleep(0.2)
        pair.prepare()
        with pytest.raises(LocalError, match="another update has begun"):
            await late

    asyncio.run(waits())
    assert same_bits(pair.update(masters.items(), 1), masters)


def test_weights_that_are_asked_for_too_early_are_refused(pair: Pair) -> None:
    with pytest.raises(LocalError, match="before `init_process_group`"):
        asyncio.run(anext(pair.rollout.receive_weights(global_steps=0)))


def test_a_trainers_sidecar_that_went_away_fails_the_update_and_the_next_one_goes_on(
    pair: Pair, group: InsideGroup, checkpoint: Path
) -> None:
    model = tiny_llama()
    pair.update(handed(model).items(), 0)
    group.stop("trainer-0")
    pair.trainer._publisher._patience_s = 0.2
    train(model, 1)
    with pytest.raises(SidecarLostError):
        pair.send(handed(model).items(), 1)
    pair.trainer._publisher._patience_s = 30.0
    group.start("trainer-0")
    assert same_bits(pair.update(handed(model).items(), 1), handed(model))


def test_a_rollouts_sidecar_that_comes_back_in_the_middle_is_waited_for(pair: Pair, group: InsideGroup) -> None:
    model = tiny_llama()
    pair.update(handed(model).items(), 0)
    train(model, 1)
    pair.prepare()
    group.stop("eu-0")
    pair.send(handed(model).items(), 1)

    async def received() -> State:
        waiting = asyncio.ensure_future(collected())
        await asyncio.sleep(0.5)
        await asyncio.to_thread(group.start, "eu-0")
        return await waiting

    async def collected() -> State:
        return {name: one.clone() async for name, one in pair.rollout.receive_weights(global_steps=1)}

    assert same_bits(asyncio.run(received()), handed(model))


def test_a_rollout_that_begins_with_another_base_gets_whole_weights(
    group: InsideGroup, checkpoint: Path, tmp_path: Path
) -> None:
    model = tiny_llama()
    first = Pair(group, checkpoint)
    for step in range(2):
        train(model, step)
        first.update(handed(model).items(), step)
    first.rollout.close()
    first.rollout = engine(group, "eu-1", saved(tiny_llama(seed=7), tmp_path / "other"))
    train(model, 2)
    assert same_bits(first.update(handed(model).items(), 2), handed(model))
    first.close()


def test_a_trainer_that_comes_back_sends_a_step_again_and_the_old_one_is_not_taken_for_it(
    group: InsideGroup, checkpoint: Path
) -> None:
    model, pair = tiny_llama(), Pair(group, checkpoint)
    for step in (0, 1):
        train(model, step)
        pair.update(handed(model).items(), step)
    pair.trainer.close()
    pair.trainer = engine(group, "trainer-0", checkpoint, is_master=True)  # from an older checkpoint of its own
    again = tiny_llama()
    train(again, 11)
    assert same_bits(pair.update(handed(again).items(), 1), handed(again))
    pair.close()
