"""Ranks of a trainer as threads of the test, over real sockets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from sync_runtime import Publisher, Shard
from sync_runtime.library.version import Version
from tests.support.groups import wait_for
from tests.support.inside import InsideGroup
from tests.support.sharded import State, load, rank_state, together, train_whole, whole_state


def opened(group: InsideGroup, held: Mapping[str, torch.Tensor | Shard], rank: int, ranks: int, **more: Any) -> Any:
    settings = {"timeout": 20.0, **more}
    return Publisher(held, socket=group.socket("trainer-0"), coder="library", rank=rank, world_size=ranks, **settings)


def open_all(group: InsideGroup, parts: list[Any], **more: Any) -> list[Publisher]:
    found = together(*(partial(opened, group, one, rank, len(parts), **more) for rank, one in enumerate(parts)))
    assert all(isinstance(one, Publisher) for one in found), found
    return [one for one in found if isinstance(one, Publisher)]


def publish_all(publishers: list[Publisher], step: int) -> list[Any]:
    return together(*(partial(one.publish, step=step) for one in publishers))


def restart(group: InsideGroup, publishers: list[Publisher]) -> None:
    """The trainer's sidecar ends, all ranks have noticed that, and it is back."""
    group.stop("trainer-0")
    wait_for(lambda: not any(one._session._connection.is_open for one in publishers), what="their notice")  # type: ignore[attr-defined]
    group.start("trainer-0")


def close_all(publishers: list[Publisher]) -> None:
    together(*(partial(one.close, 0.0) for one in publishers))


def objects(group: InsideGroup) -> dict[str, bytes]:
    """What the trainer's spool holds."""
    spool = group.sidecars["trainer-0"].spool
    return group.call(lambda: {one.key.text.partition("/")[2]: bytes(one.view()) for one in spool.objects()})


class Trainer:
    """Ranks that train one model."""

    def __init__(self, group: InsideGroup, ranks: int = 2, **more: Any) -> None:
        self.whole: State = whole_state()
        self.parts: list[Any] = [rank_state(self.whole, rank, ranks) for rank in range(ranks)]
        self.publishers = open_all(group, self.parts, **more)

    def train(self, step: int) -> None:
        train_whole(self.whole, step)
        for part in self.parts:
            load(part, self.whole)

    def publish(self, step: int) -> list[Any]:
        self.train(step)
        return publish_all(self.publishers, step)

    def published(self, step: int) -> Version:
        versions = self.publish(step)
        assert all(isinstance(one, Version) for one in versions), versions
        assert len(set(versions)) == 1
        first = versions[0]
        assert isinstance(first, Version)
        return first
