"""Which parent a child stays with, what it does when it is away, and how certificates change under way."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from sync_runtime.contract.plan import Endpoint
from sync_runtime.errors import RefusedError
from sync_runtime.transport import dialler
from sync_runtime.transport.events import ChildGone, DialFailed, ParentConnected, ParentGone, PayloadDone
from tests.component.transport.rig import Child, Parent, begin, payload, wait_until
from tests.support.identities import Group

pytestmark = pytest.mark.timeout(30)
MakeParent = Callable[..., Parent]
MakeChild = Callable[..., Child]


def nobody(endings: ExitStack) -> Endpoint:
    """A port that nobody listens on, kept so that nobody will."""
    holder = endings.enter_context(socket.socket())
    holder.bind(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    return Endpoint(member="rollout-8", cluster="hub", region="eu-west", host="127.0.0.1", port=port)


def test_the_first_parent_that_answers_is_taken(
    make_parent: MakeParent, make_child: MakeChild, endings: ExitStack
) -> None:
    parent = make_parent()
    child = make_child([nobody(endings), parent.endpoint])
    assert child.link().name == "trainer-0"
    assert child.events.wait(DialFailed).reason == "Unreachable"


def test_a_parent_that_dies_is_replaced_within_a_second(make_parent: MakeParent, make_child: MakeChild) -> None:
    relay, trainer = make_parent("rollout-7"), make_parent()
    child = make_child([relay.endpoint, trainer.endpoint])
    assert child.link().name == "rollout-7"
    began_s = time.monotonic()
    relay.close()
    child.events.wait(ParentConnected, lambda event: event.welcome.member == "trainer-0")
    assert time.monotonic() - began_s < 3
    assert child.events.wait(ParentGone).reason == "ShuttingDown"


def test_a_parent_that_comes_back_is_found_again(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    child.link()
    port = parent.listener.port
    parent.close()
    child.events.wait(DialFailed)
    back = make_parent(port=port)
    back.link()


def test_a_refusal_that_allows_it_is_tried_again(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent()
    parent.door.refusal = RefusedError("NotReady", "the library is not open yet", retry=True)
    child = make_child([parent.endpoint])
    failed = child.events.wait(DialFailed)
    assert (failed.reason, failed.retry) == ("NotReady", True)
    parent.door.refusal = None
    child.link()


def test_a_refusal_for_ever_is_heeded_until_a_new_plan(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent, other = make_parent(), make_parent("rollout-7")
    parent.door.refusal = RefusedError("WrongRole", "only relays may come here", retry=False)
    child = make_child([parent.endpoint])
    child.events.wait(DialFailed)
    time.sleep(0.7)
    assert len(child.events.all(DialFailed)) == 1
    parent.door.refusal = None
    child.dialler.set_parents([parent.endpoint, other.endpoint])
    assert child.link().name == "trainer-0"


def test_a_new_plan_moves_a_child_to_its_new_parent(make_parent: MakeParent, make_child: MakeChild) -> None:
    first, second = make_parent(), make_parent("rollout-7")
    child = make_child([first.endpoint])
    child.link()
    child.dialler.set_parents([second.endpoint, first.endpoint])
    child.events.wait(ParentConnected, lambda event: event.welcome.member == "rollout-7")
    assert first.events.wait(ChildGone).reason == "NewPlan"


def test_a_child_returns_to_its_first_parent_when_nothing_is_under_way(
    make_parent: MakeParent, make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialler, "LOOK_AROUND_S", 0.2)
    monkeypatch.setattr(dialler, "IDLE_S", 0.1)
    relay, trainer = make_parent("rollout-7"), make_parent()
    port = relay.listener.port
    relay.close()
    child = make_child([relay.endpoint, trainer.endpoint])
    assert child.link().name == "trainer-0"
    back = make_parent("rollout-7", port=port)
    back.link()
    assert trainer.events.wait(ChildGone).reason == "BetterParent"


def test_the_same_plan_again_changes_nothing(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    link = child.link()
    child.dialler.set_parents([parent.endpoint])
    time.sleep(0.2)
    assert child.dialler.link is link


def test_new_certificates_are_used_without_losing_a_version(
    group: Group, make_parent: MakeParent, make_child: MakeChild
) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    link = parent.link()
    data, source = payload(30)
    message = begin(source=source, size_bytes=len(data))
    transfer = link.begin(message, source, range(10))
    group.member("rollout-0")
    group.trainer("trainer-0")  # both ends' files are replaced in the middle of a transfer
    wait_until(lambda: len(child.sink.object(message.key).buckets) == 10)
    old = serial(link)
    link.add_buckets(transfer, range(10, 20))  # live connections go on
    wait_until(lambda: len(child.sink.object(message.key).buckets) == 20)
    child.dialler.renew()
    parent.events.wait(ChildGone)
    wait_until(lambda: bool(parent.listener.children))
    renewed = parent.listener.children[0]
    assert serial(renewed) != old
    renewed.complete(renewed.begin(message, source, range(20, 30)), b"envelope")
    parent.events.wait(PayloadDone)
    assert bytes(child.sink.object(message.key).data) == data


def serial(link: object) -> str:
    certificate = link._channel._connection.getpeercert()  # type: ignore[attr-defined]
    return str(certificate["serialNumber"])


def test_a_listener_that_cannot_listen_says_so(make_parent: MakeParent) -> None:
    parent = make_parent()
    with pytest.raises(Exception, match="cannot listen on"):
        make_parent(port=parent.listener.port)
