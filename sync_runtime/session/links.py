"""Where the measurements of a link meet its controller, and its decisions the link. One per child.

Events of transport in, calls to `ChildLink` out. Runs in the brain's thread. Neither measures (`links`) nor decides
(`tuning`): it brings the two together and keeps what was learned for the next start.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from sync_runtime.contract.plan import LinkPlan
from sync_runtime.contract.reports import LinkReport
from sync_runtime.links.memory import LinkKey, LinkMemory
from sync_runtime.links.meter import LinkEnds, LinkMeter
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.events import BucketsAcked, Event, PayloadDone, StreamLost, StreamSample
from sync_runtime.tuning import model
from sync_runtime.tuning.controller import Decision, LinkController
from sync_runtime.tuning.samples import PayloadSample

COLD_STREAMS = 32
COLD_GROWTH = 4
"""Cold streams are so many that their windows need to grow by this factor only."""

_log = logging.getLogger(__name__)


class TunedLink:
    """A child's link with its meter and its controller."""

    def __init__(self, link: ChildLink, ends: LinkEnds, bounds: LinkPlan, memory: LinkMemory) -> None:
        self.link = link
        self.ends = ends
        self._memory = memory
        self._key = LinkKey(ends.from_cluster, ends.from_region, ends.to_cluster, ends.to_region)
        self._meter = LinkMeter(ends)
        self._bounds = bounds
        self._controller = LinkController(memory.get(self._key), bounds)
        self._carried_by = 0
        link.remember_rate(self._controller.estimates.capacity_bytes_per_s)
        self._apply(self._cold(self._controller.decision))

    @property
    def controller(self) -> LinkController:
        """Its decisions with their reasons; read only."""
        return self._controller

    def report(self) -> LinkReport:
        """The link as the operator is told of it."""
        return self._meter.report(self._controller)

    def set_bounds(self, bounds: LinkPlan) -> None:
        """A new plan."""
        self._bounds = bounds
        self._follow(self._controller.set_bounds(bounds))
        self.before_payload(None)

    def before_payload(self, size_bytes: int | None) -> Decision:
        """Set the link up for an object that is about to be sent; its size may be unknown yet.

        Not needed: after each payload the link is set up for another like it.
        """
        decision = self._controller.decision if size_bytes is None else self._controller.for_payload(size_bytes)
        decision = self._from_more(decision) if self._carried_by else self._cold(decision)
        self._apply(decision)
        return decision

    def on_event(self, event: Event) -> None:
        """What transport tells of this link; other events do nothing."""
        match event:
            case BucketsAcked(transfer=transfer, indices=indices, size_bytes=size_bytes, now_s=now_s):
                streams = self.link.stats.active_streams
                sample = self._meter.acknowledged(transfer, size_bytes, now_s, streams=streams, buckets=len(indices))
                self._observe(sample, now_s)
            case StreamSample():
                self._meter.stream(
                    event.transfer, event.size_bytes, event.tcp_info_before, event.tcp_info, event.congestion_control
                )
            case PayloadDone():
                self._payload_done(event)
            case StreamLost(reason=reason, failed=True):
                _log.info("stream to %s lost: %s", self.link.name, reason)
                self._follow(self._controller.stream_failed(time.monotonic()))
            case _:
                pass

    def abandoned(self, transfer: int) -> None:
        """A transfer was dropped or aborted: it says nothing of the link."""
        self._meter.abandoned(transfer)

    def tick(self, now_s: float) -> None:
        """Now and then: notice that nothing comes through."""
        self._observe(self._meter.idle(now_s), now_s)

    def _payload_done(self, event: PayloadDone) -> None:
        sample = self._meter.payload_done(
            event.transfer,
            event.size_bytes,
            streams=event.streams,
            started_s=event.started_s,
            ended_s=event.ended_s,
            waited_s=event.waited_s,
        )
        self._follow(self._controller.set_congestion_control(self._meter.congestion_control))
        self._observe(sample, event.ended_s)
        self._memory.put(self._key, self._controller.state)
        self._carried_by = event.streams
        self.before_payload(None)
        if event.streams <= self._controller.decision.open_streams:  # not while a cold start's are given up by halves
            self.link.trim_streams()

    def _from_more(self, decision: Decision) -> Decision:
        """Fewer streams than the last payload had: by half at a time, so that no window has to grow much at once."""
        streams = max(decision.streams, self._carried_by // 2)
        return replace(decision, streams=streams, open_streams=max(streams, decision.open_streams))

    def _cold(self, decision: Decision) -> Decision:
        """The first payload of a link that is remembered: streams enough to fill it within a few round trips.

        Each begins with a window of ten packets and doubles it every round trip; on a long link that ramp, not the
        rate, decides how long the first payload takes.
        """
        estimates = self._controller.estimates
        in_flight = model.bandwidth_delay_bytes(estimates.capacity_bytes_per_s, estimates.min_rtt_s)
        wanted = min(in_flight // (COLD_GROWTH * model.INITIAL_WINDOW_BYTES), COLD_STREAMS, self._bounds.streams.max)
        if wanted <= decision.streams:
            return decision
        reason = f"cold, {in_flight >> 10} KiB in flight when full: {wanted} streams"
        return replace(decision, streams=wanted, open_streams=max(wanted, decision.open_streams), reason=reason)

    def _observe(self, sample: PayloadSample | None, now_s: float) -> None:
        if sample is not None:
            self._follow(self._controller.observe(sample, now_s))

    def _follow(self, decision: Decision | None) -> None:
        if decision is not None:
            _log.info("link to %s: %d streams, %s", self.link.name, decision.streams, decision.reason)
            self._apply(decision)

    def _apply(self, decision: Decision) -> None:
        self.link.set_streams(decision.streams, decision.open_streams)
        self.link.set_pacing(decision.pacing_bits_per_second, self._controller.estimates.loss)
