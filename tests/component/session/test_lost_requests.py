"""A request that is lost is made again; a member that is being drained hands its children on. Nothing comes twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.sidecar.rollout import Rollout
from sync_runtime.sidecar.view import View
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.messages import Follow, Message, Want
from sync_runtime.transport.parent import ParentLink
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))
LOSING_S = 1.5
"""Longer than everything that happens by itself when a sidecar starts, shorter than anybody's patience."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    buckets = {"min": 65536, "max": 65536}
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 22, bucketBytes=buckets) as made:
        made.start_all()
        yield made


def lose(monkeypatch: pytest.MonkeyPatch, unlucky: Callable[[ParentLink, Message], bool]) -> list[Message]:
    """Unlucky messages never leave, for a moment from the first on; what was lost."""
    send, lost, over_s = ParentLink.send, list[Message](), list[float]()

    def send_or_lose(link: ParentLink, message: Message) -> None:
        if unlucky(link, message) and (not over_s or time.monotonic() < over_s[0]):
            over_s.append(time.monotonic() + LOSING_S)
            lost.append(message)
        else:
            send(link, message)

    monkeypatch.setattr(ParentLink, "send", send_or_lose)
    return lost


def received_bytes(group: InsideGroup, name: str) -> tuple[int, int]:
    """Into a member, kept and repeated, over the link that it has."""
    role = group.sidecars[name].role
    assert isinstance(role, Rollout)
    link = role._dialler.link
    assert link is not None
    return link.totals.kept_bytes, link.totals.repeated_bytes


def test_a_span_that_a_relay_asked_for_in_vain_is_asked_for_again(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, one, other = small_model(), small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(one, socket=group.socket("eu-0")) as first,
        Subscriber(other, socket=group.socket("eu-1")) as second,
    ):
        for subscriber in (first, second):
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)
        follow(first, 2)
        group.stop("eu-1")
        for step in range(2):
            nudge(trained, 1 + step)
            version = publisher.publish()
            follow(first, version.seq)
        lost = lose(monkeypatch, lambda link, message: link.name == "trainer-0" and isinstance(message, Want))
        group.start("eu-1")
        wait_for(lambda: lost, what="the loss")
        follow(second, version.seq)
        assert same_bits(other, trained)
        metrics = group.ask("eu-0", "/metrics")
        assert metrics['syncgroup_asked_again_total{of="children"}'] >= 1
        for name in ("eu-0", "eu-1"):
            assert received_bytes(group, name)[1] == 0


def test_a_member_whose_word_was_lost_says_again_what_it_holds(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, one = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(one, socket=group.socket("eu-0")) as subscriber,
    ):
        nudge(trained, 0)
        follow(subscriber, publisher.publish().seq)
        group.stop("eu-0")
        nudge(trained, 1)
        version = publisher.publish()

        def states_it(link: ParentLink, message: Message) -> bool:
            says = isinstance(message, Follow) and (message.seq is not None or message.digest is not None)
            return link.name == "trainer-0" and (says or isinstance(message, Want))

        lost = lose(monkeypatch, states_it)
        group.start("eu-0")
        wait_for(lambda: lost, what="the loss")
        follow(subscriber, version.seq)
        assert same_bits(one, trained)
        assert group.ask("eu-0", "/metrics")['syncgroup_asked_again_total{of="parent"}'] >= 1
        assert received_bytes(group, "eu-0")[1] == 0


def test_who_is_drained_finishes_what_it_sends_and_then_has_no_children(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    trained, one = torch.nn.Linear(512, 1024).bfloat16(), torch.nn.Linear(512, 1024).bfloat16()
    one.load_state_dict(trained.state_dict())
    other = torch.nn.Linear(512, 1024).bfloat16()
    other.load_state_dict(trained.state_dict())
    opened, held = threading.Event(), list[tuple[ChildLink, int, int]]()
    add = ChildLink.add_bucket

    def hold(link: ChildLink, transfer: int, index: int) -> None:
        """The relay's buckets wait, but for the first, until the test lets them go."""
        if link.name == "eu-1" and index and not opened.is_set():
            held.append((link, transfer, index))
        else:
            add(link, transfer, index)

    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(one, socket=group.socket("eu-0")) as first,
        Subscriber(other, socket=group.socket("eu-1")) as second,
    ):
        wait_for(lambda: group.ask("eu-0", "/v1/status")["children"], what="the child")
        monkeypatch.setattr(ChildLink, "add_bucket", hold)
        nudge(trained, 0, share=0.5)
        version = publisher.publish()
        wait_for(lambda: held, what="a transfer under way")
        view = View(group.sidecars["eu-0"])
        assert group.run(view.drain()) == {"draining": True, "drained": False}
        follow(first, version.seq)
        assert not group.ask("eu-0", "/v1/status")["drained"]

        def let_go() -> None:
            """On the loop that adds buckets, so that none is held back after the last look."""
            opened.set()
            for link, transfer, index in held:
                add(link, transfer, index)

        group.call(let_go)
        follow(second, version.seq)
        wait_for(lambda: group.ask("eu-0", "/v1/status")["drained"], what="the end of its service")
        assert group.run(view.drain()) == {"draining": True, "drained": True}
        nudge(trained, 1)
        last = publisher.publish()
        follow(second, last.seq)  # from the next parent of its list
        assert group.ask("eu-1", "/v1/status")["report"]["parent"] == "trainer-0"
        assert same_bits(other, trained)
