"""Engines of several ranks: each holds its shards, and all switch to a version together or none does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime import Publisher, Shard, Subscriber
from sync_runtime.errors import LayoutError, SyncError
from sync_runtime.local.messages import Staged
from sync_runtime.session.members import EngineSession
from sync_runtime.session.ranks.door import Rank
from sync_runtime.session.ranks.link import RanksLink
from sync_runtime.session.ranks.subscribing import EngineRanks
from tests.support.children import REPOSITORY
from tests.support.deaths import VARIABLE
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.noticing import AT_ONCE_S
from tests.support.sharded import one_rank, rank_state, same_part, together, train_whole, whole_state

pytestmark = pytest.mark.timeout(120)
LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def subscribed(group: InsideGroup, held: Any, rank: int, ranks: int, **more: Any) -> Subscriber:
    settings: dict[str, Any] = {"timeout": 20.0, **more}
    return Subscriber(held, socket=group.socket("eu-0"), coder="library", rank=rank, world_size=ranks, **settings)


class Engine:
    """Ranks of one engine, and a trainer of one rank."""

    def __init__(self, group: InsideGroup, ranks: int = 2, seed: int = 0) -> None:
        self.whole = whole_state()
        self.publisher = Publisher(one_rank(self.whole, ranks), socket=group.socket("trainer-0"), coder="library")
        self.parts = [rank_state(whole_state(seed), rank, ranks, copies=True) for rank in range(ranks)]
        found = together(*(partial(subscribed, group, one, at, ranks) for at, one in enumerate(self.parts)))
        assert all(isinstance(one, Subscriber) for one in found), found
        self.subscribers = [one for one in found if isinstance(one, Subscriber)]

    def publish(self, step: int) -> int:
        train_whole(self.whole, step)
        return self.publisher.publish(step=step).seq

    def activate(self) -> list[Any]:
        return together(*(one.activate for one in self.subscribers))

    def follow(self, seq: int) -> None:
        def there() -> bool:
            self.subscribers[0].wait(timeout=0.2)
            found = self.activate()
            assert len(set(found)) == 1, found
            return all(one.version is not None and one.version.seq >= seq for one in self.subscribers)

        wait_for(there, 40, what=f"version {seq}")

    def close(self) -> None:
        together(*(one.close for one in self.subscribers), lambda: self.publisher.close(0.0))


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_follow_together_bit_for_bit(group: InsideGroup, ranks: int) -> None:
    engine = Engine(group, ranks)
    for step in (1, 2):
        engine.follow(engine.publish(step))
        assert all(same_part(part, engine.whole) for part in engine.parts)
    assert together(*(one.scrub for one in engine.subscribers)) == [True] * ranks
    engine.close()


def test_ranks_of_unknown_weights_get_whole_ones(group: InsideGroup) -> None:
    engine = Engine(group, seed=9)
    engine.follow(engine.publish(1))
    assert all(same_part(part, engine.whole) for part in engine.parts)
    engine.close()


def test_a_wrong_copy_is_found_when_ranks_open(group: InsideGroup) -> None:
    whole = whole_state()
    publisher = Publisher(one_rank(whole, 2), socket=group.socket("trainer-0"), coder="library")
    parts = [rank_state(whole, rank, 2, copies=True) for rank in (0, 1)]
    copy = parts[1]["b"]
    assert isinstance(copy, torch.Tensor)
    copy += 1
    found = together(*(partial(subscribed, group, one, at, 2) for at, one in enumerate(parts)))
    assert [isinstance(one, Subscriber) and one.version for one in found] == [None, None]
    together(*(one.close for one in found if isinstance(one, Subscriber)), lambda: publisher.close(0.0))


def test_ranks_hear_that_the_trainer_cuts_otherwise(group: InsideGroup) -> None:
    """They decode by themselves, so their blocks must be the trainer's: nothing could ever be staged."""
    whole = whole_state()
    publisher = Publisher(one_rank(whole, 3), socket=group.socket("trainer-0"), coder="library")
    parts = [rank_state(whole, rank, 2, copies=True) for rank in (0, 1)]
    found = together(*(partial(subscribed, group, one, at, 2) for at, one in enumerate(parts)))
    subscribers = [one for one in found if isinstance(one, Subscriber)]
    train_whole(whole, 1)
    publisher.publish(step=1)
    told = together(*(partial(one.wait, timeout=20.0) for one in subscribers))
    assert [type(one) for one in told] == [LayoutError, LayoutError]
    assert all("'v' is cut every 6 rows and 32 columns at the trainer" in str(one) for one in told)
    told = together(*(one.activate for one in subscribers))
    assert [type(one) for one in told] == [LayoutError, LayoutError]
    assert all(same_part(part, whole_state()) for part in parts)
    together(*(one.close for one in subscribers))
    refused = together(*(partial(subscribed, group, one, at, 2) for at, one in enumerate(parts)))
    assert [type(one) for one in refused] == [LayoutError, LayoutError]
    publisher.close(0.0)


def test_no_rank_switches_before_all_have_staged(group: InsideGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(group)
    engine.follow(engine.publish(1))
    original, release, late = EngineRanks._one_staged, threading.Event(), []

    async def delayed(self: EngineRanks, rank: Rank, joined: RanksLink, message: Staged) -> None:
        async def later() -> None:
            await asyncio.to_thread(release.wait, 30)
            await original(self, rank, joined, message)

        if rank.number == 1 and not release.is_set():
            late.append(asyncio.create_task(later()))
        else:
            await original(self, rank, joined, message)

    monkeypatch.setattr(EngineRanks, "_one_staged", delayed)
    before = {name: tensor.clone() for name, tensor in engine.whole.items()}
    engine.publish(2)
    assert all(one.wait(timeout=20) is not None for one in engine.subscribers)
    assert engine.activate() == [None, None]
    assert all(same_part(part, before) for part in engine.parts)
    release.set()
    engine.follow(2)
    assert all(same_part(part, engine.whole) for part in engine.parts)
    engine.close()


def test_a_rank_that_goes_away_lets_none_switch_and_all_go_on_when_it_is_back(group: InsideGroup) -> None:
    engine = Engine(group)
    engine.follow(engine.publish(1))
    before = {name: tensor.clone() for name, tensor in engine.whole.items()}
    engine.subscribers[1].close()
    engine.publish(2)
    began = time.monotonic()
    with pytest.raises(SyncError):
        engine.subscribers[0].activate()
    assert time.monotonic() - began < AT_ONCE_S
    assert same_part(engine.parts[0], before)
    engine.subscribers[1] = subscribed(group, engine.parts[1], 1, 2)
    engine.follow(2)
    assert all(same_part(part, engine.whole) for part in engine.parts)
    engine.close()


def start_rank(group: InsideGroup, rank: int, death: str | None = None) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.support.engine_rank_program", group.socket("eu-0"), str(rank), "2", "1"]
    environment = {**os.environ, **({} if death is None else {VARIABLE: death})}
    return subprocess.Popen(words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)


def activate_for_ever(subscriber: Subscriber) -> None:
    while True:
        assert subscriber.activate() is None


@pytest.mark.parametrize("moment", ["DeviceSubscriber.decode:before:1", "DeviceSubscriber.decode:after:1"])
def test_a_rank_killed_while_it_stages_lets_none_switch(group: InsideGroup, moment: str) -> None:
    whole = whole_state()
    part = rank_state(whole, 0, 2)
    publisher = Publisher(one_rank(whole, 2), socket=group.socket("trainer-0"), coder="library")
    with start_rank(group, 1, f"sync_runtime.library.device_stage:{moment}") as doomed:
        subscriber = subscribed(group, part, 0, 2, timeout=60.0, patience=30.0)
        train_whole(whole, 1)
        published = publisher.publish(step=1)
        with pytest.raises(SyncError):
            activate_for_ever(subscriber)
        assert doomed.wait(30) == -signal.SIGKILL
    assert same_part(part, whole_state())
    with start_rank(group, 1) as back:

        def there() -> bool:
            with suppress(SyncError):  # the other rank is still starting
                subscriber.activate()
            return subscriber.version is not None and subscriber.version.seq == 1

        wait_for(there, 60, what="version 1")
        said = back.communicate(timeout=60)[0]
    assert said.split() == ["1", published.digest]
    assert same_part(part, whole)
    together(subscriber.close, lambda: publisher.close(0.0))


def test_wrong_bits_of_one_rank_are_found_and_mended(group: InsideGroup) -> None:
    engine = Engine(group)
    engine.follow(engine.publish(1))
    shard = engine.parts[1]["w"]
    assert isinstance(shard, Shard)
    shard.tensor.view(torch.int16)[0, 0] += 1
    assert together(*(one.scrub for one in engine.subscribers)) == [False, False]

    def mended() -> bool:
        together(*(one.activate for one in engine.subscribers))
        return all(same_part(part, engine.whole) for part in engine.parts)

    wait_for(mended, 30, what="the repair")
    assert together(*(one.scrub for one in engine.subscribers)) == [True, True]
    engine.close()


@pytest.mark.parametrize("moment", ["DeviceSubscriber.apply:before:1", "DeviceSubscriber.apply:after:1"])
def test_a_rank_killed_between_leave_and_its_word_for_it_leaves_no_half_version(
    group: InsideGroup, moment: str
) -> None:
    whole = whole_state()
    part = rank_state(whole, 0, 2)
    publisher = Publisher(one_rank(whole, 2), socket=group.socket("trainer-0"), coder="library")
    with start_rank(group, 1, f"sync_runtime.library.device_stage:{moment}") as doomed:
        subscriber = subscribed(group, part, 0, 2, timeout=60.0, patience=30.0)
        train_whole(whole, 1)
        published = publisher.publish(step=1)
        with suppress(SyncError):  # leave was given to both; this rank may hear of the other's end before it switches
            wait_for(lambda: subscriber.activate() == published, 60, what="leave for version 1")
        assert doomed.wait(30) == -signal.SIGKILL
    assert same_part(part, whole)
    engine = group.sidecars["eu-0"].role.engine
    assert isinstance(engine, EngineSession)
    assert engine.live is None or engine.live.seq == 0  # half of the ranks: no version is claimed
    with start_rank(group, 1) as back:

        def ended() -> bool:
            with suppress(SyncError):  # the other rank is still starting
                subscriber.activate()
            return back.poll() is not None

        wait_for(ended, 60, what="version 1 in both ranks")
        said = back.communicate(timeout=60)[0]
    assert said.split() == ["1", published.digest]
    assert same_part(part, whole)
    together(subscriber.close, lambda: publisher.close(0.0))
