"""The sidecar's share in traces: starts telemetry, starts it anew when the plan names another backend, words of spans.

What happened comes from the sessions and from transport's events; here it becomes stages of versions with attributes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from sync_runtime import telemetry
from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.bucket.spool import StoredObject
from sync_runtime.contract import traces as words
from sync_runtime.errors import FormatError
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.parts import origin_of
from sync_runtime.sidecar.plans import PlanWatch
from sync_runtime.sidecar.stage_times import StageTimes
from sync_runtime.telemetry.names import RECEIVED_BYTES, REPEATED_BYTES, SENT_BYTES
from sync_runtime.telemetry.surface import Attributes, Telemetry, joins
from sync_runtime.telemetry.versions import PlanMark, VersionKey, VersionTraces
from sync_runtime.transport.events import PayloadDone

CLOSE_S: Final = 0.6
"""The end of a sidecar does not wait longer for a backend: a pod has little time, and versions matter more."""
_LINK: Final = (words.ATTR_PEER, words.ATTR_FROM_REGION, words.ATTR_TO_REGION)
_log = logging.getLogger(__name__)


class Tracing:
    """Owned by the sidecar's loop."""

    def __init__(
        self, settings: SidecarSettings, plans: PlanWatch, environment: Mapping[str, str], release: str
    ) -> None:
        self._settings, self._plans, self._environment = settings, plans, environment
        self._origin = origin_of(settings, release)
        self._endpoint = self._planned()
        self.telemetry: Telemetry = telemetry.start(environment, self._origin, self._endpoint)
        self.traces = VersionTraces(self.telemetry, self._is_sampled, plan=self._plan)
        self._closing: set[asyncio.Task[None]] = set()

    def plan_changed(self) -> None:
        """The plan may name another backend; what waits for the old one is given a moment, beside the rest."""
        endpoint = self._planned()
        if endpoint == self._endpoint:
            return
        self._endpoint, old = endpoint, self.telemetry
        self.telemetry = telemetry.start(self._environment, self._origin, endpoint)
        self.traces.use(self.telemetry)
        task = asyncio.create_task(asyncio.to_thread(old.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        _log.info("traces go to %s", endpoint or "nobody")

    def tidy(self, sending: set[ObjectKey], busy: set[VersionRef]) -> None:
        """Now and then: parts of which nothing more is expected end."""
        if self.telemetry.enabled:
            keys: set[VersionKey] = {(key.lineage, key.target_seq) for key in sending}
            self.traces.tidy(keys | {(version.lineage, version.seq) for version in busy})

    async def close(self) -> None:
        """Sends what waits, for a moment."""
        self.traces.close()
        await asyncio.to_thread(self.telemetry.close, CLOSE_S)

    def sent(self, event: PayloadDone) -> ObjectKey | None:
        """A child has all of an object: the version's trace shows the link."""
        try:
            key = parse_key(event.key)
        except FormatError:
            return None
        attributes: Attributes = {
            words.ATTR_PEER: event.link.name,
            words.ATTR_CODEC: key.codec,
            words.ATTR_BYTES: event.size_bytes,
            words.ATTR_REPEATED_BYTES: event.repeated_bytes,
            words.ATTR_STREAMS: event.streams,
            words.ATTR_BUCKETS: event.buckets,
            words.ATTR_BUCKET_BYTES: -(-event.size_bytes // max(event.buckets, 1)),
            words.ATTR_FROM_REGION: self._settings.region,
            words.ATTR_TO_REGION: event.link.hello.region,
        }
        where: Attributes = {name: attributes[name] for name in _LINK}
        self.telemetry.record(SENT_BYTES, event.size_bytes + event.repeated_bytes, where)
        self.telemetry.record(REPEATED_BYTES, event.repeated_bytes, where)
        spent_us = int((event.ended_s - event.started_s) * 1e6)
        self.traces.timed(key.lineage, key.target_seq, words.SEND, spent_us, attributes=attributes)
        return key

    def stored(self, version: VersionRef, stage: str, spent_us: int, attributes: Attributes, times: StageTimes) -> None:
        """A version went into the object store, or an object came out of it."""
        times.took(stage, spent_us)
        self.traces.timed(*version, stage, spent_us, attributes=attributes)

    def received(self, size_bytes: int) -> None:
        """All of an object came, and is verified."""
        self.telemetry.record(RECEIVED_BYTES, size_bytes)

    def _planned(self) -> str:
        return self._plans.plan.telemetry.endpoint or ""

    def _plan(self) -> PlanMark:
        return PlanMark(self._plans.plan.revision, self._plans.cause)

    def _is_sampled(self) -> bool:
        sampled = self._plans.plan.telemetry.sampled_members
        return joins(self._settings.member, is_relay=self._plans.member.relay, sampled_members=sampled)


def received_attributes(stored: StoredObject | None, parent: str | None) -> Attributes:
    """What is known of an object that came."""
    if stored is None:
        return {}
    return {
        words.ATTR_BYTES: stored.facts.size_bytes,
        words.ATTR_BUCKETS: stored.num_buckets,
        words.ATTR_CODEC: stored.key.codec,
        words.ATTR_PEER: parent or "",
    }
