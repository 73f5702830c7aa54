"""A version that is superseded while it is sent, at every moment of it: bits are right, and the reason is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.session.shelf import LinkPace
from sync_runtime.transport.child import ChildLink
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0",))
PACE = LinkPace(seconds_per_byte=1e-6, rtt_s=0.001)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    buckets = {"min": 65536, "max": 65536}
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 22, bucketBytes=buckets) as made:
        made.start_all()
        made.sidecars["trainer-0"].links.pace = lambda link: PACE  # type: ignore[method-assign]
        yield made


def wide_model() -> torch.nn.Module:
    """Large enough for an object of several buckets."""
    torch.manual_seed(0)
    return torch.nn.Linear(512, 1024).bfloat16()


class Gate:
    """Lets so many buckets of the next two transfers to the relay through; the rest when it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, passes: int) -> None:
        self._lock = threading.Lock()
        self._passes, self._transfer = passes, -1
        self._add, self._complete = ChildLink.add_bucket, ChildLink.complete
        self._held: list[Callable[[], None]] = []

        def add_bucket(link: ChildLink, transfer: int, index: int) -> None:
            self._take(link, transfer, index)

        def complete(link: ChildLink, transfer: int, envelope: bytes) -> None:
            self._end(link, transfer, envelope)

        monkeypatch.setattr(ChildLink, "add_bucket", add_bucket)
        monkeypatch.setattr(ChildLink, "complete", complete)

    def _take(self, link: ChildLink, transfer: int, index: int) -> None:
        with self._lock:
            self._transfer = transfer if self._transfer < 0 and link.name == "eu-0" else self._transfer
            mine = self._is_mine(link, transfer)
            if mine and self._passes <= 0:
                self._held.append(partial(self._add, link, transfer, index))
                return
            self._passes -= mine
        self._add(link, transfer, index)

    def _is_mine(self, link: ChildLink, transfer: int) -> bool:
        return link.name == "eu-0" and 0 <= transfer - self._transfer < 2 and self._transfer >= 0

    def _end(self, link: ChildLink, transfer: int, envelope: bytes) -> None:
        with self._lock:
            if self._is_mine(link, transfer) and self._held:
                self._held.append(partial(self._complete, link, transfer, envelope))
                return
        self._complete(link, transfer, envelope)

    def open(self) -> None:
        with self._lock:
            self._passes, held, self._held = 1 << 20, self._held, []
        for act in held:
            act()


@pytest.mark.parametrize("passes", [0, 1, 3, 6, 1 << 20], ids=["begun", "one", "some", "most", "all"])
def test_a_version_superseded_at_any_moment_leaves_the_right_bits(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    trained, one, other = wide_model(), wide_model(), wide_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(one, socket=group.socket("eu-0")) as relay,
        Subscriber(other, socket=group.socket("eu-1")) as leaf,
    ):
        nudge(trained, 0)
        first = publisher.publish()
        for subscriber in (relay, leaf):
            follow(subscriber, first.seq)
        trainer = group.sidecars["trainer-0"]
        wait_for(lambda: group.call(lambda: trainer.distributor.is_level), what="a quiet link")
        gate = Gate(monkeypatch, passes)
        nudge(trained, 7, share=0.5)
        running = publisher.publish()
        nudge(trained, 7, share=0.5)  # the same elements again: one merged object costs half of both
        newest = publisher.publish()
        merged = delta_key(newest.lineage, first.seq, newest.seq)
        group.call(lambda: trainer.role.request(merged, None))
        wait_for(lambda: trainer.spool.stored(merged), what="the merged object")
        if passes <= 1:
            wait_for(
                lambda: group.ask("trainer-0", "/metrics")["syncgroup_superseded_transfers_total"], what="the change"
            )
        group.call(gate.open)  # where buckets are added: what was held goes before what comes next
        for subscriber, model in ((relay, one), (leaf, other)):
            follow(subscriber, newest.seq)
            assert same_bits(model, trained)
            assert subscriber.scrub()
        (link,) = group.ask("trainer-0", "/v1/links")["links"]
        assert len(link["superseded"]) <= 1
        assert all(f"{first.seq}-{newest.seq} merged ends in" in reason for reason in link["superseded"])
        if passes <= 1:
            assert link["superseded"]
            name = VersionRef(running.lineage, running.seq)
            assert name not in {one.key.target for one in group.sidecars["eu-0"].spool.objects()}
