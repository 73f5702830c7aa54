"""Members that are lost in numbers, or again and again: replaced once each, never faster than the spec allows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sync_runtime.contract import names
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.damping import FIRST_BACK_OFF_S
from tests.support.operator_groups import Group, beating_group
from tests.support.operators import OperatorHub, group_of, items
from tests.support.pod_history import PodHistory, moment
from tools.devcluster.api import ApiClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(170)]
ALONE = {"leader_election": "false"}
"""A replica that cannot renew in time ends, and no kubelet would start it again here."""


@pytest.fixture
def slow_beat(hub: OperatorHub) -> Iterator[Group]:
    """Hundreds of members: renewed now and then, as their long leases allow."""
    with beating_group(hub.region, "op-vanish", every_s=8.0) as found:
        yield found


@pytest.fixture
def group(hub: OperatorHub) -> Iterator[Group]:
    with beating_group(hub.region, "op-flap") as found:
        yield found


def test_two_hundred_pods_that_vanish_at_once_come_back_once_each_and_within_damping(
    hub: OperatorHub, slow_beat: Group
) -> None:
    group, many, at_once = slow_beat, 200, 40
    lease = {
        "durationSeconds": 60,
        "renewIntervalSeconds": 10,
        "lostGraceSeconds": 60,
        "maxConcurrentReplacements": at_once,
        "maxReplacementsPerHour": 2 * many,
    }
    with hub.operator("flood", **ALONE):
        group.write(replicas=many, lease=lease)
        group.ready(120.0)
        before, since = group.uids(), moment(group.region, group.namespace)
        forget_pods(group, "near")
        group.wait(lambda: _replaced(group) >= many, "a successor for everyone", 90.0)
        status = group.ready(60.0)["status"]
        after = group.uids()
    rollouts = {group.name_of("near", index) for index in range(many)}
    history = PodHistory.since(group.region, group.namespace, since)
    assert history.made() == dict.fromkeys(rollouts, 1), "everyone once, under its own name"
    assert history.most_starting() <= at_once
    assert {name for name in before if after[name] != before[name]} == rollouts
    assert set(after) == set(before)
    assert (status["rolloutsReady"], status["replacementsTotal"], status["term"]) == (f"{many}/{many}", many, 1)


def test_a_lease_that_flaps_costs_its_member_few_replacements_and_few_words(hub: OperatorHub, group: Group) -> None:
    limits = {"durationSeconds": 6, "lostGraceSeconds": 6, "maxConcurrentReplacements": 2, "maxReplacementsPerHour": 3}
    beyond = [group.name_of("near", index) for index in (0, 1)]
    beneath = group.name_of("near", 2)
    with hub.operator("flapping", **ALONE):
        group.write(replicas=6, lease=limits)
        group.ready()
        group.alive()
        before = group.uids()
        flap(group, beyond, beneath, for_s=38.0)
        group.driver.silent = set()
        status = group.ready(60.0)["status"]
        after = group.uids()
    assert _replaced(group) == status["replacementsTotal"] == limits["maxReplacementsPerHour"]
    assert {name for name in before if after[name] != before[name]} == set(beyond)
    for name in beyond:
        assert all(gap_s >= FIRST_BACK_OFF_S for gap_s in gaps_s(status["replacements"], name)), status["replacements"]
    told = events_of(group)
    assert sum(told[reason] for reason in told if reason == "LeaseExpired") == limits["maxReplacementsPerHour"]
    assert sum(told.values()) <= 3 * limits["maxReplacementsPerHour"], told


def flap(group: Group, beyond: list[str], beneath: str, *, for_s: float) -> None:
    """Some members fall silent for longer than their leases last, one for not quite so long, again and again."""
    begun = time.monotonic()
    while (now_s := time.monotonic() - begun) < for_s:
        silent = set(beyond) if now_s % 10.0 < 8.0 else set()
        group.driver.silent = silent | ({beneath} if now_s % 5.0 < 3.0 else set())
        time.sleep(0.1)


def gaps_s(replacements: list[dict[str, str]], member: str) -> list[float]:
    """Between two replacements of one member, as the status tells them."""
    times = sorted(clock.read(one["replacedTime"]) for one in replacements if one["member"] == member)
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]


def forget_pods(group: Group, role: str) -> None:
    """All pods of a role are gone in one request, without grace: nobody on their nodes has a say in it."""
    path = f"/api/v1/namespaces/{group.namespace}/pods?labelSelector={names.LABEL_ROLE}={role}"
    api = ApiClient(group.region.kubeconfig, timeout_s=60.0)  # it answers when the last one is gone
    api.must("DELETE", path, {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
    api.close()


def events_of(group: Group) -> dict[str, int]:
    """How often the operator said something about the group, by its reason."""
    found: dict[str, int] = {}
    event: dict[str, Any]
    for event in items(group.region, f"/apis/events.k8s.io/v1/namespaces/{group.namespace}/events"):
        if event["regarding"]["kind"] == names.SYNCGROUP_KIND:
            count = int((event.get("series") or {}).get("count", 1))
            found[event["reason"]] = found.get(event["reason"], 0) + count
    return found


def _replaced(group: Group) -> int:
    return int((group_of(group.region, group.namespace, "demo").get("status") or {}).get("replacementsTotal", 0))
