"""What takes hours, or hangs on clocks: the operator's own passes on real API servers, under clocks that tests move."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey
from tests.support import clusters
from tests.support.operators import NAMESPACE, MemberDriver, apply, condition, items
from tests.support.several_clusters import SeveralClusters, group, template
from tests.support.virtual_operator import VirtualClock, VirtualOperator
from tools.devcluster.client import RegionHandle
from tools.devcluster.config import Level

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(170)]

TESTS = 4
EU = "eu-west"
HOUR_S = 3600.0
RENEW_S = 30.0
LEASE = {"durationSeconds": 60, "renewIntervalSeconds": 20, "lostGraceSeconds": 300}
HOME = {"fallback": [{"cluster": "local", "region": "us-east"}]}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralClusters]:
    cluster = clusters.start(Level.PLANES, "2", kwok_nodes=2)
    yield SeveralClusters(cluster, tmp_path_factory.mktemp("virtual"), TESTS)
    cluster.down()


class Members:
    """The members of one test, in both clusters, each cluster with a clock of its own."""

    def __init__(self, several: SeveralClusters, number: int) -> None:
        self.drivers = [MemberDriver(region, space) for region, space in several.places(number)]
        self.drivers[0].clock_ahead_s, self.drivers[1].clock_ahead_s = HOUR_S, -HOUR_S

    async def beat(self, operator: VirtualOperator, *clusters: str) -> None:
        """Renew, and wait until the operator's watches have shown it."""
        names_of = {"local": self.drivers[0], EU: self.drivers[1]}
        for cluster in clusters:
            driver, begun_s = names_of[cluster], operator.clock.monotonic_s()
            leases = [name for name, pod in self.running(driver).items() if "deletionTimestamp" not in pod["metadata"]]
            driver.beat()
            async with asyncio.timeout(20):
                while any((operator.lease_seen(cluster, driver.namespace, one) or 0.0) < begun_s for one in leases):  # noqa: ASYNC110 what is waited for has no event
                    await asyncio.sleep(0.005)

    @staticmethod
    def running(driver: MemberDriver) -> dict[str, dict[str, Any]]:
        found = items(driver.region, f"/api/v1/namespaces/{driver.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in found if pod["status"].get("phase") == "Running"}

    async def pass_time(self, operator: VirtualOperator, seconds: float, *seen: str) -> None:
        """Time passes; the members of the clusters that are seen renew their leases meanwhile."""
        for _ in range(int(seconds // RENEW_S)):
            operator.clock.pass_s(RENEW_S)
            await self.beat(operator, *seen)
            await operator.look()


@contextlib.asynccontextmanager
async def operating(several: SeveralClusters, key: GroupKey, clock: VirtualClock) -> AsyncIterator[VirtualOperator]:
    async with VirtualOperator(several.operator_hub.kubeconfig, key, NAMESPACE, clock) as operator:
        yield operator


def is_ready(found: dict[str, Any]) -> bool:
    return condition(found, "Ready").get("status") == "True"


def lost_since(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["lostTime"] for one in found["status"].get("lostClusters") or ()}


def test_a_cluster_away_for_an_hour_with_wrong_clocks_all_over_costs_nobody_its_seat(several: SeveralClusters) -> None:
    number, key, clock = 0, GroupKey("team-0", "hour"), VirtualClock()
    members, eu = Members(several, number), several.remotes[EU]
    apply(several.hub, group(number, "hour", [(EU, 2), ("local", 1)], lease=LEASE))

    async def scenario(gone: contextlib.ExitStack) -> tuple[dict[str, str], dict[str, str]]:
        async with operating(several, key, clock) as operator:
            await operator.until(is_ready, "readiness")
            await members.pass_time(operator, 5 * RENEW_S, "local", EU)
            before = {**several.pods(eu, "guests-0"), **several.pods(several.hub, "team-0")}
            await operator.settle()  # what is still on its way would be heard minutes later, by a clock that jumps
            gone.enter_context(several.away(EU))
            await members.pass_time(operator, 5 * RENEW_S, "local")
            lost = lost_since(await operator.until(lambda one: bool(lost_since(one)), "the loss"))
            await members.pass_time(operator, HOUR_S / 2, "local")
            assert lost_since(await operator.refresh()) == lost
        async with operating(several, key, clock) as operator:  # another replica goes on
            await operator.until(lambda one: lost_since(one) == lost, "the same moment after a restart")
            await members.pass_time(operator, HOUR_S / 2, "local")
            found = await operator.refresh()
            assert lost_since(found) == lost
            assert several.sync_cluster(EU)["status"]["lostTime"] == lost[EU]
            assert condition(found, "ClustersReachable")["status"] == "False"
            gone.close()
            clock.pass_s(RENEW_S)
            await members.beat(operator, "local")  # the return takes real seconds, and they count
            await operator.until(lambda one: is_ready(one) and not lost_since(one), "the return")
            await members.pass_time(operator, 5 * RENEW_S, "local", EU)
            found = await operator.settle()
        assert is_ready(found)
        assert not found["status"].get("replacementsTotal")
        return before, {**several.pods(eu, "guests-0"), **several.pods(several.hub, "team-0")}

    with contextlib.ExitStack() as gone:
        before, after = asyncio.run(scenario(gone))
    assert len(before) == 4
    assert after == before


def test_the_seats_of_a_lost_cluster_move_after_their_grace_and_who_comes_back_finds_them_taken(
    several: SeveralClusters,
) -> None:
    number, key, clock = 1, GroupKey("team-1", "moved"), VirtualClock()
    members, eu = Members(several, number), several.remotes[EU]
    document = group(number, "moved", [(EU, 2)], lease={**LEASE, "onClusterLost": "Replace"})
    document["spec"]["rollouts"][0]["placement"] = HOME
    apply(several.hub, document)

    async def scenario() -> dict[str, Any]:
        async with operating(several, key, clock) as operator:
            await operator.until(is_ready, "readiness")
            trainer, there = several.pods(several.hub, "team-1"), several.pods(eu, "guests-1")
            with several.away(EU):
                await members.pass_time(operator, 60.0, "local")
                await operator.until(lambda one: bool(lost_since(one)), "the loss")
                await members.pass_time(operator, LEASE["lostGraceSeconds"] - 90.0, "local")
                assert several.pods(several.hub, "team-1") == trainer, "its grace is not over"
                await members.pass_time(operator, 90.0, "local")
                found = await operator.until(is_ready, "successors")
                assert several.pods(eu, "guests-1") == there, "what is out of reach runs on"
            await members.pass_time(operator, 60.0, "local")
            await operator.until(lambda _: not several.pods(eu, "guests-1"), "the end of those who came back late")
            found = await operator.settle()
        here = several.pods(several.hub, "team-1")
        assert here.keys() == trainer.keys() | there.keys()
        assert here.items() >= trainer.items()
        return found

    status = asyncio.run(scenario())["status"]
    assert status["replacementsTotal"] == 2
    moved = {(one["reason"], one["fromCluster"], one["toCluster"]) for one in status["replacements"]}
    assert moved == {("ClusterLost", EU, "local")}


def test_a_member_that_fits_no_node_goes_to_its_fallback_after_a_while(several: SeveralClusters) -> None:
    number, key, clock = 2, GroupKey("team-2", "crowded"), VirtualClock()
    several.hub.kubectl("label", "node", "us-east-kwok-0", "example.com/room=yes")
    document = group(number, "crowded", [(EU, 1)], lease=LEASE)
    document["spec"]["rollouts"][0] |= {
        "placement": HOME,
        "template": template("engine", nodeSelector={"example.com/room": "yes"}),
    }
    apply(several.hub, document)

    def stuck(found: dict[str, Any]) -> bool:
        told = condition(found, "RolloutsReady")
        return told.get("reason") == "Unschedulable" and "nodeSelector" in told["message"]

    async def scenario() -> dict[str, Any]:
        async with operating(several, key, clock) as operator:
            await operator.until(stuck, "the scheduler's word")
            clock.pass_s(60.0)
            await operator.settle()
            assert several.pods(several.remotes[EU], "guests-2"), "an autoscaler may bring a node"
            clock.pass_s(90.0)
            return await operator.until(is_ready, "readiness at the fallback")

    found = asyncio.run(scenario())
    assert not several.pods(several.remotes[EU], "guests-2")
    (replacement,) = found["status"]["replacements"]
    assert (replacement["reason"], replacement["toCluster"]) == ("NoCapacity", "local")


def test_a_node_port_of_the_trainer_is_in_the_plans_of_other_clusters(several: SeveralClusters) -> None:
    number, key = 3, GroupKey("team-3", "ported")
    document = group(number, "ported", [(EU, 1), ("local", 1)], lease=LEASE)
    document["spec"]["trainer"]["exposure"] = {"type": "NodePort", "host": "node.example"}
    apply(several.hub, document)

    async def scenario() -> None:
        async with operating(several, key, VirtualClock()) as operator:
            await operator.until(is_ready, "readiness")
            await operator.settle()

    asyncio.run(scenario())
    service = names.trainer_service_name(key)
    (found,) = [
        one
        for one in items(several.hub, "/api/v1/namespaces/team-3/services")
        if one["metadata"]["name"] == service
    ]  # fmt: skip
    (port,) = [one["nodePort"] for one in found["spec"]["ports"] if one["name"] == names.DATA_PORT_NAME]
    abroad = plan_of(several.remotes[EU], "guests-3", key, EU, EU)["trainer"]
    assert (abroad["host"], abroad["port"]) == ("node.example", port)
    near = plan_of(several.hub, "team-3", key, "local", "us-east")["trainer"]
    assert (near["host"], near["port"]) == (f"{service}.team-3.svc", names.DATA_PORT)


def plan_of(region: RegionHandle, namespace: str, key: GroupKey, cluster: str, place: str) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{names.plan_name(key, cluster, place)}"
    status, found = region.api("GET", path)
    assert status == 200, found
    return dict(json.loads(found["data"][names.PLAN_KEY]))
