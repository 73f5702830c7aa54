"""Events for users: what `kubectl describe` and `kubectl events` show of our decisions.

The same thing said again is one Event with a growing count (`series`), written at the second time and then each time
the count has doubled or a while has passed: an operator that retries for an hour must not fill etcd with it. An Event
that cannot be written is not worth an error, only the caller's log.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from syncgroup_operator.errors import NotFoundError
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import EVENT
from syncgroup_operator.planning.clock import micro_written

SERIES_S: Final = 600.0
"""What is said again later than this is a new Event."""
WRITE_EVERY_S: Final = 120.0
MAX_SERIES: Final = 2000
MAX_NOTE_BYTES: Final = 1000
"""The server refuses more than 1024."""
CLUSTER_SCOPED_NAMESPACE: Final = "default"
"""Where Events about cluster-scoped objects live, by convention."""

Now = Callable[[], datetime.datetime]


@dataclass(frozen=True, slots=True)
class Subject:
    """What an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class _Series:
    namespace: str
    name: str
    heard_s: float
    written_s: float
    count: int = 1
    written_count: int = 1


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass
class EventRecorder:
    """Posts Events to one cluster."""

    cluster: Cluster
    controller: str
    instance: str
    now: Now = _utc_now
    clock_s: Callable[[], float] = time.monotonic
    _series: OrderedDict[tuple[str, ...], _Series] = field(default_factory=OrderedDict)

    async def post(self, subject: Subject, *, type: str, reason: str, note: str, action: str = "Reconcile") -> None:
        """Say something about an object; raises ApiError."""
        note = _cut(note)
        key = (subject.uid, type, reason, note)
        now_s = self.clock_s()
        series = self._series.get(key)
        if series is None or now_s - series.heard_s > SERIES_S:
            await self._create(key, subject, type=type, reason=reason, note=note, action=action)
            return
        series.count += 1
        series.heard_s = now_s
        self._series.move_to_end(key)
        if series.count < 2 * series.written_count and now_s - series.written_s < WRITE_EVERY_S:
            return
        try:
            await self._extend(series)
        except NotFoundError:  # Events are removed after an hour
            await self._create(key, subject, type=type, reason=reason, note=note, action=action)
            return
        series.written_s, series.written_count = now_s, series.count

    async def _create(self, key: tuple[str, ...], subject: Subject, **said: str) -> None:
        now = self.now()
        namespace = subject.namespace or CLUSTER_SCOPED_NAMESPACE
        # The time makes it another one than an earlier series'; the hash keeps two of one moment apart.
        tail = hashlib.sha256("\0".join((*key, self.instance, now.isoformat())).encode()).hexdigest()[:16]
        name = f"{subject.name[:200]}.{tail}"
        await self.cluster.create(
            event_document(subject, name, now, controller=self.controller, instance=self.instance, said=said),
            news=True,
        )
        now_s = self.clock_s()
        self._series[key] = _Series(namespace, name, now_s, now_s)
        self._series.move_to_end(key)
        while len(self._series) > MAX_SERIES:
            self._series.popitem(last=False)

    async def _extend(self, series: _Series) -> None:
        patch = {"series": {"count": series.count, "lastObservedTime": micro_written(self.now())}}
        await self.cluster.merge_patch(EVENT, series.namespace, series.name, patch, news=True)


def event_document(
    subject: Subject, name: str, now: datetime.datetime, *, controller: str, instance: str, said: Mapping[str, str]
) -> dict[str, Any]:
    """The document of a first Event."""
    regarding = {"apiVersion": subject.api_version, "kind": subject.kind, "name": subject.name, "uid": subject.uid}
    if subject.namespace:
        regarding["namespace"] = subject.namespace
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"namespace": subject.namespace or CLUSTER_SCOPED_NAMESPACE, "name": name},
        "eventTime": micro_written(now),
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "regarding": regarding,
        **said,
    }


def _cut(note: str) -> str:
    data = note.encode()
    return note if len(data) <= MAX_NOTE_BYTES else data[: MAX_NOTE_BYTES - 3].decode(errors="ignore") + "…"
