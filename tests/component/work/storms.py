"""A desk and workers' sessions in one loop, joined by pipes that a test cuts, holds up and joins again.

Everything is real but the sockets and the engines: messages are encoded and decoded, the journal is on the disk.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

from sync_runtime.session.work.desk import DeskContext, WorkDesk
from sync_runtime.session.work.tasks import Held
from sync_runtime.session.work.worker import WorkerContext, WorkerSession
from sync_runtime.transport.events import WorkArrived, WorkConnected, WorkGone
from sync_runtime.transport.messages import Message, decode, encode
from sync_runtime.transport.wire import FrameReader, FrameType
from sync_runtime.transport.work_link import WorkLink
from sync_runtime.work.model import Policy, WorkVersion
from tests.unit.work.ledgers import version

_ALL = frozenset(FrameType)


class End:
    """One end of a pipe, with the face of a WorkLink."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: deque[Message] = deque()
        self.is_closed = False

    def send(self, message: Message) -> None:
        """On its way."""
        ((kind, body),) = FrameReader(_ALL).feed(encode(message))
        self.sent.append(decode(kind, body))

    def close(self, reason: str, message: str, *, retry: bool = True) -> None:
        """The storm notices."""
        self.is_closed = True


class Worker:
    """A worker's session, its engine, and the pipe to the desk."""

    def __init__(self, storm: Storm, name: str) -> None:
        self.storm, self.name = storm, name
        self.live: WorkVersion | None = None
        self.coming: WorkVersion | None = None
        self.inside: End | None = None
        self.outside: End | None = None
        self.held: list[Held] = []
        self.session = WorkerSession(
            WorkerContext(
                live=lambda: self.live,
                coming=lambda: self.coming,
                policy=lambda: storm.policy,
                is_on=lambda: True,
                spawn=storm.spawn,
                worked=lambda *_: None,
                measured=lambda _: None,
            )
        )

    def connect(self) -> None:
        """A new pipe."""
        self.cut()
        self.inside, self.outside = End("trainer-0"), End(self.name)
        self.storm.desk.on_event(WorkConnected(_link(self.outside)))
        self.session.on_event(WorkConnected(_link(self.inside)))

    def cut(self, reason: str = "Lost") -> None:
        """What is on its way is lost, in both directions."""
        if self.inside is not None and self.outside is not None:
            self.session.on_event(WorkGone(_link(self.inside), reason, ""))
            self.storm.desk.on_event(WorkGone(_link(self.outside), reason, ""))
        self.inside = self.outside = None

    def deliver(self) -> bool:
        """One message in each direction."""
        if self.inside is None or self.outside is None:
            return False
        moved = bool(self.inside.sent or self.outside.sent)
        if self.inside.sent:
            self.storm.desk.on_event(WorkArrived(_link(self.outside), self.inside.sent.popleft()))
        if self.outside.sent:
            self.session.on_event(WorkArrived(_link(self.inside), self.outside.sent.popleft()))
        if self.inside.is_closed or self.outside.is_closed:
            self.cut()
        return moved

    def activate(self) -> None:
        """The newest version, scrubbed."""
        self.live = self.storm.head
        self.session.changed()

    async def take(self) -> None:
        """A group, if one waits."""
        held = await self.session.take(self.name, None, 0.0, lambda: False)
        if held is not None:
            self.held.append(held)

    def complete(self, number: int) -> None:
        """A result that says under which weights it was made."""
        held = self.held.pop(number)
        payload = f"{held.task.head.id} {held.version.digest}".encode()
        self.session.complete(self.name, held.lease, self.live, 10, payload)

    def die(self) -> None:
        """The worker's process is gone."""
        self.session.left(self.name)
        self.held.clear()


class Storm:
    """One desk, several workers."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 the same storm every time
        self._folder = folder
        self.policy = Policy(lease_s=0.02, max_attempts=10_000, max_staleness=2)
        self.head = version(0)
        self.known: dict[tuple[str, int], str] = {}
        self.publish(0)
        self._tasks: set[asyncio.Task[None]] = set()
        self.desk = self._desk()
        self.workers = [Worker(self, f"w{at}") for at in range(3)]

    def _desk(self) -> WorkDesk:
        desk = WorkDesk(
            DeskContext(
                folder=self._folder,
                term=lambda: 1,
                head=lambda: self.head,
                digest=lambda lineage, seq: self.known.get((lineage, seq)),
                policy=lambda: self.policy,
                is_on=lambda: True,
                member_lease_s=lambda: 0.05,
                spawn=self.spawn,
                counted=lambda *_: None,
                judged=lambda _: None,
            )
        )
        desk.start()
        return desk

    def restart(self) -> None:
        """The desk dies without a word, and another one reads its journal."""
        self.desk.close()
        self.desk.on_event = lambda event: None  # type: ignore[method-assign]
        self.desk = self._desk()
        for worker in self.workers:
            worker.cut()

    def publish(self, by: int, lineage: str | None = None) -> None:
        """A newer version, or another lineage."""
        self.head = version(self.head.seq + by, lineage or self.head.lineage)
        self.known[self.head.lineage, self.head.seq] = self.head.digest

    def spawn(self, work: object) -> None:
        """Beside the rest; what fails there fails the test at its end."""
        task = asyncio.ensure_future(cast("Coroutine[Any, Any, None]", work))
        self._tasks.add(task)

    async def close(self) -> None:
        """Ends all, and raises what went wrong beside."""
        for task in self._tasks:
            if not task.done():
                task.cancel()
        found = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.desk.close()
        for one in found:
            if isinstance(one, Exception):
                raise one


def _link(end: End) -> WorkLink:
    return cast("WorkLink", end)
