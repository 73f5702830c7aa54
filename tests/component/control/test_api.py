"""The control API over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from sync_runtime.contract.figures.runtime import LINK_RATE, VERSION_SEQ
from sync_runtime.control.api import ControlServer
from sync_runtime.control.exposition import Reading
from sync_runtime.settings import Address, everywhere


class View:
    """A sidecar that says what it is told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.asked: list[str] = []

    work = None

    def live(self) -> list[str]:
        return []

    def ready(self) -> list[str]:
        return self.reasons

    def status(self) -> dict[str, object]:
        return {"member": "eu-0"}

    def links(self) -> dict[str, object]:
        return {"links": []}

    def versions(self) -> dict[str, object]:
        return {"versions": [{"seq": 3}]}

    def refusals(self) -> dict[str, int]:
        return {"WrongGroup": 2}

    def metrics(self) -> list[Reading]:
        return [Reading(VERSION_SEQ, 3), Reading(LINK_RATE, 1.5e8, ("a", "local", "eu"))]

    async def drain(self) -> dict[str, object]:
        self.asked.append("drain")
        return {"draining": True, "drained": False}

    async def reload(self) -> None:
        self.asked.append("reload")


def ask(view: View, question: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
    async def run() -> None:
        server = ControlServer(view, Address("127.0.0.1", 0))
        await server.start()
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
                await question(session)
        finally:
            await server.close()

    asyncio.run(run())


def test_a_probe_fails_with_its_reasons() -> None:
    view = View()

    async def question(session: aiohttp.ClientSession) -> None:
        async with session.get("/readyz") as answer:
            assert answer.status == 200
        view.reasons.append("no version yet")
        async with session.get("/readyz") as answer:
            assert answer.status == 503
            assert (await answer.json())["reasons"] == ["no version yet"]
        async with session.get("/livez") as answer:
            assert answer.status == 200

    ask(view, question)


@pytest.mark.parametrize(
    ("path", "key"),
    [("/v1/status", "member"), ("/v1/links", "links"), ("/v1/versions", "versions"), ("/v1/refusals", "WrongGroup")],
)
def test_readings_are_json(path: str, key: str) -> None:
    async def question(session: aiohttp.ClientSession) -> None:
        async with session.get(path) as answer:
            assert key in json.loads(await answer.text())

    ask(View(), question)


def test_metrics_are_lines_for_prometheus() -> None:
    async def question(session: aiohttp.ClientSession) -> None:
        async with session.get("/metrics") as answer:
            assert answer.content_type == "text/plain"
            lines = (await answer.text()).splitlines()
        assert "syncgroup_version_seq 3" in lines
        assert 'syncgroup_link_rate_bits_per_second{peer="a",to_cluster="local",to_region="eu"} 150000000' in lines

    ask(View(), question)


def test_drain_and_reload_are_asked_for_by_post_only() -> None:
    view = View()

    async def question(session: aiohttp.ClientSession) -> None:
        for word in ("drain", "reload"):
            async with session.get(f"/v1/{word}") as answer:
                assert answer.status == 405
            async with session.post(f"/v1/{word}") as answer:
                assert answer.status == 200

    ask(view, question)
    assert view.asked == ["drain", "reload"]


def test_a_server_for_all_addresses_answers_on_those_of_ipv4() -> None:
    """A kubelet probes a pod by the family of its cluster."""

    async def run() -> None:
        server = ControlServer(View(), everywhere(0))
        await server.start()
        try:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{server.port}/livez") as answer:
                    assert answer.status == 200
        finally:
            await server.close()

    asyncio.run(run())
