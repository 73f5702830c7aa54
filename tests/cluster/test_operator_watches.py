"""Watches on a real API server: cut, silenced, restarted, forgotten; and the cache over them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from syncgroup_operator import errors
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.access import from_kubeconfig
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.limits import ClientLimits
from syncgroup_operator.kube.watch import Change, Scope, Watch, WatchTimes
from tests.support.apiproxy import ApiProxy, Rule
from tools.devcluster.client import Cluster as DevCluster
from tools.devcluster.client import RegionHandle

pytestmark = pytest.mark.cluster
FAST = ClientLimits(requests_per_s=10_000, burst=10_000, page_size=3)
TIMES = WatchTimes(answer_timeout_s=3.0, first_pause_s=0.1, longest_pause_s=0.5)
Scenario = Callable[["Watched"], Awaitable[None]]


@dataclass
class Watched:
    """A watch of one namespace's ConfigMaps and what it said."""

    cluster: Cluster
    namespace: str
    times: WatchTimes = TIMES
    silence_s: float | None = None
    said: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = Watch(
            self.cluster,
            Scope(kinds.CONFIG_MAP, self.namespace, label_selector="app"),
            self._hear,
            times=self.times,
            silence_s=None if self.silence_s is None else lambda: self.silence_s or 0.0,
        )

    def _hear(self, change: Change, body: dict[str, Any]) -> None:
        self.said.append((change.value, body.get("metadata", {}).get("name", "")))
        self.bodies.append(body)

    async def live(self) -> None:
        await until(lambda: self.watch.live_since_s is not None)

    async def heard(self, *expected: tuple[str, str]) -> None:
        await until(lambda: set(expected) <= set(self.said))


@contextlib.asynccontextmanager
async def watched(kubeconfig: str, namespace: str, **options: Any) -> AsyncIterator[Watched]:
    cluster = Cluster("eu", from_kubeconfig(kubeconfig), FAST)
    found = Watched(cluster, namespace, **options)
    task = asyncio.create_task(found.watch.run())
    try:
        yield found
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert found.watch.live_since_s is None
        await cluster.close()


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 what is waited for is a figure, not an event
            await asyncio.sleep(0.02)


def config_map(namespace: str, name: str, value: str = "1") -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "labels": {"app": "x"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}


async def delete(cluster: Cluster, namespace: str, name: str) -> None:
    found = await cluster.get(kinds.CONFIG_MAP, namespace, name)
    await cluster.delete(kinds.CONFIG_MAP, namespace, name, uid=found["metadata"]["uid"])


@pytest.fixture
def proxy(region: RegionHandle) -> Iterator[ApiProxy]:
    with ApiProxy(region.kubeconfig) as started:
        yield started


def test_what_is_there_and_what_changes_is_told(region: RegionHandle, namespace: str) -> None:
    async def scenario() -> None:
        async with watched(region.kubeconfig.read_text(), namespace) as found:
            for n in range(7):  # more than two pages
                await found.cluster.create(config_map(namespace, f"m{n}"))
            await found.live()
            await found.heard(*(("Added", f"m{n}") for n in range(7)), ("Synced", ""))
            await found.cluster.apply(config_map(namespace, "m3", "2"))
            await found.heard(("Modified", "m3"))
            await delete(found.cluster, namespace, "m3")
            await found.heard(("Deleted", "m3"))
            assert found.watch.count == 6
            assert (found.watch.restarts, found.watch.lists, found.watch.problem) == (0, 1, None)
            assert all("managedFields" not in body.get("metadata", {}) for body in found.bodies)
            assert {body["kind"] for body in found.bodies if body} == {"ConfigMap"}

    asyncio.run(scenario())


def test_a_cut_watch_goes_on_where_it_was(proxy: ApiProxy, namespace: str) -> None:
    async def scenario() -> None:
        async with watched(proxy.kubeconfig(), namespace) as found:
            await found.cluster.create(config_map(namespace, "a"))
            await found.live()
            await found.heard(("Added", "a"))
            since_s = found.watch.live_since_s
            hold = proxy.add(Rule(path="configmaps", watch=True, drop=True, times=None))
            proxy.cut_watches()
            await until(lambda: found.watch.live_since_s is None)
            assert isinstance(found.watch.problem, errors.UnreachableError)
            await found.cluster.create(config_map(namespace, "b"))
            await delete(found.cluster, namespace, "a")
            hold.times = 0
            await found.heard(("Added", "b"), ("Deleted", "a"))
            assert found.watch.lists == 1  # nothing was listed again
            assert found.watch.restarts >= 1
            assert since_s is not None
            assert (found.watch.live_since_s or 0) > since_s
            assert found.watch.problem is None

    asyncio.run(scenario())


@pytest.mark.parametrize("in_stream", [False, True])
def test_a_forgotten_version_lists_again_and_says_what_vanished(
    proxy: ApiProxy, namespace: str, in_stream: bool
) -> None:
    gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
    rule = Rule(path="configmaps", watch=True, status=410)
    if in_stream:
        rule = Rule(path="configmaps", watch=True, status=200, body={"type": "ERROR", "object": gone})

    async def scenario() -> None:
        async with watched(proxy.kubeconfig(), namespace) as found:
            for name in ("a", "b", "c", "d"):
                await found.cluster.create(config_map(namespace, name))
            await found.live()
            await found.heard(("Added", "d"))
            hold = proxy.add(Rule(path="configmaps", watch=True, drop=True, times=None))
            proxy.cut_watches()
            await until(lambda: found.watch.live_since_s is None)
            await delete(found.cluster, namespace, "b")
            await delete(found.cluster, namespace, "c")
            await found.cluster.create(config_map(namespace, "c"))  # a namesake
            hold.times = 0
            proxy.add(rule)
            await found.live()
            await found.heard(("Deleted", "b"), ("Deleted", "c"))
            assert rule.hits == 1
            assert found.watch.lists == 2
            assert found.said[-1] == ("Synced", "") or ("Synced", "") in found.said
            of_c = [change for change, name in found.said if name == "c"]
            assert of_c == ["Added", "Deleted", "Added"]
            stubs = [body for body, said in zip(found.bodies, found.said, strict=True) if said[0] == "Deleted"]
            assert all(stub["metadata"]["uid"] for stub in stubs)

    asyncio.run(scenario())


@pytest.mark.usefixtures("crds")
def test_the_real_servers_410_lists_again(region: RegionHandle) -> None:
    async def scenario() -> None:
        cluster = Cluster("eu", from_kubeconfig(region.kubeconfig.read_text()), FAST)
        # Older than the kind itself, so that no server can know what happened since.
        watch = Watch(cluster, Scope(kinds.SYNC_CLUSTER), lambda _change, _body: None, times=TIMES)
        watch._version = "1"
        task = asyncio.create_task(watch.run())
        await until(lambda: watch.live_since_s is not None and watch.lists == 1)
        assert watch.restarts == 1
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await cluster.close()

    asyncio.run(scenario())


def test_a_dead_stream_is_noticed_by_its_silence(proxy: ApiProxy, namespace: str) -> None:
    times = WatchTimes(inactivity_s=1.0, answer_timeout_s=3.0, first_pause_s=0.1)
    rule = proxy.add(Rule(path="configmaps", watch=True, freeze=True))

    async def scenario() -> None:
        async with watched(proxy.kubeconfig(), namespace, times=times) as found:
            await found.live()
            await found.cluster.create(config_map(namespace, "a"))
            await until(lambda: found.watch.restarts >= 1)
            assert rule.hits == 1
            await found.heard(("Added", "a"))
            assert found.watch.lists == 1

    asyncio.run(scenario())


def test_a_quiet_stream_that_is_doubted_stays_live(proxy: ApiProxy, namespace: str) -> None:
    async def scenario() -> None:
        async with watched(proxy.kubeconfig(), namespace, silence_s=1.2) as found:
            await found.live()
            since_s = found.watch.live_since_s
            await until(lambda: sum("watch=" in path for _, path in proxy.requests) >= 3)
            assert found.watch.live_since_s == since_s
            assert found.watch.restarts == 0
            # When the link is really cut, the doubt shows it, long before the server's silence would.
            proxy.freeze()
            await until(lambda: found.watch.live_since_s is None, 30.0)
            proxy.thaw()
            await found.live()
            assert found.watch.restarts >= 1

    asyncio.run(scenario())


def test_streams_that_end_at_once_make_no_busy_loop(proxy: ApiProxy, namespace: str) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {}}}
    rule = proxy.add(Rule(path="configmaps", watch=True, status=200, body=bookmark, times=None))

    async def scenario() -> None:
        async with watched(proxy.kubeconfig(), namespace) as found:
            await until(lambda: rule.hits >= 1)
            before = rule.hits
            await asyncio.sleep(2.0)
            assert rule.hits - before <= 12  # pauses of 0.25 s and more once it failed a few times
            assert isinstance(found.watch.problem, errors.UnreachableError) or found.watch.live_since_s is not None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        {"type": "ADDED"},
        {"type": "ADDED", "object": 3},
        {"type": "ADDED", "object": {"metadata": {}}},
        {"type": "DELETED", "object": {"metadata": []}},
        {"type": "ERROR", "object": 3},
        {"type": [], "object": {"metadata": {}}},
        {"object": {}},
    ],
)
def test_lines_that_are_no_events_are_survived(proxy: ApiProxy, namespace: str, body: dict[str, Any]) -> None:
    proxy.add(Rule(path="configmaps", watch=True, status=200, body=body))

    async def scenario() -> None:
        async with watched(proxy.kubeconfig(), namespace) as found:
            await until(lambda: found.watch.restarts == 1)
            await found.live()
            await found.cluster.create(config_map(namespace, "a"))
            await found.heard(("Added", "a"))

    asyncio.run(scenario())


def test_an_orderly_end_is_no_break(proxy: ApiProxy, namespace: str) -> None:
    times = WatchTimes(server_timeout_s=3)

    async def scenario() -> None:
        async with watched(proxy.kubeconfig(), namespace, times=times) as found:
            await found.live()
            since_s = found.watch.live_since_s
            await until(lambda: sum("watch=" in path for _, path in proxy.requests) >= 3)
            await found.cluster.create(config_map(namespace, "a"))
            await found.heard(("Added", "a"))
            assert (found.watch.live_since_s, found.watch.restarts, found.watch.lists) == (since_s, 0, 1)

    asyncio.run(scenario())


def test_a_restarted_server_is_found_again(planes: DevCluster) -> None:
    region = planes.regions["eu-west"]

    async def scenario() -> None:
        async with watched(region.kubeconfig.read_text(), "default") as found:
            await found.live()
            await asyncio.to_thread(planes.kill, region.name, "apiserver")
            await until(lambda: found.watch.live_since_s is None)
            await asyncio.to_thread(planes.restart, region.name, "apiserver")
            await found.live()
            await found.cluster.create(config_map("default", "after-restart"))
            await found.heard(("Added", "after-restart"))
            await delete(found.cluster, "default", "after-restart")

    asyncio.run(scenario())
