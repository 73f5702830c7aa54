"""List and watch of one kind, for ever: what is there, then what changes, resumed after every fault.

The watch goes on from the last resource version it heard, bookmarks included; where the server has forgotten that one
(410), it lists again and says what vanished meanwhile. A stream that says nothing is doubted: after `silence_s()` a new
one is opened from the same version, and only if that fails is the watch no longer live. Without this a cut link looks
like a quiet cluster, and every lease in it like a dead one.

`live_since_s` is what decisions may rest on: since then nothing was missed. An orderly end (servers end every watch
after some minutes) is no break when the next stream opens at once.

One JSON parse per event and no models: a cluster sends hundreds of lease renewals per second.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from syncgroup_operator.errors import AccessError, ApiError, DeniedError, GoneError, OperatorError, UnreachableError
from syncgroup_operator.kube.client import Cluster, Document
from syncgroup_operator.kube.connection import Stream
from syncgroup_operator.kube.failures import error_of
from syncgroup_operator.kube.kinds import Kind

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Objects have at most about 2 MiB; escaped in JSON they can grow sixfold."""


class Change(Enum):
    """What happened to an object."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"
    SYNCED = "Synced"
    """A list is complete; the body is empty."""


OnEvent = Callable[[Change, Document], None]
_CHANGES: Final = {"ADDED": Change.ADDED, "MODIFIED": Change.MODIFIED, "DELETED": Change.DELETED}


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """When a watch loses patience."""

    inactivity_s: float = 70.0
    """Servers send a bookmark each minute; a stream that says nothing for longer is opened anew."""
    server_timeout_s: int = 300
    answer_timeout_s: float = 5.0
    """For the first byte of a new stream."""
    least_stream_s: float = 1.0
    """A stream that ends sooner is a fault, or we would open streams in a busy loop."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    denied_pause_s: float = 30.0
    """Longest pause where the role does not allow it: somebody may grant it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is watched."""

    kind: Kind
    namespace: str = ""
    """Empty: all namespaces, or a cluster-scoped kind."""
    label_selector: str = ""
    field_selector: str = ""


def pause_s(failures: int, times: WatchTimes, longest_s: float, dice: float) -> float:
    """How long to wait after so many failures in a row; `dice` in [0, 1) keeps watchers apart."""
    if failures <= 0:
        return 0.0
    return float(min(times.first_pause_s * 2 ** min(failures - 1, 20), longest_s)) * (0.5 + dice / 2)


class Watch:
    """One kind in one namespace, or everywhere. Give `run` a task of its own."""

    def __init__(
        self,
        cluster: Cluster,
        scope: Scope,
        on_event: OnEvent,
        *,
        times: WatchTimes | None = None,
        silence_s: Callable[[], float] | None = None,
        keep_managed_fields: bool = False,
        on_state: Callable[[], None] = lambda: None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scope = scope
        self.live_since_s: float | None = None
        """Since when nothing was missed; None while it is not live."""
        self.last_heard_s: float | None = None
        self.restarts = 0
        """How often it broke or fell silent, orderly ends aside."""
        self.lists = 0
        self.problem: OperatorError | None = None
        """Why it is not live."""
        self._cluster = cluster
        self._on_event = on_event
        self._times = times or WatchTimes()
        self._silence_s = silence_s or (lambda: self._times.inactivity_s)
        self._keep_managed_fields = keep_managed_fields
        self._on_state = on_state
        self._clock_s = clock_s
        self._version: str | None = None
        self._known: dict[tuple[str, str], str] = {}
        """The uid of every object that is there, by namespace and name."""
        self._failures = 0
        self._stream: Stream | None = None
        self._opened_s = 0.0
        self._doubted = False

    @property
    def count(self) -> int:
        """How many objects are there."""
        return len(self._known)

    @property
    def verb(self) -> str:
        """What it is doing, as a role would call it."""
        return "list" if self._version is None else "watch"

    def doubt(self) -> None:
        """Somebody needs to know whether this watch lives: open another stream now, not after more silence."""
        opened_s, self._doubted = self._opened_s, True
        if self._stream is not None and self._clock_s() - opened_s >= self._times.least_stream_s:
            self._stream.interrupt()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                try:
                    await self._round()
                except GoneError as error:
                    self._version = None
                    self._broke(error)
                    await asyncio.sleep(self._pause_s(self._failures - 1))  # the first time at once
                except (ApiError, AccessError) as error:
                    self._broke(error)
                    asked_s = error.retry_after_s if isinstance(error, ApiError) else None
                    await asyncio.sleep(max(self._pause_s(self._failures), min(asked_s or 0.0, 60.0)))
        finally:
            self._set_live(None)

    async def _round(self) -> None:
        """One stream, with a list before it where there is no version to go on from."""
        if self._version is None:
            await self._list()
        times = self._times
        async with self._cluster.watch_stream(
            self.scope.kind,
            self.scope.namespace,
            label_selector=self.scope.label_selector,
            field_selector=self.scope.field_selector,
            resource_version=self._version or "",
            timeout_s=int(times.server_timeout_s * random.uniform(0.8, 1.2)),  # noqa: S311 spreads load
            answer_timeout_s=times.answer_timeout_s,
        ) as stream:
            opened_s = self.last_heard_s = self._clock_s()
            self.problem = None
            self._set_live(opened_s if self.live_since_s is None else self.live_since_s)
            self._stream, self._opened_s, self._doubted = stream, opened_s, False
            try:
                await self._follow(stream)
            finally:
                self._stream = None
        if self._clock_s() - opened_s < times.least_stream_s:
            raise UnreachableError(f"cluster {self._cluster.name}: the watch of {self._what} ended at once")
        self._failures = 0

    async def _list(self) -> None:
        self.lists += 1
        scope, seen, version = self.scope, set[tuple[str, str]](), ""
        pages = self._cluster.pages(
            scope.kind, scope.namespace, label_selector=scope.label_selector, field_selector=scope.field_selector
        )
        async for page in pages:
            if page.first:
                seen.clear()
            for item in page.items:
                key = self._present(item)
                if key is not None:
                    seen.add(key)
            version = page.resource_version
            self.last_heard_s = self._clock_s()
        for key in self._known.keys() - seen:
            self._vanished(key)
        self._version = version
        self._on_event(Change.SYNCED, {})

    async def _follow(self, stream: Stream) -> None:
        """Until the orderly end, or until silence asks for another stream."""
        parts: list[bytes] = []
        size_bytes = 0
        while True:
            silence_s = min(self._silence_s(), self._times.inactivity_s)
            data = await stream.read(silence_s)
            if data is None:
                # Busy servers miss the minute of a bookmark. Nothing is lost: the next stream goes on from here.
                self.restarts += silence_s >= self._times.inactivity_s and not self._doubted
                return
            if not data:
                return
            self.last_heard_s = self._clock_s()
            *lines, rest = data.split(b"\n")
            if lines:
                lines[0] = b"".join((*parts, lines[0]))
                parts, size_bytes = [], 0
                for line in lines:
                    self._line(line)
            parts.append(rest)
            size_bytes += len(rest)
            if size_bytes > MAX_LINE_BYTES:
                raise self._malformed(f"an event of more than {MAX_LINE_BYTES} bytes")

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = json.loads(line)
            kind, body = event["type"], event["object"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._malformed("an event that is none") from error
        if kind == "ERROR":
            said = body if isinstance(body, dict) else {}
            status = said.get("code")
            raise error_of(self._cluster.name, f"watch {self._what}", status if isinstance(status, int) else 500, said)
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict):
            raise self._malformed("an event without an object")
        change = _CHANGES.get(kind) if isinstance(kind, str) else None
        if change is Change.DELETED:
            key = _key(metadata)
            if key is not None and self._known.pop(key, None) is not None:
                self._on_event(change, self._slim(body, metadata))
        elif change is not None:
            self._present(body)
        version = metadata.get("resourceVersion")
        if isinstance(version, str) and version:
            self._version = version  # after it was handled: a fault in between lets it come again

    def _present(self, body: Document) -> tuple[str, str] | None:
        """An object that is there: new, changed, or a namesake of one that vanished unseen."""
        metadata = body.get("metadata")
        key = _key(metadata) if isinstance(metadata, dict) else None
        if key is None or metadata is None:
            return None
        uid = str(metadata.get("uid", ""))
        before = self._known.get(key)
        if before is not None and before != uid:
            self._vanished(key)
            before = None
        if before is None:
            self._known[key] = uid
        self._on_event(Change.ADDED if before is None else Change.MODIFIED, self._slim(body, metadata))
        return key

    def _vanished(self, key: tuple[str, str]) -> None:
        uid = self._known.pop(key)
        kind = self.scope.kind
        metadata = {"namespace": key[0], "name": key[1], "uid": uid}
        self._on_event(Change.DELETED, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})

    def _slim(self, body: Document, metadata: dict[str, Any]) -> Document:
        if not self._keep_managed_fields:
            metadata.pop("managedFields", None)
        return body

    @property
    def _what(self) -> str:
        return f"{self.scope.kind.plural} in {self.scope.namespace}" if self.scope.namespace else self.scope.kind.plural

    def _malformed(self, what: str) -> ApiError:
        return ApiError(
            f"cluster {self._cluster.name}: the watch of {self._what} sent {what}", cluster=self._cluster.name
        )

    def _broke(self, error: OperatorError) -> None:
        self._failures += 1
        self.restarts += 1
        news = type(error) is not type(self.problem)
        self.problem = error
        if self.live_since_s is not None:
            self._set_live(None)
        elif news:  # not at every further try
            self._on_state()

    def _pause_s(self, failures: int) -> float:
        denied = isinstance(self.problem, DeniedError)
        longest_s = self._times.denied_pause_s if denied else self._times.longest_pause_s
        return pause_s(failures, self._times, longest_s, random.random())  # noqa: S311 spreads load

    def _set_live(self, since_s: float | None) -> None:
        if since_s != self.live_since_s:
            self.live_since_s = since_s
            self._on_state()


def _key(metadata: dict[str, Any]) -> tuple[str, str] | None:
    """Namespace and name; None for a body that is no object."""
    name, namespace = metadata.get("name"), metadata.get("namespace", "")
    if not isinstance(name, str) or not name or not isinstance(namespace, str):
        return None
    return sys.intern(namespace), name
