"""The plan's file follows its ConfigMap, whatever an API server does to the watch, and never goes back or bad."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sync_runtime.contract.plan import Plan
from sync_runtime.pod import plans
from sync_runtime.pod.plans import PlanSource
from tests.component.pod.api_server import (
    ApiServer,
    Watch,
    changes,
    event,
    garbage,
    gone,
    plan,
    settings_in,
    silence,
    until,
)  # fmt: skip

OTHER_GROUP = "99999999-0a53-4d7c-9a3b-6a0f5f8a1c11"
Scenario = Callable[[ApiServer, PlanSource], Awaitable[None]]


class Run:
    """Runs scenarios against a source that works in the background."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "plan/plan.json"

    def __call__(self, scenario: Scenario) -> None:
        async def whole() -> None:
            server = ApiServer()
            async with self.source(server) as source:
                await scenario(server, source)

        asyncio.run(whole())

    @contextlib.asynccontextmanager
    async def source(self, server: ApiServer) -> AsyncIterator[PlanSource]:
        async with server.running(self.folder) as api:
            source = PlanSource(api, settings_in(self.folder))
            task = asyncio.create_task(source.run())
            try:
                yield source
                assert not task.done(), "the source goes on whatever happens"
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def revision(self) -> int:
        """Of the plan in the file; 0: there is none."""
        return Plan.from_json(self.path.read_bytes()).revision if self.path.exists() else 0


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def text(**changes: object) -> str:
    return plan(**changes).to_json()


def test_a_plan_that_comes_late_and_every_later_one_reach_the_file(run: Run) -> None:
    async def scenario(server: ApiServer, source: PlanSource) -> None:
        await until(lambda: source.problem is not None)
        assert "does not exist yet" in str(source.problem)
        assert not source.has_plan
        server.put(text())
        await until(lambda: run.revision() == 1)
        assert source.problem is None
        server.put(text(revision=2))
        await until(lambda: run.revision() == 2)
        assert server.lists == 1

    run(scenario)


@pytest.mark.parametrize("watch", [gone, silence, garbage], ids=["too old", "dead", "garbage"])
def test_a_watch_that_goes_wrong_is_begun_anew(run: Run, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "SILENCE_S", 0.3)

    async def scenario(server: ApiServer, _: PlanSource) -> None:
        server.watches = [watch, changes]
        server.put(text())
        await until(lambda: run.revision() == 1)
        server.put(text(revision=2))
        await until(lambda: run.revision() == 2)
        await until(lambda: len(server.watches) == 1)
        server.put(text(revision=3))
        await until(lambda: run.revision() == 3)

    run(scenario)


def test_where_nothing_can_be_watched_the_plan_is_listed_with_back_off(run: Run) -> None:
    async def scenario(server: ApiServer, source: PlanSource) -> None:
        server.watch_status = 403
        server.put(text())
        await until(lambda: run.revision() == 1)
        server.put(text(revision=2))
        await until(lambda: run.revision() == 2)
        await until(lambda: "you may not watch" in str(source.problem))
        await asyncio.sleep(2)
        assert server.lists <= 3

    run(scenario)


def test_an_api_server_that_fails_leaves_the_last_plan_and_is_not_hammered(run: Run) -> None:
    async def scenario(server: ApiServer, source: PlanSource) -> None:
        async def one(server: ApiServer, response: object) -> None:
            del server, response

        server.watches = [one]
        server.put(text())
        await until(lambda: run.revision() == 1)
        server.list_status = 500
        await asyncio.sleep(2.5)
        assert server.lists <= 4
        await until(lambda: "500" in str(source.problem))
        assert run.revision() == 1
        server.list_status, server.watches = 200, [changes]
        server.put(text(revision=2))
        await until(lambda: run.revision() == 2)

    run(scenario)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("not JSON", "holds no plan"),
        ("{}", "holds no plan"),
        (text(groupUid=OTHER_GROUP, revision=9), "is of group"),
        (text(region="us-east", revision=9), "another place"),
        (text(revision=4), "older"),
        (text(term=0, revision=9), "older"),
    ],
    ids=["not JSON", "not a plan", "another group", "another place", "an older revision", "an older term"],
)
def test_what_is_no_newer_plan_changes_nothing(run: Run, bad: str, words: str) -> None:
    async def scenario(server: ApiServer, source: PlanSource) -> None:
        server.put(text(revision=5))
        await until(lambda: run.revision() == 5)
        before = run.path.read_bytes()
        server.put(bad)
        await until(lambda: source.problem is not None)
        assert words in str(source.problem)
        assert run.path.read_bytes() == before
        server.put(text(revision=6))
        await until(lambda: run.revision() == 6)
        assert source.problem is None

    run(scenario)


def test_a_deleted_config_map_leaves_the_last_plan(run: Run) -> None:
    async def deleted(server: ApiServer, response: object) -> None:
        document, server.config_map = server.config_map, None
        await event(response, "DELETED", document or {})  # type: ignore[arg-type]
        await asyncio.sleep(1.1)

    async def scenario(server: ApiServer, source: PlanSource) -> None:
        server.put(text())
        server.watches = [deleted, changes]
        await until(lambda: server.lists == 2)
        assert run.revision() == 1
        assert source.has_plan

    run(scenario)


def test_a_restarted_sidecar_goes_on_from_the_plan_that_it_had(run: Run) -> None:
    async def first(server: ApiServer, _: PlanSource) -> None:
        server.put(text(revision=5))
        await until(lambda: run.revision() == 5)

    async def second(server: ApiServer, source: PlanSource) -> None:
        assert source.has_plan
        server.put(text(revision=4))  # a cache of the API server that is behind
        await until(lambda: source.problem is not None)
        assert run.revision() == 5

    run(first)
    run(second)
