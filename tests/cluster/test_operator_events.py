"""Events on a real API server: the same thing said again is one Event that counts."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.access import from_kubeconfig
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.events import SERIES_S, WRITE_EVERY_S, EventRecorder, Subject
from tools.devcluster.client import RegionHandle

pytestmark = pytest.mark.cluster
NOW = datetime.datetime(2027, 1, 31, 12, 0, 0, tzinfo=datetime.UTC)


class Recording:
    """A recorder with a clock of its own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.subject = Subject("syncgroup.dev/v1alpha1", "SyncGroup", namespace, "demo", f"uid-{namespace}")
        self.now_s = 0.0
        self.recorder = EventRecorder(
            cluster,
            "syncgroup.dev/operator",
            "pod-1",
            now=lambda: NOW + datetime.timedelta(seconds=self.now_s),
            clock_s=lambda: self.now_s,
        )

    async def say(self, note: str = "a rollout was replaced", reason: str = "LeaseExpired") -> None:
        await self.recorder.post(self.subject, type="Warning", reason=reason, note=note)

    async def events(self) -> list[dict[str, Any]]:
        namespace = self.subject.namespace or "default"
        found = await self.cluster.list_all(kinds.EVENT, namespace)
        mine = [event for event in found if event["regarding"].get("uid") == self.subject.uid]
        return sorted(mine, key=lambda event: event["eventTime"])

    @property
    def writes(self) -> int:
        return sum(self.cluster.requests[verb, "Event", code] for verb, code in (("create", 201), ("patch", 200)))


def run(region: RegionHandle, namespace: str, scenario: Callable[[Recording], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = Cluster("eu", from_kubeconfig(region.kubeconfig.read_text()))
        try:
            await scenario(Recording(cluster, namespace))
        finally:
            await cluster.close()

    asyncio.run(whole())


def test_the_same_thing_again_is_a_series_with_few_writes(region: RegionHandle, namespace: str) -> None:
    async def scenario(recording: Recording) -> None:
        await recording.say()
        (event,) = await recording.events()
        assert (event["reason"], event["type"], event["note"]) == ("LeaseExpired", "Warning", "a rollout was replaced")
        assert event["eventTime"] == "2027-01-31T12:00:00.000000Z"
        assert "series" not in event
        for _ in range(63):
            recording.now_s += 0.1
            await recording.say()
        (event,) = await recording.events()
        assert event["series"]["count"] == 64
        assert recording.writes == 7  # 1, 2, 4, … 64
        await recording.say()
        assert recording.writes == 7
        recording.now_s += WRITE_EVERY_S
        await recording.say()
        (event,) = await recording.events()
        assert event["series"]["count"] == 66

    run(region, namespace, scenario)


def test_another_thing_and_the_same_thing_much_later_are_other_events(region: RegionHandle, namespace: str) -> None:
    async def scenario(recording: Recording) -> None:
        await recording.say()
        await recording.say(reason="NodeLost")
        await recording.say("another member")
        recording.now_s += SERIES_S + 1
        await recording.say()
        assert len(await recording.events()) == 4

    run(region, namespace, scenario)


def test_an_event_that_was_removed_is_written_anew(region: RegionHandle, namespace: str) -> None:
    async def scenario(recording: Recording) -> None:
        await recording.say()
        (event,) = await recording.events()
        name, uid = event["metadata"]["name"], event["metadata"]["uid"]
        await recording.cluster.delete(kinds.EVENT, namespace, name, uid=uid)
        recording.now_s += 1
        await recording.say()
        (again,) = await recording.events()
        assert again["metadata"]["uid"] != uid

    run(region, namespace, scenario)


def test_long_notes_are_cut_and_cluster_scoped_objects_have_events_too(region: RegionHandle, namespace: str) -> None:
    async def scenario(recording: Recording) -> None:
        recording.subject = Subject("syncgroup.dev/v1alpha1", "SyncCluster", "", "frankfurt", f"uid-{namespace}")
        await recording.say("ü" * 2000)
        (event,) = await recording.events()
        assert event["note"].endswith("…")
        assert "namespace" not in event["regarding"]

    run(region, namespace, scenario)
