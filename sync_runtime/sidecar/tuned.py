"""The links of one sidecar to its children: each with its controller, and what they say about the next object."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from sync_runtime.contract.plan import BucketPlan, LinkPlan, StreamPlan
from sync_runtime.contract.reports import LinkReport
from sync_runtime.contract.sync import BUCKET_STEP_BYTES, MAX_BUCKET_BYTES, MAX_STREAMS
from sync_runtime.links.memory import LinkMemory
from sync_runtime.links.meter import LinkEnds
from sync_runtime.session.links import TunedLink
from sync_runtime.session.shelf import LinkPace
from sync_runtime.settings import SidecarSettings
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.events import Event
from sync_runtime.transport.messages import Bounds, Follow
from sync_runtime.tuning.controller import KEPT_DECISIONS

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
        self._bounds: dict[int, LinkPlan] = {}
        self._superseded: dict[int, deque[str]] = {}
        self.num_superseded = 0
        self._memory = LinkMemory(Path(settings.spool_dir) / "links.json")
        problem = self._memory.load()
        if problem is not None:
            _log.warning("%s", problem)
        self._saved_s = time.monotonic()

    def connected(self, link: ChildLink) -> None:
        """A child was admitted."""
        ends = LinkEnds(self._settings.cluster, self._settings.region, link.hello.cluster, link.hello.region, link.name)
        self._links[id(link)] = TunedLink(link, ends, bounds_of(None, self._settings), self._memory)

    def gone(self, link: ChildLink) -> None:
        """It is over; what was learned stays."""
        self._links.pop(id(link), None)
        self._bounds.pop(id(link), None)
        self._superseded.pop(id(link), None)

    def on_event(self, event: Event) -> None:
        """Measurements of a link, among others."""
        tuned = self._links.get(id(getattr(event, "link", None)))
        if tuned is not None:
            tuned.on_event(event)

    def follow(self, link: ChildLink, message: Follow) -> None:
        """A child says what its plan has for this link: the plan of its region, which nobody else holds."""
        tuned = self._links.get(id(link))
        bounds = bounds_of(message, self._settings)
        if tuned is not None and self._bounds.get(id(link)) != bounds:
            self._bounds[id(link)] = bounds
            tuned.set_bounds(bounds)

    def pace(self, link: object) -> LinkPace:
        """What is believed of a link to a child."""
        tuned = self._links.get(id(link))
        if tuned is None:
            return LinkPace()
        estimates = tuned.controller.estimates
        return LinkPace(
            seconds_per_byte=estimates.seconds_per_byte,
            rtt_s=estimates.rtt_s,
            capacity_bytes_per_s=estimates.capacity_bytes_per_s,
            in_flight_bytes=tuned.link.stats.unacked_bytes,
        )

    def superseded(self, link: object, transfers: Iterable[int], reason: str) -> None:
        """Transfers of a child gave way to a merged object: they say nothing of the link."""
        tuned = self._links.get(id(link))
        if tuned is None:
            return
        _log.info("link to %s: a transfer gives way: %s", tuned.link.name, reason)
        self._superseded.setdefault(id(link), deque(maxlen=KEPT_DECISIONS)).append(reason)
        for transfer in transfers:
            self.num_superseded += 1
            tuned.abandoned(transfer)

    def superseding(self, link: ChildLink) -> list[str]:
        """Why transfers of a link gave way; the last ones."""
        return list(self._superseded.get(id(link), ()))

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

    def bounds(self, link: ChildLink) -> dict[str, object]:
        """Inside which bounds a link is tuned."""
        bounds = self._bounds.get(id(link)) or bounds_of(None, self._settings)
        return {"streams": bounds.streams.to_document(), "bucketBytes": bounds.bucket_bytes.to_document()}

    def bucket_bytes(self) -> int:
        """For the next object: the smallest that a link likes; boundaries are the same on all of them."""
        sizes = [tuned.controller.decision.bucket_bytes for tuned in self._links.values()]
        return min(sizes, default=DEFAULT_BUCKETS.seed)

    def streams(self) -> int:
        """For the tail of the next object: the most that a link uses."""
        return max((tuned.controller.decision.streams for tuned in self._links.values()), default=4)


def bounds_of(follow: Follow | None, settings: SidecarSettings) -> LinkPlan:
    """The bounds inside which a link from here is tuned: what the child's plan says, within what is allowed at all."""
    streams, sizes, codec = None, None, "fast"
    if follow is not None:
        streams, sizes, codec = follow.streams, follow.bucket_bytes, follow.codecs[0]
    return LinkPlan(
        from_cluster=settings.cluster,
        from_region=settings.region,
        codec="Tight" if codec == "tight" else "Fast",
        streams=StreamPlan(**_clamped(streams, DEFAULT_STREAMS, step=1, most=MAX_STREAMS)),
        bucket_bytes=BucketPlan(**_clamped(sizes, DEFAULT_BUCKETS, step=BUCKET_STEP_BYTES, most=MAX_BUCKET_BYTES)),
    )


def _clamped(asked: Bounds | None, default: StreamPlan | BucketPlan, *, step: int, most: int) -> dict[str, int]:
    """Three ascending multiples of a step inside the limits, whatever a child says."""
    bounds = default if asked is None else asked

    def allowed(value: int, least: int, largest: int) -> int:
        return max(least, min(value // step * step, largest))

    low = allowed(bounds.min, step, most)
    high = allowed(bounds.max, low, most)
    return {"seed": allowed(bounds.seed, low, high), "min": low, "max": high}
