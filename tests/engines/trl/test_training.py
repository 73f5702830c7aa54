"""TRL's own AsyncGRPOTrainer, training for real on a CPU, with versions in place of its weight transfer.

Its attention is a kernel for GPUs; here plain torch stands in for that one function.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl.experimental.async_grpo import AsyncGRPOConfig, async_grpo_trainer, packing

from examples.trl_grpo import train
from sync_runtime.errors import LayoutError
from sync_runtime.library.engines.transformers import engine_copy
from sync_runtime.library.engines.trl import WeightTransfer
from tests.engines.trl.worker import FollowingWorker
from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup
from tests.support.language_models import VOCABULARY, tiny_llama

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]
LEAF = Member("eu-0", "eu", ("trainer-0",))
STEPS = 2


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A tiny model with a tokenizer, as a folder."""
    words = {"<pad>": 0, "<end>": 1, **{f"word{number}": number for number in range(2, VOCABULARY)}}
    raw = Tokenizer(WordLevel(words, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>"
    )
    folder = tmp_path / "checkpoint"
    tokenizer.save_pretrained(folder)
    tiny_llama().save_pretrained(folder)
    return str(folder)


def attention(query: Any, key: Any, value: Any, firsts: Any, key_firsts: Any, *_: Any, **more: Any) -> torch.Tensor:
    """Sequences one after the other; the last query sees all keys of its sequence."""
    found = []
    for at in range(len(firsts) - 1):
        mine = query[firsts[at] : firsts[at + 1]].transpose(0, 1)
        keys = key[key_firsts[at] : key_firsts[at + 1]].transpose(0, 1)
        values = value[key_firsts[at] : key_firsts[at + 1]].transpose(0, 1)
        sees = torch.ones(mine.shape[1], keys.shape[1], dtype=torch.bool).tril(keys.shape[1] - mine.shape[1])
        made = torch.nn.functional.scaled_dot_product_attention(
            mine, keys, values, attn_mask=sees, scale=more["softmax_scale"], enable_gqa=True
        )
        found.append(made.transpose(0, 1))
    return torch.cat(found)


def config(folder: Path) -> AsyncGRPOConfig:
    return AsyncGRPOConfig(
        str(folder), max_steps=STEPS, learning_rate=0.05, per_device_train_batch_size=2, gradient_accumulation_steps=1,
        token_budget=0, use_cpu=True, bf16=False, report_to=[], save_strategy="no", weight_sync_steps=1, seed=3,
        gradient_checkpointing=False,
    )  # fmt: skip


def test_the_transfer_has_the_methods_that_the_trainer_asks_for() -> None:
    asked = async_grpo_trainer.WeightTransferProtocol
    names = [name for name, one in vars(asked).items() if inspect.isfunction(one) and not name.startswith("_")]
    assert sorted(names) == ["destroy", "init_weight_transfer", "pause", "resume", "send_weights"]
    for name in names:
        wanted = list(inspect.signature(getattr(asked, name)).parameters)
        assert list(inspect.signature(getattr(WeightTransfer, name)).parameters) == wanted


def test_a_worker_follows_every_weight_sync_of_a_real_training(
    group: InsideGroup, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=attention))
    live = engine_copy(tiny_llama(), torch.bfloat16)
    seen: list[dict[str, torch.Tensor]] = []

    def keep(_: int) -> None:
        seen.append({name: one.clone() for name, one in live.state_dict().items()})

    worker = FollowingWorker(live, group.socket("eu-0"), keep)
    trainer = train(checkpoint, config(tmp_path / "output"), worker=worker, socket=group.socket("trainer-0"))
    assert worker.versions == list(range(1, STEPS + 2))
    trained = trainer.model.state_dict()
    assert trained.keys() == seen[-1].keys()
    assert all(torch.equal(seen[-1][name], one.to(torch.bfloat16)) for name, one in trained.items())
    assert any(not torch.equal(seen[0][name], one) for name, one in seen[-1].items()), "nothing was trained"


def test_adapters_are_refused_before_training(checkpoint: str) -> None:
    model = tiny_llama()
    model.peft_config = {}
    with pytest.raises(LayoutError, match="adapters"):
        WeightTransfer(SimpleNamespace(model=model)).init_weight_transfer()
