"""The links of one sidecar to its children: each with its controller, and what they say about the next object."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from sync_runtime.contract.plan import BucketPlan, LinkPlan, Plan, StreamPlan
from sync_runtime.contract.reports import LinkReport
from sync_runtime.links.memory import LinkMemory
from sync_runtime.links.meter import LinkEnds
from sync_runtime.session.links import TunedLink
from sync_runtime.settings import SidecarSettings
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.events import Event

_log = logging.getLogger(__name__)
SAVE_EVERY_S = 10.0
KIB = 1 << 10
DEFAULT_STREAMS = StreamPlan(seed=8, min=1, max=32)
DEFAULT_BUCKETS = BucketPlan(seed=512 * KIB, min=256 * KIB, max=8192 * KIB)


class LinkBook:
    """Tuned links by child; on the brain's loop."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self._links: dict[int, TunedLink] = {}
        self._memory = LinkMemory(Path(settings.spool_dir) / "links.json")
        problem = self._memory.load()
        if problem is not None:
            _log.warning("%s", problem)
        self._saved_s = time.monotonic()

    def connected(self, link: ChildLink, plan: Plan) -> None:
        """A child was admitted."""
        ends = LinkEnds(self._settings.cluster, self._settings.region, link.hello.cluster, link.hello.region, link.name)
        self._links[id(link)] = TunedLink(link, ends, bounds_of(plan, self._settings), self._memory)

    def gone(self, link: ChildLink) -> None:
        """It is over; what was learned stays."""
        self._links.pop(id(link), None)

    def on_event(self, event: Event) -> None:
        """Measurements of a link, among others."""
        tuned = self._links.get(id(getattr(event, "link", None)))
        if tuned is not None:
            tuned.on_event(event)

    def set_plan(self, plan: Plan) -> None:
        """Other bounds."""
        for tuned in self._links.values():
            tuned.set_bounds(bounds_of(plan, self._settings))

    def tick(self) -> None:
        """Now and then."""
        now_s = time.monotonic()
        for tuned in self._links.values():
            tuned.tick(now_s)
        if now_s - self._saved_s >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Writes down what was learned."""
        self._saved_s = time.monotonic()
        problem = self._memory.save()
        if problem is not None:
            _log.warning("%s", problem)

    def reports(self) -> list[LinkReport]:
        """Links as the operator is told of them."""
        return [tuned.report() for tuned in self._links.values()]

    def decisions(self, link: ChildLink) -> list[str]:
        """The last decisions of a link, with their reasons."""
        tuned = self._links.get(id(link))
        return [] if tuned is None else [one.reason for one in tuned.controller.decisions]

    def bucket_bytes(self) -> int:
        """For the next object: the smallest that a link likes; boundaries are the same on all of them."""
        sizes = [tuned.controller.decision.bucket_bytes for tuned in self._links.values()]
        return min(sizes, default=DEFAULT_BUCKETS.seed)

    def streams(self) -> int:
        """For the tail of the next object: the most that a link uses."""
        return max((tuned.controller.decision.streams for tuned in self._links.values()), default=4)


def bounds_of(plan: Plan, settings: SidecarSettings) -> LinkPlan:
    """The bounds inside which a link from here is tuned."""
    for link in plan.links:
        if (link.from_cluster, link.from_region) == (settings.cluster, settings.region):
            return link
    first = next(iter(plan.links), None)
    return LinkPlan(
        from_cluster=settings.cluster,
        from_region=settings.region,
        codec="Fast" if first is None else first.codec,
        streams=DEFAULT_STREAMS if first is None else first.streams,
        bucket_bytes=DEFAULT_BUCKETS if first is None else first.bucket_bytes,
    )
