"""A worker's library against a sidecar on a real socket: bits cross, and either end may die."""

import threading
import time
from typing import Any

import pytest
import torch

import sync_runtime
from sync_runtime.errors import (
    NothingWrittenError,
    OldTermError,
    SidecarLostError,
)
from sync_runtime.library import folding
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.subscriber import Subscriber
from sync_runtime.local import messages as m
from tests.component.local.rig import Pair, copy_of, eventually, member_of, same, small_state, train, waited
from tests.support.toy_sidecar import toy_sidecar

pytestmark = pytest.mark.timeout(30)


def test_versions_arrive_bit_for_bit(path: str, pair: Pair) -> None:
    weights = small_state()
    replica = copy_of(weights)
    with sync_runtime.Publisher(weights, socket=path) as publisher:
        assert publisher.version is not None
        assert publisher.version.seq == 0
        with sync_runtime.Subscriber(replica, socket=path) as subscriber:
            assert subscriber.version == publisher.version
            assert not subscriber.stale
            for step in range(3):
                train(weights)
                version = publisher.publish(step=step)
                assert (version.seq, version.step) == (step + 1, step)
                assert waited(subscriber, seq=version.seq) == version
                assert subscriber.staged == version
                assert subscriber.stale
                assert not same(replica, weights)
                assert subscriber.activate() == version
                assert same(replica, weights)
                assert subscriber.version == version
                assert subscriber.staged is None
                assert not subscriber.stale
            assert subscriber.activate() is None


def test_several_staged_versions_become_one_switch(path: str, pair: Pair) -> None:
    weights = small_state()
    replica = copy_of(weights)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        for _ in range(4):
            train(weights)
            publisher.publish()
        waited(subscriber, seq=4)
        assert subscriber.activate() == publisher.version
        assert same(replica, weights)
        eventually(lambda: [one.seq for one in pair[0].said if isinstance(one, m.Activated)] == [4])


def test_masters_in_fp32_travel_as_bf16(path: str, pair: Pair) -> None:
    masters = {"w": torch.randn(50, 20), "i": torch.arange(5)}
    replica = {"w": masters["w"].to(torch.bfloat16), "i": torch.arange(5)}
    with (
        Publisher(masters, wire_dtype=torch.bfloat16, socket=path) as publisher,
        Subscriber(replica, socket=path) as subscriber,
    ):
        assert subscriber.version == publisher.version
        masters["w"] *= 1.01
        publisher.publish()
        waited(subscriber)
        subscriber.activate()
        assert torch.equal(replica["w"], masters["w"].to(torch.bfloat16))


def test_a_module_with_tied_weights_and_buffers_is_kept_level(path: str, pair: Pair) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight
            self.norm = torch.nn.BatchNorm1d(4)

    trainer, worker = Tied(), Tied()
    worker.load_state_dict(trainer.state_dict())
    with Publisher(trainer, socket=path) as publisher, Subscriber(worker, socket=path) as subscriber:
        trainer.head(trainer.norm(trainer.embed(torch.arange(10)))).sum().backward()
        for parameter in trainer.parameters():
            assert parameter.grad is not None
            parameter.data -= 0.1 * parameter.grad
        publisher.publish()
        waited(subscriber)
        subscriber.activate()
    assert pair[0].layout is not None
    assert pair[0].layout.tied == (("head.weight", "embed.weight"),)
    for name, tensor in trainer.state_dict().items():
        assert torch.equal(tensor, worker.state_dict()[name]), name
    assert worker.head.weight is worker.embed.weight


def test_a_subscriber_goes_on_when_its_sidecar_is_back(path: str) -> None:
    weights = small_state()
    replica = copy_of(weights)
    with toy_sidecar(path) as (sidecar, _):
        publisher = Publisher(weights, socket=path)
        subscriber = Subscriber(replica, socket=path)
        train(weights)
        first = publisher.publish()
        waited(subscriber)
        subscriber.activate()
        train(weights)
        publisher.publish()
        waited(subscriber)
    eventually(lambda: subscriber.staged is None)
    assert subscriber.activate() is None
    assert subscriber.version == first
    assert not same(replica, weights)
    with toy_sidecar(path, sidecar) as (_, server), publisher, subscriber:
        eventually(lambda: subscriber._session.connection.is_open)
        assert subscriber.version == first
        server.call(sidecar.stage_newest())
        waited(subscriber)
        assert subscriber.activate() == publisher.version
        assert same(replica, weights)


def test_a_sidecar_that_dies_when_asked_for_leave_changes_nothing(path: str, pair: Pair) -> None:
    weights = small_state()
    replica = copy_of(weights)
    before = copy_of(replica)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        train(weights)
        publisher.publish()
        waited(subscriber)
        pair[0].hang_up_on = m.Activate
        with pytest.raises(SidecarLostError):
            subscriber.activate()
        assert same(replica, before)


def test_leave_that_is_refused_changes_nothing(path: str, pair: Pair) -> None:
    weights = small_state()
    replica = copy_of(weights)
    before = copy_of(replica)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        train(weights)
        publisher.publish()
        waited(subscriber)
        pair[0].fail[m.Activate] = OldTermError("a new trainer has taken over")
        assert subscriber.activate() is None
        assert same(replica, before)
        assert subscriber.staged is None


def test_a_worker_with_other_weights_gets_whole_ones(path: str, pair: Pair) -> None:
    sidecar, server = pair
    weights, replica = small_state(1), small_state(2)
    sidecar.stage_new = False
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        assert subscriber.version is None
        assert subscriber.stale
        server.call(sidecar.stage(member_of(sidecar), sidecar.versions[-1], form="state"))
        train(weights)
        publisher.publish()
        server.call(sidecar.stage_newest())
        waited(subscriber, seq=1)
        assert subscriber.version is None
        assert subscriber.activate() == publisher.version
        assert same(replica, weights)


def test_weights_that_turn_out_to_be_a_version_need_no_whole_ones(path: str, pair: Pair) -> None:
    sidecar, server = pair
    weights = small_state()
    with Subscriber(copy_of(weights), socket=path) as subscriber:
        assert subscriber.version is None
        with Publisher(weights, socket=path) as publisher:
            member_of(sidecar).live = kept = sidecar.versions[-1]
            server.call(member_of(sidecar).link.send(m.Known(kept.lineage, kept.seq, kept.digest, None)))
            eventually(lambda: subscriber.version == publisher.version)
            train(weights)
            publisher.publish()
            waited(subscriber)
            assert subscriber.activate() == publisher.version


def test_a_scrub_finds_damage_and_the_repair_mends_it(path: str, pair: Pair) -> None:
    weights = small_state()
    replica = copy_of(weights)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        assert subscriber.scrub()
        replica["a.bias"][1] = 77.0
        assert not subscriber.scrub()
        assert subscriber.poisoned
        assert subscriber.stale
        train(weights)
        publisher.publish()  # staged over the repair
        waited(subscriber, seq=1)
        assert subscriber.activate() == publisher.version
        assert same(replica, weights)
        assert subscriber.scrub()
        assert not subscriber.poisoned


def test_the_scrub_follows_the_switch_by_itself_where_it_is_wanted(path: str, pair: Pair) -> None:
    weights = small_state()
    replica = copy_of(weights)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path, auto_scrub=True) as subscriber:
        replica["a.bias"][1] = 77.0
        train(weights)
        publisher.publish()
        waited(subscriber)
        subscriber.activate()
        eventually(lambda: subscriber.poisoned)
        eventually(lambda: subscriber.staged is not None)
        subscriber.activate()
        assert same(replica, weights)
        eventually(lambda: not subscriber.poisoned)


def test_an_interrupted_scatter_is_completed_first(path: str, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = small_state()
    replica = copy_of(weights)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        train(weights)
        version = publisher.publish()
        waited(subscriber)
        real = folding._scatter_tensor
        calls = []

        def broken(*arguments: Any) -> None:
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            real(*arguments)

        monkeypatch.setattr(folding, "_scatter_tensor", broken)
        with pytest.raises(KeyboardInterrupt):
            subscriber.activate()
        assert not same(replica, weights)
        assert subscriber.version is None
        asked = sum(isinstance(message, m.Activate) for message in pair[0].said)
        assert subscriber.activate() == version
        assert same(replica, weights)
        assert sum(isinstance(message, m.Activate) for message in pair[0].said) == asked
        assert subscriber.scrub()


def test_an_apply_that_wrote_nothing_leaves_nothing_to_complete(
    path: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = small_state()
    replica = copy_of(weights)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        before = subscriber.version
        train(weights)
        version = publisher.publish()
        waited(subscriber)

        def refused(_: object) -> None:
            raise NothingWrittenError("the tensors moved")

        with monkeypatch.context() as patch:
            patch.setattr(subscriber._session._coder, "apply", refused)  # type: ignore[attr-defined]
            with pytest.raises(NothingWrittenError):
                subscriber.activate()
        assert subscriber.version == before
        asked = sum(isinstance(message, m.Activate) for message in pair[0].said)
        assert subscriber.activate() == version
        assert sum(isinstance(message, m.Activate) for message in pair[0].said) == asked + 1, "leave is asked for again"
        assert same(replica, weights)


def test_what_was_superseded_is_forgotten(path: str, pair: Pair) -> None:
    sidecar, server = pair
    weights = small_state()
    replica = copy_of(weights)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        states = []
        for _ in range(3):
            train(weights)
            publisher.publish()
            states.append(copy_of(weights))
        waited(subscriber, seq=3)
        member = member_of(sidecar)
        server.call(member.link.send(m.Unstage(sidecar.versions[2].ref)))
        eventually(lambda: getattr(subscriber.staged, "seq", None) == 2)
        member.staged = sidecar.versions[2]
        assert subscriber.activate() is not None
        assert same(replica, states[1])
        server.call(sidecar.stage_newest())
        waited(subscriber)
        server.call(member.link.send(m.Unstage(None)))
        eventually(lambda: subscriber.staged is None)
        assert subscriber.activate() is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda stage: m.Stage(stage.lineage, 9, stage.digest, None, m.VersionRef(stage.lineage, 8), "list", 0),
        lambda stage: m.Stage(stage.lineage, 9, stage.digest, None, None, "state", 8),
        lambda stage: m.Stage(stage.lineage, 9, stage.digest, None, m.VersionRef(stage.lineage, 0), "object", 8),
        lambda stage: m.Stage(stage.lineage, 9, stage.digest, None, m.VersionRef(stage.lineage, 0), "list", 1 << 50),
    ],
    ids=["base", "in service", "form", "size"],
)
def test_a_version_that_does_not_fit_is_refused_and_the_next_one_taken(damage: Any, path: str, pair: Pair) -> None:
    sidecar, server = pair
    weights = small_state()
    replica = copy_of(weights)
    with Publisher(weights, socket=path) as publisher, Subscriber(replica, socket=path) as subscriber:
        link = member_of(sidecar).link
        server.call(link.stream(damage(sidecar.versions[0]), [bytes(8)], m.End()))
        train(weights)
        publisher.publish()
        waited(subscriber)
        assert subscriber.activate() == publisher.version
        assert same(replica, weights)
        eventually(lambda: [one.request for one in sidecar.said if isinstance(one, m.Error)] == ["STAGE"])


def test_a_new_head_makes_it_stale_before_it_is_staged(path: str, pair: Pair) -> None:
    sidecar, server = pair
    sidecar.stage_new = False
    weights = small_state()
    with Publisher(weights, socket=path), Subscriber(copy_of(weights), socket=path) as subscriber:
        newest = sidecar.versions[-1]
        server.call(member_of(sidecar).link.send(m.Head(newest.lineage, newest.seq + 1, newest.digest, None)))
        eventually(lambda: subscriber.stale)


def test_waiting_ends_in_time(path: str, pair: Pair) -> None:
    weights = small_state()
    with Publisher(weights, socket=path), Subscriber(copy_of(weights), socket=path) as subscriber:
        began = time.monotonic()
        assert subscriber.wait(timeout=0.1) is None
        assert subscriber.wait(5, timeout=0.1) is None
        assert time.monotonic() - began < 8.0
        threading.Timer(0.1, subscriber.close).start()
        assert subscriber.wait() is None
