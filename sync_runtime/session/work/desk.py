"""The trainer's side of work leases: takes prompts from its library, hands them to workers, and delivers results.

Lives on the brain's loop. Decides nothing itself: the ledger says what counts, `Workers` who gets what. Times are of
the monotonic clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sync_runtime.errors import SpoolError, SyncError, WorkError
from sync_runtime.session.work.books import Books
from sync_runtime.transport.channel import SILENT_HEARTBEATS
from sync_runtime.transport.events import WorkArrived, WorkConnected, WorkEvent, WorkGone
from sync_runtime.transport.work_link import WorkLink
from sync_runtime.transport.work_messages import Holding, Result, Return, Revoke, Take, Task, TaskHead, Verdict
from sync_runtime.work import model
from sync_runtime.work.ledger import Lease, Ledger
from sync_runtime.work.model import Change, Offer, Policy, WorkVersion
from sync_runtime.work.workers import Workers

_log = logging.getLogger(__name__)
GRACE_S = 2.0
"""How long a worker whose process ended, or was cut off, has to come back."""
MAX_STEPS = 1024
MAX_UNREAD_BYTES = 256 << 20
ORDERLY = frozenset({"ShuttingDown"})


@dataclass(frozen=True)
class DeskContext:
    """What a desk works with."""

    folder: Path
    term: Callable[[], int]
    head: Callable[[], WorkVersion | None]
    """The trainer's newest version."""
    digest: Callable[[str, int], str | None]
    """The digest of a version that is known here, by lineage and seq."""
    policy: Callable[[], Policy]
    is_on: Callable[[], bool]
    member_lease_s: Callable[[], float]
    spawn: Callable[[object], None]
    counted: Callable[[WorkVersion, str, int, float], None]
    """Told of every result that counts: version, worker, tokens, seconds since its lease."""
    judged: Callable[[str], None]
    """Told what became of every result."""


class WorkDesk:
    """The ledger's keeper."""

    def __init__(self, context: DeskContext) -> None:
        self._context = context
        self._books: Books | None = None
        self._events: asyncio.Queue[WorkEvent] = asyncio.Queue()
        self._links: dict[str, WorkLink] = {}
        self.workers = Workers()
        self.news = asyncio.Event()
        """Set when a result may have become deliverable."""
        self.verdicts: Counter[str] = Counter()
        self.returns: Counter[str] = Counter()
        self.tokens = 0
        self.problem: str | None = None
        """Why the ledger cannot be used."""
        self._unread_bytes = 0
        """Of results that wait to be judged."""
        self._lineage: str | None = None
        self._steps: dict[tuple[str, int], int | None] = {}

    def start(self) -> None:
        """Reads the journal where there is one, and serves from now on."""
        if self._context.is_on():
            try:
                self.books()
            except SyncError as error:  # told to whoever uses it; weights go on without it
                _log.error("the work ledger cannot be used: %s", error)
        self._context.spawn(self._serve())

    def close(self) -> None:
        """What is written stays."""
        if self._books is not None:
            self._books.close()

    def books(self) -> Books:
        """The ledger, opened where it is not yet; raises SyncError where work leases are off or it cannot be read."""
        if not self._context.is_on():
            raise WorkError("work leases are off in this group: set `work.mode` to Leased")
        if self._books is None:
            self._books = self._opened()
            now_s = time.monotonic()
            for name in self._books.ledger.held():  # of before a restart: they have a while to show that they live
                self.workers.connected(name, now_s)
                self.workers.gone(name, now_s + max(GRACE_S, self._context.member_lease_s()))
        self._books.ledger.policy = self._context.policy()
        return self._books

    def _opened(self) -> Books:
        try:
            books = Books(self._context.folder, self._context.term(), self._context.policy())
        except SyncError as error:
            self.problem = str(error)
            raise
        self.problem = None
        return books

    @property
    def ledger(self) -> Ledger | None:
        """For readings."""
        return None if self._books is None else self._books.ledger

    def on_event(self, event: WorkEvent) -> None:
        """Something about a worker's connection; they are worked off in order."""
        if isinstance(event, WorkArrived) and isinstance(event.message, Result):
            self._unread_bytes += len(event.message.payload)
            if self._unread_bytes > MAX_UNREAD_BYTES:  # it is sent again when the worker is back
                self._unread_bytes -= len(event.message.payload)
                event.link.close("Busy", "more results come than the disk takes")
                return
        self._events.put_nowait(event)

    async def tick(self) -> None:
        """Now and then: what expired goes back, who is silent is lost."""
        if self._books is None:
            return
        books = self.books() if self._context.is_on() else self._books
        async with books.turn:
            self.look(books)
        await books.tidy()

    # --- changes -----------------------------------------------------------------------------------------------------

    def look(self, books: Books, changes: Sequence[Change] = ()) -> None:
        """Makes changes true, and all that follows from the time, the workers and the trainer's newest version.

        The caller holds the books' `turn`. Raises SpoolError where the given changes could not be written.
        """
        self._write(books, changes)
        now_s, head = time.monotonic(), self._context.head()
        try:
            self._write(books, books.ledger.expired(now_s))
            for name in self.workers.lost(now_s):
                _log.info("the worker %s is away: its work goes to others", name)
            present = {worker.name for worker in self.workers.all}
            for name in books.ledger.held().keys() - present:  # also of those whose return could not be written before
                self._write(books, books.ledger.release_others(name, ()))
            if head is not None:
                self._note_head(books, head)
                self._hand_out(books, head, now_s)
        except SpoolError as error:
            _log.warning("no work is handed out or taken back: %s", error)
        self.news.set()

    def _write(self, books: Books, changes: Sequence[Change]) -> None:
        ended = [
            (lease, change.reason)
            for change in changes
            if isinstance(change, model.Returned) and (lease := books.ledger.find(change.lease)) is not None
        ]
        books.write(changes)
        for lease, reason in ended:
            self._revoke(lease, reason)

    def _revoke(self, lease: Lease, reason: str) -> None:
        """A lease ended; its worker need not go on, if it is there to hear that."""
        self.returns[reason.partition(":")[0]] += 1
        link = self._links.get(lease.worker)
        if link is not None:
            link.send(Revoke(lease=lease.id, reason=reason[: model.MAX_REASON_CHARACTERS]))

    def rolled_back(self, before: Ledger) -> None:
        """Another ledger is in place: what the old one had handed out is void."""
        for lease in before.leases:
            self._revoke(lease, model.ROLLED_BACK)

    def _note_head(self, books: Books, head: WorkVersion) -> None:
        self._steps[head.lineage, head.seq] = head.step
        while len(self._steps) > MAX_STEPS:
            del self._steps[next(iter(self._steps))]
        if head.lineage != self._lineage:
            ended = books.ledger.foreign(head.lineage)
            if ended:
                _log.info("lineage %s: %d work leases of others end", head.lineage, len(ended))
            self._write(books, ended)
            self._lineage = head.lineage

    def _hand_out(self, books: Books, head: WorkVersion, now_s: float) -> None:
        """Leases groups while somebody may have them."""
        ledger = books.ledger

        def fits(version: WorkVersion) -> bool:
            known = self._context.digest(version.lineage, version.seq)
            return ledger.fits(version, head) and known == version.digest

        held = ledger.held()
        while (group := ledger.next_group()) is not None:
            worker = self.workers.next_for(ledger.queued, held, fits, ledger.policy.max_inflight, now_s)
            if worker is None or worker.version is None:
                return
            version = worker.version
            step = self._steps.get((version.lineage, version.seq))
            leased = ledger.lease(group, worker.name, WorkVersion(version.lineage, version.seq, version.digest, step))
            books.write([leased])
            self.workers.leased(worker.name, now_s, had=held.get(worker.name, 0))
            held[worker.name] = held.get(worker.name, 0) + 1
            self._links[worker.name].send(_task(leased, group.id, group.samples, group.payload))

    # --- workers -----------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            event = await self._events.get()
            if isinstance(event, WorkArrived) and isinstance(event.message, Result):
                self._unread_bytes -= len(event.message.payload)
            try:
                books = self.books()
                async with books.turn:
                    self._happened(books, event)
            except SyncError as error:
                _log.warning("%s: %s", event.link.name, error)
                if isinstance(event, WorkConnected):
                    event.link.close("NotReady", str(error)[:1000])

    def _happened(self, books: Books, event: WorkEvent) -> None:
        name, now_s = event.link.name, time.monotonic()
        match event:
            case WorkConnected(link=link):
                self._links[name] = link
                self.workers.connected(name, now_s)
            case WorkGone(link=link, reason=reason):
                if self._links.get(name) is link:
                    del self._links[name]
                    self.workers.gone(name, now_s + self._patience_s(reason))
                    _log.info("the worker %s is gone: %s", name, reason)
                self.look(books)
            case WorkArrived(link=link, message=message):
                if self._links.get(name) is link:
                    self._arrived(books, link, message)

    def _patience_s(self, reason: str) -> float:
        """A process that ended is not one whose path is away."""
        if reason in ORDERLY:
            return 0.0
        return max(GRACE_S, self._context.member_lease_s() - SILENT_HEARTBEATS) if reason == "Silent" else GRACE_S

    def _arrived(self, books: Books, link: WorkLink, message: object) -> None:
        match message:
            case Holding(leases=leases):
                live = {one.id for one in books.ledger.leases if one.worker == link.name}
                for lease in leases:
                    if lease not in live:
                        link.send(Revoke(lease=lease, reason=model.NOT_LIVE))
                self.look(books, books.ledger.release_others(link.name, leases))
            case Take(lineage=lineage, seq=seq, digest=digest, want=want):
                version = None
                if lineage is not None and seq is not None and digest is not None:
                    version = WorkVersion(lineage, seq, digest)
                self.workers.took(link.name, version, want)
                self.look(books)
            case Return(lease=lease, reason=reason, failed=failed):
                self.look(books, books.ledger.release(lease, link.name, f"Released: {reason}"[:256], counts=failed))
            case Result():
                self._result(books, link, message)
            case _:
                link.close("BadFrame", f"a worker does not send {type(message).__name__}", retry=False)

    def _result(self, books: Books, link: WorkLink, message: Result) -> None:
        head = message.head
        version = WorkVersion(head.lineage, head.seq, head.digest)
        offer = Offer(head.lease, link.name, version, head.scrubbed, head.tokens, message.payload)
        lease = books.ledger.find(head.lease)
        verdict = books.ledger.judge(offer, self._context.head())
        now_s = time.monotonic()
        if verdict.reason == model.COUNTED and lease is not None:  # before the next group is handed out
            self.workers.brought(link.name, head.tokens, head.busy_ms / 1000, now_s)
        try:
            self.look(books, verdict.changes)
        except SpoolError as error:
            verdict = model.Verdict(model.NO_ROOM, str(error), retry=True)
        self.verdicts[verdict.reason] += 1
        self._context.judged(verdict.reason)
        if verdict.reason == model.COUNTED and lease is not None:
            self.tokens += head.tokens
            self._context.counted(lease.version, link.name, head.tokens, now_s - lease.began_s)
        self._context.spawn(self._tell(books, link, head.lease, verdict))

    async def _tell(self, books: Books, link: WorkLink, lease: str, verdict: model.Verdict) -> None:
        """The verdict, once it is on the disk."""
        if verdict.counted:
            try:
                await books.durable()
            except SpoolError as error:
                verdict = model.Verdict(model.NO_ROOM, str(error), retry=True)
        link.send(Verdict(lease=lease, reason=verdict.reason, message=verdict.message[:1000], retry=verdict.retry))


def _task(leased: model.Leased, group: str, samples: int, payload: bytes) -> Task:
    version = leased.version
    head = TaskHead(
        lease=leased.lease, id=group, samples=samples, lineage=version.lineage, seq=version.seq, digest=version.digest,
        step=version.step,
    )  # fmt: skip
    return Task(head, payload)
