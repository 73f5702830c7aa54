"""Trainers of real FSDP2 and tensor-parallel ranks: nothing is gathered, and the bytes are those of a single rank."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sync_runtime import Subscriber
from sync_runtime.offline import Delta, diff
from sync_runtime.tensors.bits import BitTensor, from_buffer
from sync_runtime.tensors.layout import Layout, parse_layout
from tests.component.ranks.publishers import objects
from tests.support.children import child, line_of
from tests.support.device_models import State, same_state
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.mesh_models import WIRE, Net, whole_state

pytestmark = pytest.mark.timeout(120)
LEAF = Member("eu-0", "eu", ("trainer-0",))
Ask = Callable[..., list[dict[str, Any]]]
TIED = {"head.weight": "embed.weight"}


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Four processes with torch, started once: a command goes to all of them."""
    with child([sys.executable, "-m", "tests.support.mesh_ranks"], stdin=subprocess.PIPE) as process:

        def ask_all(**command: Any) -> list[dict[str, Any]]:
            assert process.stdin is not None
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            answers: list[dict[str, Any]] = json.loads(line_of(process))
            return answers[: command["ranks"]]

        yield ask_all


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20, codec="Tight") as made:
        made.start("trainer-0")
        yield made


def link_that_wants_tight(group: InsideGroup) -> None:
    """A member behind it; without one nobody wants `tight`."""
    group.start("eu-0")
    distributor = group.sidecars["trainer-0"].distributor
    wait_for(lambda: group.call(lambda: distributor.wants_codec("tight")), what="a link that wants tight")


def state_at(folder: Path, step: int) -> State:
    """What torch gathered after a step."""
    with np.load(folder / f"{step}.npz") as found:
        bits = {name: torch.from_numpy(found[name]) for name in found.files}
    return {name: one.view(WIRE) if one.dtype == torch.int16 else one for name, one in bits.items()}


def layout_of(group: InsideGroup) -> Layout:
    spool = group.sidecars["trainer-0"].spool
    document = group.call(lambda: spool.layout(next(iter(spool.objects())).facts.layout_hash))
    assert document is not None
    return parse_layout(document)


def single_process(layout: Layout, states: list[State], codec: str) -> list[Delta]:
    """What one process that has everything makes of the states, on the same grid."""
    bits = [{name: as_bits(one) for name, one in state.items()} for state in states]
    return [diff(old, new, codec=codec, layout=layout) for old, new in pairwise(bits)]


def as_bits(tensor: torch.Tensor) -> BitTensor:
    name, raw = ("BF16", tensor.view(torch.int16)) if tensor.dtype == WIRE else ("I64", tensor)
    return from_buffer(raw.numpy().tobytes(), name, tuple(tensor.shape))


@pytest.mark.parametrize(
    "case",
    [
        ("rows", 1, 1, "tight"), ("rows", 2, 1, "fast"), ("rows", 3, 2, "tight"), ("rows", 4, 1, "fast"),
        ("columns", 2, 1, "tight"), ("tensors", 3, 1, "fast"), ("replicas", 4, 1, "tight"), ("both", 4, 2, "fast"),
    ],
    ids=lambda case: f"{case[0]}-{case[1]}",
)  # fmt: skip
def test_ranks_publish_their_own_parts_and_a_plain_model_follows(
    ask: Ask, group: InsideGroup, tmp_path: Path, case: tuple[str, int, int, str]
) -> None:
    way, ranks, steps, codec = case
    before = whole_state(Net())
    live: dict[str, torch.Tensor] = {name: one.clone() for name, one in before.items()}
    model = {**live, **{alias: live[name] for alias, name in TIED.items()}}
    if codec == "tight":
        link_that_wants_tight(group)
    answers = ask(way=way, ranks=ranks, steps=steps, socket=group.socket("trainer-0"), folder=str(tmp_path))
    assert not [one["error"] for one in answers if "error" in one]
    assert [one["collectives"] for one in answers] == [0] * ranks
    assert ranks == 1 or all(one["seen"] > 0 for one in answers), "what counts collectives sees none"
    versions = answers[0]["versions"]
    assert all(one["versions"] == versions for one in answers)
    if codec == "tight":  # of one rank on a CPU the sidecar codes it, while training goes on
        wait_for(lambda: len(objects(group)) == 2 * steps, what="all tight objects")
    published = objects(group)
    if codec == "fast":
        group.start("eu-0")
    with Subscriber(model, socket=group.socket("eu-0")) as subscriber:
        follow(subscriber, steps)  # from version 0: it has the weights that the ranks began with, and none are sent
        assert subscriber.version is not None
        assert subscriber.version.digest == versions[-1]["digest"]
    states = [before, *(state_at(tmp_path, step) for step in range(1, steps + 1))]
    assert not same_state(states[0], states[1])
    assert same_state(live, states[-1])
    layout = layout_of(group)
    assert dict(layout.tied) == TIED
    alone = {one: single_process(layout, states, one) for one in dict.fromkeys(("fast", codec))}
    assert [str(one.target.digest) for one in alone["fast"]] == [one["digest"] for one in versions]
    assert published == {
        f"{at}-{at + 1}.{name}": bytes(one.object) for name, made in alone.items() for at, one in enumerate(made)
    }


def test_a_tensor_that_ranks_cut_in_the_middle_is_refused_in_every_rank(
    ask: Ask, group: InsideGroup, tmp_path: Path
) -> None:
    answers = ask(way="middle", ranks=2, steps=1, socket=group.socket("trainer-0"), folder=str(tmp_path))
    assert all("'stacked'" in one["error"] and "first or its last dimension" in one["error"] for one in answers)
