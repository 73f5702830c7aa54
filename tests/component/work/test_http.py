"""Workers that are not Python: tasks and results over the sidecar's HTTP port."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sync_runtime import Publisher, Subscriber, Work
from sync_runtime.control.api import ControlServer
from sync_runtime.control.work import is_local
from sync_runtime.session.members import EngineSession
from sync_runtime.settings import Address
from sync_runtime.sidecar.view import View
from tests.component.work.crew import groups
from tests.support.following import follow
from tests.support.groups import wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(60)
Post = Callable[..., tuple[int, Any]]


@contextmanager
def control(group: InsideGroup, name: str) -> Iterator[Post]:
    """The control API of a sidecar; posts to it."""
    server = ControlServer(View(group.sidecars[name]), Address("127.0.0.1", 0))
    group.run(server.start())

    def post(path: str, body: bytes = b"") -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", body, timeout=20) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    try:
        yield post
    finally:
        group.run(server.close())


def wait(seconds: float) -> bytes:
    return json.dumps({"wait_ms": int(seconds * 1000)}).encode()


def test_a_worker_over_http_takes_completes_and_releases(group: InsideGroup) -> None:
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")) as publisher,
        Subscriber(small_model(), socket=group.socket("eu-0")) as subscriber,
        Work(socket=group.socket("trainer-0"), order="fixed") as work,
        control(group, "eu-0") as post,
    ):
        assert post("/v1/work/take", wait(0.1)) == (204, None)
        work.submit(groups("a"))
        follow(subscriber, 0)
        status, task = post("/v1/work/take", wait(10))
        assert status == 200
        assert (task["id"], task["samples"], base64.b64decode(task["payload"])) == ("a", 2, b"prompt a")
        assert publisher.version is not None
        assert task["version"]["digest"] == publisher.version.digest
        assert post(f"/v1/work/{task['lease']}/release", b'{"reason": "busy", "failed": false}')[0] == 200
        _, again = post("/v1/work/take", wait(10))
        assert again["lease"] != task["lease"]
        assert post(f"/v1/work/{task['lease']}/complete", b"late")[0] == 409
        assert post(f"/v1/work/{again['lease']}/complete?tokens=5", b"answer")[0] == 200
        (result,) = work.results(timeout=10)
        assert (result.id, result.payload, result.tokens) == ("a", b"answer", 5)
        assert post(f"/v1/work/{again['lease']}/complete", b"twice")[0] == 409


def test_a_result_under_other_weights_is_refused(group: InsideGroup) -> None:
    model = small_model()
    with (
        Publisher(model, socket=group.socket("trainer-0")) as publisher,
        Subscriber(small_model(), socket=group.socket("eu-0")) as subscriber,
        Work(socket=group.socket("trainer-0")) as work,
        control(group, "eu-0") as post,
    ):
        follow(subscriber, 0)
        work.submit(groups("a"))
        _, task = post("/v1/work/take", wait(10))
        nudge(model, 1)
        follow(subscriber, publisher.publish().seq)
        wait_for(lambda: group.ask("eu-0", "/v1/status")["report"]["version"]["seq"] == 1, what="the engine's word")
        status, answer = post(f"/v1/work/{task['lease']}/complete", b"old")
        assert (status, answer["taken"], answer["reason"]) == (409, False, "NotScrubbed")
        assert post("/v1/work/take", wait(0.5))[0] == 204  # nobody has scrubbed the new version yet
        assert subscriber.scrub()
        status, task = post("/v1/work/take", wait(10))
        assert (status, task["version"]["seq"]) == (200, 1)


def test_a_result_is_refused_while_nobody_knows_whether_the_engine_has_switched(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, told, go_on = small_model(), EngineSession._activated, threading.Event()

    async def late(self: EngineSession, *word: Any) -> None:
        await asyncio.to_thread(go_on.wait, 20)
        await told(self, *word)

    with (
        Publisher(model, socket=group.socket("trainer-0")) as publisher,
        Subscriber(small_model(), socket=group.socket("eu-0")) as subscriber,
        Work(socket=group.socket("trainer-0")) as work,
        control(group, "eu-0") as post,
    ):
        follow(subscriber, 0)
        work.submit(groups("a"))
        _, task = post("/v1/work/take", wait(10))
        monkeypatch.setattr(EngineSession, "_activated", late)
        nudge(model, 1)
        follow(subscriber, publisher.publish().seq)  # its sidecar gave leave, and has not heard yet what came of it
        status, answer = post(f"/v1/work/{task['lease']}/complete", b"of both")
        go_on.set()
        assert (status, answer["taken"], answer["reason"]) == (409, False, "WrongVersion")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/work/take", b"[]", 400),
        ("/v1/work/take", b"{", 400),
        ("/v1/work/take", b'{"wait_ms": -1}', 400),
        ("/v1/work/take", b'{"wait_ms": true}', 400),
        ("/v1/work/take", b" " * 5000, 413),
        ("/v1/work/1-2-3/complete?tokens=x", b"", 400),
        ("/v1/work/1-2-3/complete", b"", 409),
        ("/v1/work/1-2-3/complete", b"x" * ((4 << 20) + 1), 413),
        ("/v1/work/other/complete", b"", 400),
        ("/v1/work/1-2-3/release", b'{"reason": 5}', 400),
    ],
)
def test_what_cannot_be_used_is_refused(group: InsideGroup, path: str, body: bytes, status: int) -> None:
    with control(group, "eu-0") as post:
        assert post(path, body)[0] == status


def test_a_trainers_sidecar_hands_out_nothing_over_http(group: InsideGroup) -> None:
    with control(group, "trainer-0") as post:
        assert post("/v1/work/take")[0] == 404


@pytest.mark.parametrize(
    ("address", "local"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.3", False), ("::ffff:10.0.0.3", False),
     ("fe80::1", False), ("", False), (None, False)],
)  # fmt: skip
def test_only_this_machine_counts_as_local(address: str | None, local: bool) -> None:
    assert is_local(address) is local
