"""Trainers of several ranks: one version or none, the bytes of a single rank, through a real sidecar."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sync_runtime import Shard, Subscriber
from sync_runtime.errors import LayoutError, SidecarLostError, SyncError
from sync_runtime.library.device_publish import DevicePublisher
from sync_runtime.library.version import Version
from tests.component.ranks.publishers import Trainer, close_all, objects, open_all, opened, publish_all, restart
from tests.support.device_models import same_state
from tests.support.following import follow
from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup
from tests.support.sharded import load, one_rank, rank_state, together, train_whole, whole_state

pytestmark = pytest.mark.timeout(120)
LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start("trainer-0")
        yield made


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_publish_the_bytes_of_a_single_rank(tmp_path: Path, ranks: int) -> None:
    made, versions = [], []
    for size in (1, ranks):
        folder = tmp_path / str(size)
        folder.mkdir()
        state = whole_state()
        with InsideGroup(folder, [TRAINER], ringBytes=1 << 20) as group:
            group.start_all()
            parts: list[Any] = [rank_state(state, rank, ranks) for rank in range(ranks)]
            publishers = open_all(group, parts if size > 1 else [one_rank(state, ranks)])
            for step in (1, 2):
                train_whole(state, step)
                for part in parts:
                    load(part, state)
                found = publish_all(publishers, step)
                assert all(isinstance(one, Version) for one in found), found
                assert len(set(found)) == 1
                versions.append((found[0].seq, found[0].digest, found[0].step))
            made.append(objects(group))
            close_all(publishers)
    assert sorted(made[0]) == ["0-1.fast", "1-2.fast"]
    assert made[0] == made[1]
    assert versions[:2] == versions[2:]


def test_a_rank_that_has_nothing_takes_part_in_every_version(group: InsideGroup) -> None:
    whole = whole_state()
    nothing = {name: Shard(one.new_empty(0, *one.shape[1:]), tuple(one.shape)) for name, one in whole.items()}
    publishers = open_all(group, [whole, nothing], patience=20.0)
    for step in (1, 2):
        train_whole(whole, step)
        first, second = publish_all(publishers, step)
        assert isinstance(first, Version), first
        assert (second, first.seq) == (first, step)
        restart(group, publishers)
    assert sorted(objects(group)) == ["0-1.fast", "1-2.fast"]
    close_all(publishers)


def test_a_joiner_gets_whole_weights_from_all_ranks(group: InsideGroup) -> None:
    trainer = Trainer(group)
    trainer.published(1)
    group.start("eu-0")
    stranger = whole_state(9)
    with Subscriber(one_rank(stranger, 2), socket=group.socket("eu-0"), coder="library") as subscriber:
        follow(subscriber, 1)
        assert same_state(stranger, trainer.whole)
        follow(subscriber, trainer.published(2).seq)
        assert same_state(stranger, trainer.whole)
    close_all(trainer.publishers)


def test_a_worker_that_codes_itself_follows_where_it_knows_the_trainers_cuts(group: InsideGroup) -> None:
    trainer = Trainer(group)
    cuts = json.loads(json.dumps(dict(trainer.publishers[0].cuts)))
    assert cuts == {"v": [6, 48], "w": [12, 32]}
    group.start("eu-0")
    live = whole_state()
    socket = group.socket("eu-0")
    with Subscriber(live, socket=socket, coder="library", cuts=cuts) as subscriber:
        follow(subscriber, trainer.published(1).seq)
        assert same_state(live, trainer.whole)
    with pytest.raises(LayoutError, match="'stranger'"):
        Subscriber(live, socket=socket, coder="library", cuts={"stranger": (1, 1)})
    close_all(trainer.publishers)


def test_ranks_go_on_in_their_lineage_after_the_sidecar_was_restarted(group: InsideGroup) -> None:
    trainer = Trainer(group, patience=20.0)
    first = trainer.published(1)
    restart(group, trainer.publishers)
    second = trainer.published(2)
    assert (second.lineage, second.seq) == (first.lineage, 2)
    close_all(trainer.publishers)


def test_where_one_rank_fails_all_raise_and_nothing_stays(group: InsideGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(group)
    trainer.published(1)
    before, original, calls = objects(group), DevicePublisher._chunks, []

    def fail_once(self: DevicePublisher, made: Any) -> Any:
        calls.append(self)
        if len(calls) == 2:
            raise SyncError("this rank has no memory left")
        return original(self, made)

    monkeypatch.setattr(DevicePublisher, "_chunks", fail_once)
    found = trainer.publish(2)
    assert all(isinstance(one, SyncError) for one in found), found
    assert objects(group) == before
    assert trainer.published(3).seq == 2
    close_all(trainer.publishers)


def test_ranks_that_publish_different_steps_all_raise(group: InsideGroup) -> None:
    trainer = Trainer(group)
    trainer.train(1)
    found = together(lambda: trainer.publishers[0].publish(step=1), lambda: trainer.publishers[1].publish(step=2))
    assert all(isinstance(one, SyncError) and "publishes step" in str(one) for one in found), found
    assert objects(group) == {}
    assert trainer.published(3).seq == 1
    close_all(trainer.publishers)


def test_a_rank_that_is_alone_is_told_so(group: InsideGroup) -> None:
    with pytest.raises(SidecarLostError, match="2 ranks"):
        opened(group, rank_state(whole_state(), 0, 2), 0, 2, timeout=1.0)


def test_a_second_process_of_one_rank_is_refused(group: InsideGroup) -> None:
    trainer = Trainer(group)
    with pytest.raises(SyncError, match="rank 1 is connected already"):
        opened(group, trainer.parts[1], 1, 2, timeout=5.0)
    trainer.published(1)
    close_all(trainer.publishers)


def test_ranks_that_count_each_other_differently_are_refused(group: InsideGroup) -> None:
    trainer = Trainer(group)
    with pytest.raises(SyncError, match="says that there are 3 ranks"):
        opened(group, rank_state(whole_state(), 2, 3), 2, 3, timeout=5.0)
    close_all(trainer.publishers)


def test_a_rank_out_of_range_is_refused(group: InsideGroup) -> None:
    with pytest.raises(SyncError, match="rank 2 does not exist among 2"):
        opened(group, rank_state(whole_state(), 1, 2), 2, 2, timeout=5.0)


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (lambda whole: rank_state(whole, 0, 2), "is counted by ranks 0 and 1"),
        (lambda whole: rank_state({**whole, "b": whole["b"].double()}, 1, 2), "disagree about the layout"),
    ],
)
def test_ranks_that_do_not_fit_together_are_refused(group: InsideGroup, second: Any, sentence: str) -> None:
    whole = whole_state()
    found = together(
        lambda: opened(group, rank_state(whole, 0, 2), 0, 2, timeout=10.0),
        lambda: opened(group, second(whole), 1, 2, timeout=10.0),
    )
    assert all(isinstance(one, SyncError) and sentence in str(one) for one in found), found


def test_blocks_that_nobody_counts_are_named(group: InsideGroup) -> None:
    whole = whole_state()
    parts = [rank_state(whole, rank, 3) for rank in (0, 1)]
    found = together(*(lambda at=at: opened(group, parts[at], at, 2, timeout=10.0) for at in (0, 1)))
    assert all(isinstance(one, LayoutError) and "is counted by no rank" in str(one) for one in found), found
