"""A worker's side of work leases: takes groups for its engine's live version, and brings results to the trainer.

Lives on the brain's loop. A result is kept until the trainer has judged it, over any number of connections: here is the
one place that sends it again. Nothing is durable: what a sidecar had in hand when it died goes back by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from sync_runtime.errors import LocalProtocolError, WorkError
from sync_runtime.local import work_messages as local
from sync_runtime.local.link import LibraryLink
from sync_runtime.local.messages import Message
from sync_runtime.session.work.tasks import Held, Tasks
from sync_runtime.transport.events import WorkArrived, WorkConnected, WorkEvent, WorkGone
from sync_runtime.transport.work_link import WorkLink
from sync_runtime.transport.work_messages import (
    Holding,
    Result,
    ResultHead,
    Return,
    Revoke,
    Take,
    Task,
    TaskHead,
    Verdict,
)
from sync_runtime.work import model
from sync_runtime.work.model import Policy, WorkVersion
from sync_runtime.work.workers import mixed

_log = logging.getLogger(__name__)
RESEND_S = 1.0
KEEP_S = 1.0
"""A group that was taken ahead goes back when nobody has asked for work for so long."""
_LOOK_S = 0.5
_SWITCH_S = 0.25
"""An engine that could have switched for so long, and asks for work under the old version, is not about to switch."""
_SCRUB_S = 10.0
"""An engine that nobody scrubs after a switch gets no groups: they would wait for nothing."""
VERSION_CHANGED = "VersionChanged"


@dataclass(frozen=True)
class WorkerContext:
    """What a worker's session works with."""

    live: Callable[[], WorkVersion | None]
    """The version that the engine runs, if a scrub of it has passed."""
    coming: Callable[[], WorkVersion | None]
    """The version that it will run next, as far as can be told: staged, or switched to and not scrubbed yet."""
    policy: Callable[[], Policy]
    is_on: Callable[[], bool]
    spawn: Callable[[object], None]
    worked: Callable[[WorkVersion, str, float], None]
    """Told of every result that is handed over: version, group, seconds."""
    measured: Callable[[float], None]
    """Told the worker's tokens a second, whenever they were measured."""


@dataclass(frozen=True)
class Answer:
    """What becomes of a result, as far as this sidecar knows."""

    taken: bool
    reason: str = ""
    message: str = ""


class WorkerSession:
    """The work of one member."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._tasks = Tasks()
        self._link: WorkLink | None = None
        self._news = asyncio.Condition()
        self._told: tuple[WorkVersion | None, int] | None = None
        """Version and number that the trainer believes we want."""
        self._coming: tuple[WorkVersion | None, float] = None, 0.0
        """The version that comes, and since when that is known."""
        self._unproven_s: float | None = None
        """Since when there is no version that a scrub has passed."""
        self._stays = False
        """The engine asked for work under its old version, though another one could have been switched to."""
        self._rate: float | None = None
        self.verdicts: Counter[str] = Counter()

    @property
    def tasks(self) -> Tasks:
        """For readings."""
        return self._tasks

    @property
    def is_connected(self) -> bool:
        """Whether the trainer is there."""
        return self._link is not None

    # --- the trainer -------------------------------------------------------------------------------------------------

    def on_event(self, event: WorkEvent) -> None:
        """Something about the connection to the trainer."""
        match event:
            case WorkConnected(link=link):
                self._link, self._told = link, None
                link.send(Holding(leases=self._tasks.leases()))
                for result in self._tasks.outbox.values():
                    link.send(result)
                self.refresh()
            case WorkGone(link=link):
                if self._link is link:
                    self._link = None
            case WorkArrived(link=link, message=message):
                if self._link is link:
                    self._arrived(link, message)

    def _arrived(self, link: WorkLink, message: object) -> None:
        match message:
            case Task(head=head):
                self._leased(message, head)
            case Verdict():
                self._judged(message)
            case Revoke(lease=lease, reason=reason):
                held = self._tasks.get(lease)
                if held is not None and held.owner is not None:
                    held.revoked = reason
                else:
                    self._tasks.drop(lease, time.monotonic())
                    self._tasks.outbox.pop(lease, None)
                self.refresh()
            case _:
                link.close("BadFrame", f"a trainer does not send {type(message).__name__}", retry=False)

    def _leased(self, task: Task, head: TaskHead) -> None:
        if self._told is not None:
            self._told = self._told[0], max(0, self._told[1] - 1)
        version = WorkVersion(head.lineage, head.seq, head.digest, head.step)
        self._tasks.arrived(Held(task, version, time.monotonic()))
        self.refresh()
        self._wake()

    def _judged(self, verdict: Verdict) -> None:
        self.verdicts[verdict.reason] += 1
        if verdict.retry and verdict.lease in self._tasks.outbox:
            asyncio.get_running_loop().call_later(RESEND_S, self._resend, verdict.lease)
            return
        if self._tasks.outbox.pop(verdict.lease, None) and verdict.reason != model.COUNTED:
            _log.info("a result under lease %s: %s %s", verdict.lease, verdict.reason, verdict.message)

    def _resend(self, lease: str) -> None:
        result = self._tasks.outbox.get(lease)
        if result is not None:
            self._send(result)

    def refresh(self) -> None:
        """What changed here or in the engine may change what is wanted, and what is of use."""
        now_s, live = time.monotonic(), self._context.live()
        aim = self._aim(live, now_s)
        for held in self._tasks.unfit((one for one in (live, aim) if one is not None), now_s, KEEP_S):
            self._return(held, VERSION_CHANGED, failed=False)
        want = self._tasks.want(now_s, aim) if aim is not None else 0
        if self._link is not None and self._told != (aim, want):
            self._told = aim, want
            if want:
                self._tasks.ordered(now_s)
            named = (None, None, None) if aim is None else (aim.lineage, aim.seq, aim.digest)
            self._link.send(Take(lineage=named[0], seq=named[1], digest=named[2], want=want))

    def _aim(self, live: WorkVersion | None, now_s: float) -> WorkVersion | None:
        """The version to take groups for: the one that comes, so that nobody waits a round trip after the switch."""
        coming, before = self._context.coming(), self._coming[0]
        if coming is None or before is None or not coming.is_same(before):
            self._coming, self._stays = (coming, now_s), False
        self._unproven_s = None if live is not None else self._unproven_s or now_s
        too_long = self._unproven_s is not None and now_s - self._unproven_s > _SCRUB_S
        return live if coming is None or self._stays or too_long else coming

    def changed(self) -> None:
        """The engine runs another version, or a scrub has ended."""
        self.refresh()
        self._wake()

    # --- workers -----------------------------------------------------------------------------------------------------

    async def take(
        self, owner: Hashable, version: WorkVersion | None, wait_s: float, lost: Callable[[], bool]
    ) -> Held | None:
        """A group for a worker that runs this version (None: whatever the engine runs), or None after a while."""
        if not self._context.is_on():
            raise WorkError("work leases are off in this group: set `work.mode` to Leased")
        end_s = time.monotonic() + wait_s
        self._tasks.asking += 1
        try:
            while not lost():
                now_s = time.monotonic()
                self._tasks.asked(now_s)
                self._note_stay(version, now_s)
                self.refresh()
                held = self._fitting(version)
                if held is not None:
                    self._tasks.give(held, owner, now_s)
                    return held
                if now_s >= end_s:
                    return None
                await self._wait(min(end_s - now_s, _LOOK_S))
        finally:
            self._tasks.asking -= 1
            self.refresh()
        return None

    def _note_stay(self, version: WorkVersion | None, now_s: float) -> None:
        coming, since_s = self._coming
        if coming is not None and version is not None and not version.is_same(coming) and now_s - since_s > _SWITCH_S:
            self._stays = True

    def complete(self, owner: Hashable, lease: str, version: WorkVersion | None, tokens: int, payload: bytes) -> Answer:
        """A result; raises WorkError where it is too large, and the lease stays."""
        held = self._tasks.get(lease)
        if held is None or held.owner != owner:
            return Answer(False, model.NOT_LIVE, "this worker has no such work lease: it ended, or was completed")
        most = self._context.policy().max_payload_bytes
        if len(payload) > most:
            raise WorkError(f"the result has {len(payload)} bytes; `work.maxPayloadBytes` allows {most}")
        if held.revoked is not None:
            self._tasks.drop(lease, time.monotonic())
            self.refresh()
            return Answer(False, model.NOT_LIVE, f"the work lease has ended: {held.revoked}")
        live, made = self._context.live(), version or held.version
        if not made.is_same(held.version) or live is None or not live.is_same(held.version):
            reason = model.NOT_SCRUBBED if live is None else model.WRONG_VERSION
            self._return(held, reason, failed=live is not None)
            self.refresh()
            return Answer(False, reason, "the weights changed, or were found wrong, before the result was complete")
        self._hand_over(held, tokens, payload)
        return Answer(True)

    def release(self, owner: Hashable, lease: str, reason: str, *, failed: bool) -> None:
        """A worker gives a lease back."""
        held = self._tasks.get(lease)
        if held is not None and held.owner == owner:
            self._return(held, reason, failed=failed)
            self.refresh()

    def left(self, owner: Hashable) -> None:
        """A worker is gone: what it had goes back at once, as an attempt: it may have died of it."""
        for held in self._tasks.in_hand:
            if held.owner == owner:
                self._return(held, model.WORKER_LOST, failed=True)
        self.refresh()

    def _hand_over(self, held: Held, tokens: int, payload: bytes) -> None:
        now_s, version = time.monotonic(), held.version
        busy_s = self._tasks.take_busy_s(now_s)
        if tokens and busy_s > 0:
            self._rate = mixed(self._rate, tokens / busy_s)
            self._context.measured(self._rate)
        self._tasks.drop(held.lease, now_s)
        self._tasks.asked(now_s)
        head = ResultHead(
            lease=held.lease, lineage=version.lineage, seq=version.seq, digest=version.digest, scrubbed=True,
            tokens=tokens, busy_ms=int(busy_s * 1000),
        )  # fmt: skip
        result = self._tasks.outbox[held.lease] = Result(head, payload)
        self._send(result)
        self._context.worked(version, held.task.head.id, now_s - held.since_s)
        self.refresh()

    def _fitting(self, version: WorkVersion | None) -> Held | None:
        live = self._context.live()
        if live is None or (version is not None and not version.is_same(live)):
            return None
        return next((one for one in self._tasks.waiting if one.version.is_same(live)), None)

    def _return(self, held: Held, reason: str, *, failed: bool) -> None:
        self._tasks.drop(held.lease, time.monotonic())
        if held.revoked is None:  # where no trainer is there, the next HOLDING says it
            self._send(Return(lease=held.lease, reason=reason[:256], failed=failed))

    def _send(self, message: Result | Return) -> None:
        if self._link is not None:
            self._link.send(message)

    def _wake(self) -> None:
        self._context.spawn(self._notify())

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait()
        except TimeoutError:
            return


class WorkerLibraries:
    """Libraries of workers at their sidecar; each is an owner of groups."""

    def __init__(self, session: WorkerSession) -> None:
        self._session = session

    async def attached(self, library: LibraryLink) -> None:
        """A worker is in; there may be several."""

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """There are no streams here."""
        raise LocalProtocolError("work is sent in messages, not as a stream")

    async def message(self, library: LibraryLink, message: Message) -> None:
        """A request."""
        match message:
            case local.Take(version=version, wait_ms=wait_ms):
                held = await self._session.take(
                    library, version_of(version), wait_ms / 1000, lambda: library.is_lost
                )  # fmt: skip
                await library.send(_task(held))
            case local.Complete(lease=lease, version=version, tokens=tokens, payload=payload):
                answer = self._session.complete(library, lease, version_of(version), tokens, payload)
                await library.send(local.Completed(answer.taken, answer.reason, answer.message))
            case local.Release(lease=lease, reason=reason, failed=failed):
                self._session.release(library, lease, reason, failed=failed)
                await library.send(local.Released())
            case _:
                raise LocalProtocolError(f"a worker does not send {type(message).__name__}")

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """It is gone."""
        self._session.left(library)


def version_of(named: local.VersionName | None) -> WorkVersion | None:
    """A version as the ledger has it."""
    return None if named is None else WorkVersion(named.lineage, named.seq, named.digest, named.step)


def _task(held: Held | None) -> local.Task:
    if held is None:
        return local.Task(None, "", 0, None, b"")
    head, version = held.task.head, held.version
    named = local.VersionName(version.lineage, version.seq, version.digest, version.step)
    return local.Task(head.lease, head.id, head.samples, named, held.task.payload)
