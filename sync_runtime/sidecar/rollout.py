"""The sidecar of a rollout: receives, serves its engine, and where it is a relay its region."""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from typing import TYPE_CHECKING

from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.bucket.spool import Spool
from sync_runtime.contract.plan import LinkPlan
from sync_runtime.contract.reports import MemberReport, ScrubAnswer, Trouble
from sync_runtime.contract.traces import APPLY, RECEIVE, RELAY, STAGE, VERIFY
from sync_runtime.errors import SyncError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.signing import TrustedSigners
from sync_runtime.session.incoming import MemberContext
from sync_runtime.session.machine import ServiceState
from sync_runtime.session.members import EngineSession
from sync_runtime.session.ranks.subscribing import EngineRanks
from sync_runtime.session.receive import ReceiverSession
from sync_runtime.session.relay import place
from sync_runtime.session.served import FolderEngine
from sync_runtime.session.stager import Stager
from sync_runtime.session.weights import EngineContext
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.fences import FenceFile
from sync_runtime.sidecar.plans import Place
from sync_runtime.sidecar.reports import report_of, reported
from sync_runtime.sidecar.store_book import StoreBook
from sync_runtime.sidecar.store_following import StoreFollowing
from sync_runtime.sidecar.sync_times import SyncTimes
from sync_runtime.sidecar.tracing import received_attributes
from sync_runtime.sidecar.work import RolloutWork
from sync_runtime.telemetry.names import PAUSE_DURATION, SYNC_DURATION
from sync_runtime.telemetry.surface import NO_ATTRIBUTES, Attributes, Fault, fault_of
from sync_runtime.transport.dialler import Dialler
from sync_runtime.transport.messages import Begin, Bounds, Hello, Status

if TYPE_CHECKING:
    from sync_runtime.sidecar.brain import Sidecar

_log = logging.getLogger(__name__)
DEFAULT_STREAMS = 8
STATUS_EVERY_S = 1.0
MAX_TIMED = 64


class Rollout:
    """Receives, serves its engine, and where it is a relay its region."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        settings = sidecar.settings
        files = sidecar.identity.current().files
        self._fence = FenceFile(sidecar.spool.path)
        self._fence.restore(sidecar.versions.fence, sidecar.plans.plan.term)
        self._signers = TrustedSigners(files.ca_pem, settings.group_uid)
        self._began: dict[ObjectKey, float] = {}
        """When objects were offered; the last few."""
        self._sync = SyncTimes()
        self._files = files
        self._term = sidecar.versions.fence.term
        self._folder = _folder_engine(settings, sidecar.spool)
        self.engine = EngineSession(
            EngineContext(
                spool=sidecar.spool,
                versions=sidecar.versions,
                follow=self._follow,
                moved=self._moved,
                changed=self._changed,
                timed=self._timed,
                spawn=sidecar.spawn,
            ),
            Stager if self._folder is None else self._folder.stager,
        )
        self.libraries = EngineRanks(self.engine)
        self.receiver = ReceiverSession(
            MemberContext(
                spool=sidecar.spool,
                versions=sidecar.versions,
                distributor=sidecar.distributor,
                signers=self._signers,
                group_uid=settings.group_uid,
                codecs=self._codecs,
                bounds=self._bounds,
                begun=self._begun,
                received=self._received,
                verified=lambda key, spent_us: self._timed(VERIFY, key.target, spent_us),
                refused=self._refused,
            ),
            self.engine,
        )
        hello = self._hello()
        self._following = StoreFollowing(sidecar, self.receiver.sink)
        self._following.heed_plan()
        self._dialler = Dialler(
            [] if self.follows_store else sidecar.plans.parents(),
            tls=sidecar.identity.client_context,
            hello=hello,
            emit=sidecar.emit,
            sink=self.receiver.sink,
        )
        self.work = RolloutWork(sidecar, self.engine, hello)
        self._status: Status | None = None
        self._status_link: object = None
        self._status_at = 0.0

    def _hello(self) -> Hello:
        settings = self._sidecar.settings
        return Hello(
            protocols=[1],
            kind="control",
            group=settings.group_uid,
            member=settings.member,
            cluster=settings.cluster,
            region=settings.region,
            role="rollout",
            term=self._term,
        )

    @property
    def follows_store(self) -> bool:
        """Whether an object store stands in its parent's place."""
        return self._following.is_on

    @property
    def store_book(self) -> StoreBook | None:
        """What was done with the object store; None: it is not followed."""
        return self._following.book

    def start(self) -> None:
        """Dials."""
        self.engine.scrubs.request(self._sidecar.plans.plan.scrub_request or 0)
        self._dialler.start()
        self._following.start()
        self.work.start()
        if self._folder is not None:
            self._sidecar.spawn(self._folder.run(self.engine))

    async def close(self) -> None:
        """Hangs up and ends what is being committed."""
        await asyncio.to_thread(self.work.close)
        await asyncio.to_thread(self._dialler.close)
        await asyncio.to_thread(self._following.close)
        await self.receiver.close()

    def plan_changed(self) -> None:
        """Other parents, a store in their place or no longer, or another term."""
        sidecar = self._sidecar
        sidecar.versions.fence.appoint(sidecar.plans.plan.term)
        self.heard()
        self._following.heed_plan()
        self._dialler.set_parents([] if self.follows_store else sidecar.plans.parents())
        self.work.plan_changed()
        self.engine.scrubs.request(sidecar.plans.plan.scrub_request or 0)
        self.receiver.follow()

    def heard(self) -> None:
        """The parent said something: a term that was proved is kept, and goes into the next HELLO."""
        head = self._sidecar.versions.head
        if head is not None:
            self._sync.heard(head, time.monotonic())
        self._fence.keep(self._sidecar.versions.fence)
        term = self._sidecar.versions.fence.term
        if term != self._term:
            self._term = term
            self._dialler.set_term(term)
            self.work.dialler.set_term(term)

    async def keep_house(self) -> None:
        """Tells the parent what is needed, keeps the spool small, and heeds new certificates."""
        files = self._sidecar.identity.current().files
        if files.ca_pem != self._files.ca_pem:
            self._signers.replace_ca(files.ca_pem)
        if files != self._files:
            self._files = files
            self._dialler.renew()
            self._following.renew()
            self.work.dialler.renew()
        link = self._dialler.link
        if link is not None and link.end_if_expired(datetime.datetime.now(datetime.UTC)):
            self.receiver.refusals["Expired"] += 1
        self._tell_status()
        self.work.keep_house()
        self._fence.keep(self._sidecar.versions.fence)
        self.receiver.look_after(time.monotonic())
        await self._sidecar.retain()

    def streams_for(self, cluster: str, region: str) -> int:
        """Inside a region two streams fill what there is."""
        return 2 if region == self._sidecar.settings.region else DEFAULT_STREAMS

    def stands_on(self) -> list[VersionRef]:
        """What its engine stands on."""
        return [version for version in (self.engine.live, self.engine.staged) if version is not None]

    def awaits(self) -> set[VersionRef]:
        """Versions that something is still expected of: on their way in, or staged."""
        found = {incoming.key.target for incoming in self.receiver.incoming}
        return found if self.engine.staged is None else found | {self.engine.staged}

    def broken(self, reason: str, sentence: str) -> None:
        """The parent broke the rules while these were on their way."""
        for incoming in self.receiver.incoming:
            spent_us = self._since_begin_us(incoming.key)
            self._timed(RECEIVE, incoming.key.target, spent_us, reason, sentence)

    def request(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        """A child asked for what is not here."""
        self.receiver.request(key, blocks)

    def report(self) -> MemberReport:
        """How it is."""
        engine = self.engine
        told = engine.gate.trouble or engine.trouble
        trouble = None if told is None else Trouble(reason=told[0], message=told[1][:200])
        states = {
            ServiceState.STARTING: "Starting",
            ServiceState.JOINING: "Joining",
            ServiceState.POISONED: "Poisoned",
        }
        state = states.get(engine.state, "Serving")
        head = self._sidecar.versions.head
        if state == "Serving" and head is not None and engine.live != head:
            state = "CatchingUp" if engine.live is None or head.seq - engine.live.seq > 1 else "Serving"
        staged = engine.staged
        return report_of(
            self._sidecar,
            state,
            trouble=trouble,
            version=None if engine.live is None else reported(engine.live, None),
            staged_seq=None if staged is None else staged.seq,
            scrub={True: "Passed", False: "Failed", None: None}[engine.scrubs.passed],
            scrub_answer=_scrub_answer(engine.scrubs.answer),
            parent=self.receiver.parent,
            tokens_per_second=engine.tokens_per_second,
            sync_millis=self._sync.millis(engine.live),
            pause_millis=None if engine.pause_us is None else engine.pause_us // 1000,
        )

    def _follow(self) -> None:
        self.receiver.follow()

    def _moved(self) -> None:
        self.receiver.moved()

    def _changed(self) -> None:
        self._sync.engine(is_open=self.engine.state is not ServiceState.STARTING, now_s=time.monotonic())
        self._tell_status()
        self._sidecar.keeper.wake()
        self.work.session.changed()

    def _tell_status(self) -> None:
        link = self._dialler.link
        if link is not self._status_link:
            self._status, self._status_link = None, link
        if link is None:
            return
        below = [*self._sidecar.distributor.needed(), *self.stands_on()]
        head = self._sidecar.versions.head
        same = [version for version in below if head is None or version.lineage == head.lineage]
        oldest = min(same or below, key=lambda version: version.seq, default=None)
        members = 1 + sum(view.status.members if view.status else 1 for view in self._sidecar.distributor.children)
        status = Status(serving=place(self.engine.live), needs=place(oldest), members=members)
        now = time.monotonic()
        if status != self._status and now - self._status_at >= STATUS_EVERY_S:
            self._status, self._status_at = status, now
            link.send(status)

    def _link_plan(self) -> LinkPlan | None:
        """What the plan says of the link from the parent."""
        link = self._dialler.link
        if link is None:
            return None
        return self._sidecar.plans.link_from(Place(link.endpoint.cluster, link.endpoint.region))

    def _codecs(self) -> tuple[str, ...]:
        plan = self._link_plan()
        return ("tight", "fast") if plan is not None and plan.codec == "Tight" else ("fast",)

    def _bounds(self) -> tuple[Bounds | None, Bounds | None]:
        plan = self._link_plan()
        if plan is None:
            return None, None
        streams, sizes = plan.streams, plan.bucket_bytes
        return (
            Bounds(seed=streams.seed, min=streams.min, max=streams.max),
            Bounds(seed=sizes.seed, min=sizes.min, max=sizes.max),
        )

    def _begun(self, begin: Begin) -> str:
        """An object is offered: this member's part of its version's trace begins; children join below it."""
        key = parse_key(begin.key)
        line = self._sidecar.traces.join(begin.trace, key.lineage, key.target_seq)
        self._began[key] = now_s = time.monotonic()  # after the part's own begin, in which it lies
        self._sync.heard(key.target, now_s)
        while len(self._began) > MAX_TIMED:
            del self._began[next(iter(self._began))]
        return line

    def _received(self, key: ObjectKey) -> None:
        stored = self._sidecar.spool.stored(key)
        attributes = received_attributes(stored, self.receiver.parent)
        if stored is not None:
            self._sidecar.tracing.received(stored.size_bytes)
        self._timed(RECEIVE, key.target, self._since_begin_us(key), attributes=attributes)

    def _refused(self, key: ObjectKey, error: SyncError | IdentityError) -> None:
        fault = fault_of(error)
        self._timed(RECEIVE, key.target, self._since_begin_us(key), fault.reason, fault.sentence)

    def relayed(self, key: ObjectKey) -> None:
        """A child has all of an object; the last one ends this member's work as a relay."""
        if not any(key in view.transfers.values() for view in self._sidecar.distributor.children):
            self._timed(RELAY, key.target, self._since_begin_us(key))

    def _since_begin_us(self, key: ObjectKey) -> int:
        now = time.monotonic()
        return int((now - self._began.get(key, now)) * 1e6)

    def _timed(
        self,
        stage: str,
        version: VersionRef,
        spent_us: int,
        /,
        reason: str = "",
        sentence: str = "",
        *,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> None:
        _log.info("version %d: %s %d us %s", version.seq, stage, spent_us, reason)
        fault = Fault(reason, sentence)
        self._sidecar.traces.timed(*version, stage, spent_us, attributes=attributes, fault=fault)
        if not reason:
            self._count(stage, version, spent_us)

    def _count(self, stage: str, version: VersionRef, spent_us: int) -> None:
        times, telemetry = self._sidecar.stage_times, self._sidecar.tracing.telemetry
        times.took(stage, spent_us)
        if stage == APPLY:  # that is what generation waits for
            times.paused(spent_us)
            telemetry.record(PAUSE_DURATION, spent_us / 1e6)
        elif stage == STAGE:
            took_s = self._sync.staged(version, time.monotonic())
            if took_s is not None:
                times.synced(took_s)
                telemetry.record(SYNC_DURATION, took_s)


def _folder_engine(settings: SidecarSettings, spool: Spool) -> FolderEngine | None:
    """What plays the engine's part where a checkpoint folder is served."""
    root, base = settings.served_folder, settings.served_base
    return None if root is None or base is None else FolderEngine(root, base, spool, settings.served_grace_s)


def _scrub_answer(answer: tuple[int, bool] | None) -> ScrubAnswer | None:
    if answer is None:
        return None
    number, passed = answer
    return ScrubAnswer(request=number, result="Passed" if passed else "Failed")
