"""Publisher and Subscriber with coder `library` on any device: on the GPU in full, under the interpreter in small."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime.errors import LocalProtocolError, SidecarLostError
from sync_runtime.library import engines
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.subscriber import Subscriber
from sync_runtime.library.weights import Weights
from sync_runtime.local import messages as m
from tests.support.local import ServerThread
from tests.support.toy_sidecar import Kept, Member, ToySidecar, toy_sidecar

State = dict[str, torch.Tensor]
WAIT_S = 60.0


def make_state(device: str, rows: int, seed: int = 0) -> State:
    """Several widths, views through strides, tensors that are packed together."""
    torch.manual_seed(seed)
    wide = torch.randn(rows, 40).to(torch.bfloat16).to(device)
    return {
        "w": torch.randn(rows, 24).to(torch.bfloat16).to(device), "view": wide[:, 8:32], "b": torch.randn(7).to(device),
        "t": torch.randn(6, rows).to(torch.bfloat16).to(device).T, "n": torch.tensor(3, device=device),
        "mask": torch.tensor([True, False, True], device=device), "empty": torch.zeros(0, 4, device=device),
    }  # fmt: skip


def train(state: State, step: int = 1) -> None:
    """Some elements of every tensor but the mask."""
    state["w"].view(torch.int16)[:: 3 + step, ::5] += 1 + step
    state["view"].view(torch.int16)[1::4, 3] -= 300
    state["t"].view(torch.int16)[step % 2 :: 6] += 1
    state["b"][step % 7] += 1
    state["n"] += 1 << 33


def copy_of(state: State) -> State:
    return {name: tensor.clone() for name, tensor in state.items()}


def same(one: State, other: State) -> bool:
    return all(torch.equal(one[name].cpu(), other[name].cpu()) for name in one)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def waited(subscriber: Subscriber, seq: int | None = None) -> None:
    assert subscriber.wait(seq, timeout=WAIT_S) is not None


def member_of(sidecar: ToySidecar) -> Member:
    return next(iter(sidecar.members.values()))


def open_pair(path: str, weights: Any, replica: Any, **options: Any) -> tuple[Publisher, Subscriber]:
    publisher = Publisher(weights, socket=path, coder="library", **options)
    return publisher, Subscriber(replica, socket=path, coder="library")


def check_versions_arrive(device: str, rows: int, folder: Path) -> None:
    """Deltas made by one end are applied by the other, one by one and several at once."""
    weights = make_state(device, rows)
    replica = copy_of(weights)
    with toy_sidecar(str(folder / "s")) as (sidecar, _):
        publisher, subscriber = open_pair(str(folder / "s"), weights, replica)
        with publisher, subscriber:
            assert subscriber.version == publisher.version
            for step in (1, 2, 3):
                train(weights, step)
                publisher.publish(step=step)
                if step == 2:
                    continue  # two versions become one switch
                waited(subscriber, step)
                before = copy_of(replica)
                assert same(replica, before)
                assert subscriber.activate() == publisher.version
                assert same(replica, weights)
            assert subscriber.scrub()
            assert [one.seq for one in sidecar.said if isinstance(one, m.Activated)] == [1, 3]


def check_masters(device: str, rows: int, folder: Path) -> None:
    """fp32 masters travel as bf16, also beside tensors that are bf16 themselves."""
    torch.manual_seed(1)
    masters = {"w": torch.randn(rows, 24, device=device), "v": torch.randn(5, device=device)}
    mixed = {**masters, "x": torch.randn(rows, 3, device=device).to(torch.bfloat16)}
    for at, weights in enumerate((masters, mixed)):
        replica = {name: tensor.to(torch.bfloat16).clone() for name, tensor in weights.items()}
        path = str(folder / f"masters-{at}")
        with toy_sidecar(path):
            publisher, subscriber = open_pair(path, weights, replica, wire_dtype=torch.bfloat16)
            with publisher, subscriber:
                weights["w"] *= 1.01
                publisher.publish()
                waited(subscriber, 1)
                subscriber.activate()
                assert torch.equal(replica["w"], weights["w"].to(torch.bfloat16))


def check_replaced_tensors(device: str, rows: int, folder: Path) -> None:
    """Training code that puts new tensors in place of old ones is followed."""
    weights = make_state(device, rows)
    replica = copy_of(weights)
    with toy_sidecar(str(folder / "s")):
        publisher, subscriber = open_pair(str(folder / "s"), weights, replica)
        with publisher, subscriber:
            weights["w"] = weights["w"] + 1
            replica["b"] = replica["b"].clone()
            publisher.publish()
            waited(subscriber, 1)
            subscriber.activate()
            assert same(replica, weights)


def check_lost_word(device: str, rows: int, folder: Path) -> None:
    """A version became durable and its sidecar died before it said so: the next delta follows from it."""
    weights = make_state(device, rows)
    replica = copy_of(weights)
    path = str(folder / "s")
    with toy_sidecar(path) as (sidecar, server):
        publisher, subscriber = open_pair(path, weights, replica)
        with publisher, subscriber:
            for lose in (True, False):
                sidecar.hang_up_after_durable = lose
                train(weights, 1)
                if lose:
                    with pytest.raises(SidecarLostError):
                        publisher.publish()
                    eventually(lambda: publisher.version is not None and publisher.version.seq == 1)
                    server.call(sidecar.stage_newest())
                    waited(subscriber, 1)
                else:
                    publisher.publish()
            waited(subscriber, 2)
            assert subscriber.activate() == publisher.version
            assert same(replica, weights)


def check_failed_publish(device: str, rows: int, folder: Path) -> None:
    """A publish that the sidecar never made durable is in the next delta."""
    weights = make_state(device, rows)
    replica = copy_of(weights)
    path = str(folder / "s")
    with toy_sidecar(path) as (sidecar, _):
        publisher, subscriber = open_pair(path, weights, replica)
        with publisher, subscriber:
            train(weights, 1)
            sidecar.hang_up_on = m.End
            with pytest.raises(SidecarLostError):
                publisher.publish()
            train(weights, 2)
            assert publisher.publish().seq == 1
            waited(subscriber, 1)
            subscriber.activate()
            assert same(replica, weights)


def check_repair(device: str, rows: int, folder: Path) -> None:
    """A scrub names the damaged blocks; they come from the publisher's snapshot and mend the weights."""
    weights = make_state(device, rows)
    replica = copy_of(weights)
    path = str(folder / "s")
    with toy_sidecar(path) as (sidecar, server):
        publisher, subscriber = open_pair(path, weights, replica)
        with publisher, subscriber:
            train(weights, 1)
            publisher.publish()
            waited(subscriber, 1)
            subscriber.activate()
            replica["w"].view(torch.int16)[0, 3] ^= 64
            assert not subscriber.scrub()
            assert subscriber.poisoned
            asked = next(one.blocks for one in sidecar.said[::-1] if isinstance(one, m.Scrub))
            assert [end - begin for begin, end in asked] == [1]
            train(weights, 2)  # goes on in the trainer; the snapshot is the version
            object_ = anchor_from(sidecar, server, publisher, asked)
            server.call(sidecar.stage_bytes(member_of(sidecar), sidecar.versions[1], sidecar.versions[1].ref, object_))
            eventually(lambda: subscriber.staged is not None)
            assert subscriber.activate() is not None
            assert subscriber.scrub()
            assert not subscriber.poisoned
            publisher.publish()
            waited(subscriber, 2)
            subscriber.activate()
            assert same(replica, weights)


def anchor_from(sidecar: ToySidecar, server: ServerThread, publisher: Publisher, blocks: Any) -> bytes:
    """What a publisher answers to BLOCKS."""
    link = sidecar.publishers[0]
    server.call(link.send(m.Blocks(blocks)))
    eventually(lambda: bool(sidecar.anchors))
    anchor, data = sidecar.anchors.pop()
    assert anchor.blocks == blocks
    assert publisher.version is not None
    assert anchor.seq == publisher.version.seq
    return data


def check_joining(device: str, rows: int, folder: Path) -> None:
    """A worker with other weights gets all blocks, then follows."""
    weights, replica = make_state(device, rows, 1), make_state(device, rows, 2)
    path = str(folder / "s")
    with toy_sidecar(path) as (sidecar, server):
        sidecar.stage_new = False
        publisher, subscriber = open_pair(path, weights, replica)
        with publisher, subscriber:
            assert subscriber.version is None
            train(weights, 1)
            publisher.publish()
            count = blocks_of(weights)
            data = anchor_from(sidecar, server, publisher, ((0, count),))
            member, version = member_of(sidecar), sidecar.versions[1]
            spoiled = bytearray(data)
            spoiled[-20] ^= 1
            server.call(sidecar.stage_bytes(member, version, None, bytes(spoiled)))
            eventually(lambda: any(isinstance(one, m.Error) for one in sidecar.said))
            assert subscriber.staged is None
            server.call(sidecar.stage_bytes(member, version, None, data))
            waited(subscriber, 1)
            assert subscriber.version is None
            member.staged = version
            train(weights, 2)
            publisher.publish()
            server.call(sidecar.stage_newest())
            waited(subscriber, 2)
            assert subscriber.activate() == publisher.version
            assert same(replica, weights)


def check_unwanted_anchor(device: str, rows: int, folder: Path) -> None:
    """A sidecar that has no use for blocks says so while they come; the publisher goes on over the same connection."""
    weights = {"w": torch.zeros(max(rows, 20), 1024, dtype=torch.bfloat16, device=device)}  # more than the ring holds
    path = str(folder / "s")
    with toy_sidecar(path) as (sidecar, server), Publisher(weights, socket=path, coder="library") as publisher:
        link = sidecar.publishers[0]
        sidecar.fail[m.Anchor] = LocalProtocolError("nobody waits for them any more")
        server.call(link.send(m.Blocks(((0, blocks_of(weights)),))))
        eventually(lambda: not sidecar.fail)
        weights["w"][0, 0] += 1
        assert publisher.publish().seq == 1
        assert sidecar.publishers == [link]
        assert sidecar.anchors == []


def check_hostile(device: str, rows: int, folder: Path) -> None:
    """Damaged objects are refused, weights stay, and the right one is taken afterwards."""
    weights = make_state(device, rows)
    replica = copy_of(weights)
    before = copy_of(replica)
    path = str(folder / "s")
    with toy_sidecar(path) as (sidecar, server):
        sidecar.stage_new = False
        publisher, subscriber = open_pair(path, weights, replica)
        with publisher, subscriber:
            train(weights, 1)
            publisher.publish()
            member, (base, version) = member_of(sidecar), sidecar.versions
            for spoiled in spoilt(version):
                server.call(sidecar.stage_bytes(member, spoiled, base.ref, spoiled.object))
            eventually(lambda: sum(isinstance(one, m.Error) for one in sidecar.said) == 4)
            kinds = [one.kind for one in sidecar.said if isinstance(one, m.Error)]
            assert set(kinds) <= {"DigestError", "FormatError", "TruncatedError", "UnknownFormatError", "LimitError"}
            assert kinds[-1] == "DigestError"
            assert same(replica, before)
            server.call(sidecar.stage_newest())
            waited(subscriber, 1)
            subscriber.activate()
            assert same(replica, weights)


def spoilt(version: Kept) -> list[Kept]:
    """The version with damaged bytes, and with right bytes for another digest."""
    data = version.object
    other = "0" * 32
    return [
        Kept(version.lineage, version.seq, version.digest, None, b"", data[:40]),
        Kept(version.lineage, version.seq, version.digest, None, b"", bytes(40) + data[40:]),
        Kept(version.lineage, version.seq, version.digest, None, b"", data[:-60] + bytes([data[-60] ^ 1]) + data[-59:]),
        Kept(version.lineage, version.seq, other, None, b"", data),
    ]


def blocks_of(state: State) -> int:
    """How many blocks a state has."""
    return Weights(engines.attach("module", state)).blocks.num_blocks
