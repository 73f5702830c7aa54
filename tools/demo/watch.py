"""Looks at the group: one Scene per call, from the API servers, the trainer's sidecar and what programs write.

One thread, a handful of short requests. A region that does not answer keeps what was last seen of it.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Any, Protocol

from sync_runtime.contract import names
from tools.demo import facts, group
from tools.demo.facts import Document, Member, PlannedLink, Scene
from tools.devcluster.client import RegionHandle

LEASES = (
    f"/apis/coordination.k8s.io/v1/namespaces/{group.NAMESPACE}/leases?labelSelector={names.LABEL_GROUP}={group.NAME}"
)
GROUP = f"/apis/{names.GROUP_VERSION}/namespaces/{group.NAMESPACE}/syncgroups/{group.NAME}"
SLOW_S = 3.0
"""Between two looks at what grows with the run, or rarely changes."""


class Place(Protocol):
    """Where the group runs, as far as it is looked at."""

    regions: dict[str, RegionHandle]
    silent: set[str]
    """Regions that are not asked: they are cut off, and would not answer."""

    @property
    def hub(self) -> str:
        """The hub's region."""

    def log(self, member: str) -> str:
        """What a member's program wrote; empty where it has not started."""

    def control(self, member: str, path: str) -> Document:
        """A reading of a sidecar's control API; empty where it does not answer."""


class Watcher:
    """Sees the group, again and again."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._place, self._clock = place, clock
        self._leases: dict[str, list[Document]] = {}
        self._plans: dict[str, PlannedLink] = {}
        self._deltas: tuple[facts.Delta, ...] = ()
        self._sums: dict[str, tuple[int, str]] = {}
        self._lines: list[Document] = []
        self._group: Document = {}
        self._sent = facts.Sent()
        self._slow_from_s = 0.0

    def look(self) -> Scene:
        """What is seen now."""
        now_s = self._clock()
        for region in self._place.regions:
            if region not in self._place.silent:
                self._leases[region] = self._list(region)
        self._group = self._get(self._place.hub, GROUP) or self._group
        self._lines = facts.lines_of(self._place.log(group.trainer_name())) or self._lines
        ended = facts.ended_of(self._lines)
        if now_s >= self._slow_from_s:
            self._look_slowly(ended is not None)
            self._slow_from_s = self._clock() + SLOW_S
        leases = [one for found in self._leases.values() for one in found]
        members = [one for one in map(facts.member_of, leases) if one is not None]
        return Scene(
            at_s=now_s, members=tuple(sorted(members, key=_order)), links=facts.links_of(leases),
            plans=dict(self._plans), steps=facts.steps_of(self._lines), deltas=self._deltas,
            sent_bytes=self._sent.total_bytes, ended=ended, sums=dict(self._sums), **facts.group_facts(self._group),
        )  # fmt: skip

    def _look_slowly(self, ended: bool) -> None:
        trainer = group.trainer_name()
        self._deltas = facts.deltas_of(self._place.control(trainer, "/v1/versions")) or self._deltas
        self._sent.take(self._place.control(trainer, "/v1/links"))
        for region in self._place.regions:
            if region not in self._place.silent and region != self._place.hub:
                self._plans |= self._plan(region)
        for member, region in group.member_names().items():
            if ended and member != trainer and region not in self._place.silent:
                told = facts.sum_of(facts.lines_of(self._place.log(member)))
                self._sums |= {} if told is None else {member: told}

    def _plan(self, region: str) -> dict[str, PlannedLink]:
        name = names.plan_name(group.KEY, region, region)
        found = facts.planned_link(
            self._get(region, f"/api/v1/namespaces/{group.NAMESPACE}/configmaps/{name}"), self._place.hub
        )
        return {} if found is None else {region: found}

    def _list(self, region: str) -> list[Document]:
        found = self._get(region, LEASES).get("items")
        return self._leases.get(region, []) if found is None else list(found)

    def _get(self, region: str, path: str) -> dict[str, Any]:
        try:
            status, found = self._place.regions[region].api("GET", path)
        except (OSError, http.client.HTTPException):
            return {}
        return found if status == 200 else {}


def _order(one: Member) -> tuple[bool, str, str]:
    return not one.is_trainer, one.region, one.name
