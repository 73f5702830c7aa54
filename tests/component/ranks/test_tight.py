"""`tight` from libraries that code: asked for where a link wants it, from one rank or several, with the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime import Shard, Subscriber
from sync_runtime.errors import SyncError
from sync_runtime.library.device_publish import DevicePublisher
from sync_runtime.library.version import Version
from sync_runtime.offline import diff
from sync_runtime.tensors.layout import parse_layout
from tests.component.ranks.publishers import Trainer, close_all, objects, open_all, opened, publish_all
from tests.support.children import REPOSITORY
from tests.support.deaths import VARIABLE
from tests.support.device_models import same_state
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.sharded import State, load, rank_state, together, train_whole, whole_state

pytestmark = pytest.mark.timeout(180)
LEAF = Member("eu-0", "eu", ("trainer-0",))


def wants_tight(group: InsideGroup) -> None:
    """Waits until the trainer knows that a link does."""
    distributor = group.sidecars["trainer-0"].distributor
    wait_for(lambda: group.call(lambda: distributor.wants_codec("tight")), what="a link that wants tight")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20, codec="Tight") as made:
        made.start_all()
        wants_tight(made)
        yield made


def copied(state: State) -> State:
    return {name: one.clone() for name, one in state.items()}


def made_alone(group: InsideGroup, states: list[State]) -> dict[str, bytes]:
    """What one process with everything makes of the states on the CPU, on the same grid."""
    spool = group.sidecars["trainer-0"].spool
    document = group.call(lambda: spool.layout(next(iter(spool.objects())).facts.layout_hash))
    assert document is not None
    layout = parse_layout(document)
    return {
        f"{at}-{at + 1}.{codec}": bytes(diff(old, new, codec=codec, layout=layout).object)
        for at, (old, new) in enumerate(pairwise(states))
        for codec in ("fast", "tight")
    }


def test_ranks_make_the_tight_bytes_of_a_single_process(group: InsideGroup) -> None:
    whole = whole_state()
    parts: list[Any] = [rank_state(whole, rank, 2) for rank in (0, 1)]
    publishers = open_all(group, parts)
    states = [copied(whole)]
    for step in (1, 2):
        train_whole(whole, step)
        for part in parts:
            load(part, whole)
        found = publish_all(publishers, step)
        assert all(isinstance(one, Version) and one.seq == step for one in found), found
        states.append(copied(whole))
    assert objects(group) == made_alone(group, states)
    close_all(publishers)


def test_a_member_behind_a_slow_link_gets_tight_and_the_same_bits(group: InsideGroup) -> None:
    trainer = Trainer(group)
    live = whole_state()
    with Subscriber(live, socket=group.socket("eu-0")) as subscriber:
        wait_for(lambda: subscriber.version is not None, what="the first version")
        follow(subscriber, trainer.published(1).seq)
        assert same_state(live, trainer.whole)
        received = group.call(lambda: [one.key.text for one in group.sidecars["eu-0"].spool.objects()])
        assert [key.partition("/")[2] for key in received] == ["0-1.tight"]
    close_all(trainer.publishers)


def test_a_version_without_changes_is_tight_too(group: InsideGroup) -> None:
    trainer = Trainer(group)
    found = publish_all(trainer.publishers, 1)
    assert all(isinstance(one, Version) for one in found), found
    assert sorted(objects(group)) == ["0-1.fast", "0-1.tight"]
    close_all(trainer.publishers)


def test_a_rank_that_has_nothing_counts_nothing(group: InsideGroup) -> None:
    whole = whole_state()
    nothing = {name: Shard(one.new_empty(0, *one.shape[1:]), tuple(one.shape)) for name, one in whole.items()}
    publishers = open_all(group, [whole, nothing])
    states = [copied(whole)]
    train_whole(whole, 1)
    states.append(copied(whole))
    assert [one.seq for one in publish_all(publishers, 1)] == [1, 1]
    assert objects(group) == made_alone(group, states)
    close_all(publishers)


@pytest.mark.parametrize(("part", "ranks"), [("count", 2), ("recode", 2), ("recode", 1)])
def test_where_one_rank_cannot_the_version_goes_out_as_fast(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch, part: str, ranks: int
) -> None:
    trainer = Trainer(group, ranks)
    original, calls = getattr(DevicePublisher, part), []

    def fail_once(self: DevicePublisher, *words: Any) -> Any:
        calls.append(self)
        if len(calls) == 1:
            raise SyncError("this rank has no memory left")
        return original(self, *words)

    monkeypatch.setattr(DevicePublisher, part, fail_once)
    assert trainer.published(1).seq == 1
    assert sorted(objects(group)) == ["0-1.fast"]
    assert trainer.published(2).seq == 2
    assert "1-2.tight" in objects(group)
    close_all(trainer.publishers)


def test_a_rank_that_counts_wrongly_costs_those_bytes_alone(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(group)
    monkeypatch.setattr(DevicePublisher, "count", lambda self: (memoryview(bytes(8)),))
    assert trainer.published(1).seq == 1
    assert sorted(objects(group)) == ["0-1.fast"]
    monkeypatch.undo()
    close_all(trainer.publishers)


@pytest.mark.parametrize("moment", ["count:before", "recode:before"])
def test_a_rank_killed_between_its_counts_and_its_blocks_leaves_nothing(group: InsideGroup, moment: str) -> None:
    method, _, when = moment.partition(":")
    death = f"sync_runtime.library.device_publish:DevicePublisher.{method}:{when}:1"
    words = [sys.executable, "-m", "tests.support.rank_program", group.socket("trainer-0"), "1", "2"]
    environment = {**os.environ, VARIABLE: death}
    whole = whole_state()
    part = rank_state(whole, 0, 2)
    with subprocess.Popen(words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True) as doomed:
        publisher = opened(group, part, 0, 2, timeout=60.0, patience=60.0)
        train_whole(whole, 1)
        load(part, whole)
        (version,) = together(lambda: publisher.publish(step=1), timeout_s=90.0)
        assert doomed.wait(60) == -9
    assert isinstance(version, Version), version  # it was durable before its ranks were asked for more
    assert sorted(objects(group)) == ["0-1.fast"]
    spool = group.folder / "state/trainer-0/spool"
    wait_for(lambda: not [one for one in spool.rglob("*tight*") if one.is_file()], what="nothing of it")
    live = whole_state()
    with Subscriber(live, socket=group.socket("eu-0")) as subscriber:  # the link that waited for it gets the other one
        follow(subscriber, 1)
        assert same_state(live, whole)
    together(lambda: publisher.close(0.0))


def test_a_library_of_the_protocol_before_is_not_asked(group: InsideGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.library.publisher.PROTOCOLS", (1,))
    trainer = Trainer(group)
    assert trainer.published(1).seq == 1
    assert sorted(objects(group)) == ["0-1.fast"]
    close_all(trainer.publishers)


def test_copies_and_masters_are_counted_once(group: InsideGroup) -> None:
    whole = whole_state()
    masters = {name: one.float() if one.dtype == torch.bfloat16 else one.clone() for name, one in whole.items()}
    publishers = open_all(group, [masters], wire_dtype=torch.bfloat16)
    train_whole(whole, 1)
    for name, one in masters.items():
        one.copy_(whole[name])
    states = [{**whole_state(), "b": whole_state()["b"].bfloat16()}, {**copied(whole), "b": whole["b"].bfloat16()}]
    assert publish_all(publishers, 1)[0].seq == 1
    assert objects(group) == made_alone(group, states)
    close_all(publishers)
