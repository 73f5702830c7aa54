"""What differs between the sidecar of a trainer and that of a rollout: which sessions there are, how they are tied."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.bucket.manifest import Version
from sync_runtime.contract.reports import MemberReport, Trouble
from sync_runtime.contract.status import Version as ReportedVersion
from sync_runtime.errors import SignatureError, SyncError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.signing import Signer, TrustedSigners
from sync_runtime.session.catch_up import Maker, MakerSettings
from sync_runtime.session.machine import PublishState, ServiceState
from sync_runtime.session.members import EngineContext, EngineSession
from sync_runtime.session.publish import PublisherSession, TrainerContext
from sync_runtime.session.receive import MemberContext, ReceiverSession
from sync_runtime.session.relay import place
from sync_runtime.sidecar.plans import Place
from sync_runtime.telemetry.names import ACTIVATE
from sync_runtime.transport.dialler import Dialler
from sync_runtime.transport.messages import Begin, Hello, Status

if TYPE_CHECKING:
    from sync_runtime.sidecar.brain import Sidecar

_log = logging.getLogger(__name__)
DEFAULT_STREAMS = 8
STATUS_EVERY_S = 1.0


class CannotMakeError(SyncError):
    """What was asked for cannot be made from what is here."""


class Trainer:
    """Publishes; serves relays and members."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        spool, versions = sidecar.spool, sidecar.versions
        # An operator allocates terms for all its clusters; without one, this spool's lock makes ours unique.
        allocated = sidecar.plans.plan.term
        term = spool.next_term(max(1, allocated)) if sidecar.settings.lease_dir is not None else allocated
        versions.fence.admit(term, spool.incarnation(term))
        self._maker = Maker(spool, MakerSettings(self._sign, sidecar.links.bucket_bytes, sidecar.links.streams))
        self.engine = PublisherSession(
            TrainerContext(
                spool=spool,
                versions=versions,
                distributor=sidecar.distributor,
                group_uid=sidecar.settings.group_uid,
                sign=self._sign,
                bucket_bytes=sidecar.links.bucket_bytes,
                streams=sidecar.links.streams,
                trace=lambda version: sidecar.traces.begin(version.lineage, version.seq),
                published=self._published,
                failed=self._failed,
            )
        )

    def start(self) -> None:
        """Nothing to dial."""
        self._announce_signer()

    async def close(self) -> None:
        """What is being made durable becomes so."""
        await self.engine.close()

    def plan_changed(self) -> None:
        """A trainer's term comes with its start."""

    async def keep_house(self) -> None:
        """Certificates may have been renewed."""
        self._announce_signer()

    def streams_for(self, cluster: str, region: str) -> int:
        """Streams that a new child shall hold open."""
        return DEFAULT_STREAMS

    def stands_on(self) -> list[VersionRef]:
        """The newest version."""
        return [] if self.engine.version is None else [self.engine.version]

    def request(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        """Makes what a child asked for."""
        self._sidecar.spawn(self._make(key, blocks))

    def report(self) -> MemberReport:
        """How it is."""
        version = self.engine.version
        return _report(
            self._sidecar,
            "Starting" if self.engine.state in (PublishState.WAITING, PublishState.OPENING) else "Serving",
            version=None if version is None else _reported(version, self.engine.step),
        )

    async def _make(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        distributor = self._sidecar.distributor
        try:
            if blocks is not None:
                raise CannotMakeError("parts of anchors are made where the library codes")
            if key.is_anchor:
                await self._make_anchor(key)
            else:
                await asyncio.to_thread(self._maker.make, key)
        except SyncError as error:
            _log.info("%s cannot be made: %s", key, error)
            distributor.missing(key, "NotFound")
            return
        distributor.made(key)

    async def _make_anchor(self, key: ObjectKey) -> None:
        base = self.engine.snapshot()
        if base is None or base.version != key.target:
            raise CannotMakeError("the snapshot is of another version by now")
        mirror = base.mirror
        await asyncio.to_thread(
            self._maker.make_anchor, key, mirror.bound(), Version(key.target_seq, base.digest), mirror.layout
        )

    def _sign(self, document: bytes) -> bytes:
        try:
            return Signer.of(self._sidecar.identity.current().files).sign(document)
        except IdentityError as error:
            raise SignatureError(f"the manifest cannot be signed: {error}") from error

    def _announce_signer(self) -> None:
        chain = Signer.of(self._sidecar.identity.current().files).chain_pem
        self._sidecar.distributor.add_signer(chain.decode())

    def _published(self, version: VersionRef, timings_us: Mapping[str, int]) -> None:
        _log.info("version %d is durable (%s)", version.seq, ", ".join(f"{k} {v} us" for k, v in timings_us.items()))
        self._sidecar.traces.timings(version.lineage, version.seq, timings_us)
        self._sidecar.keeper.wake()
        self._sidecar.spawn(self._sidecar.retain())

    def _failed(self, version: VersionRef, reason: str) -> None:
        _log.warning("version %d was not published: %s", version.seq, reason)
        self._sidecar.traces.finish(version.lineage, version.seq, error=reason)


class Rollout:
    """Receives, serves its engine, and where it is a relay its region."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        settings = sidecar.settings
        files = sidecar.identity.current().files
        sidecar.versions.fence.term = sidecar.plans.plan.term
        self._signers = TrustedSigners(files.ca_pem, settings.group_uid)
        self._ca_pem = files.ca_pem
        self.engine = EngineSession(
            EngineContext(
                spool=sidecar.spool,
                versions=sidecar.versions,
                follow=self._follow,
                moved=self._moved,
                changed=self._changed,
                timed=self._timed,
                spawn=sidecar.spawn,
            )
        )
        self.receiver = ReceiverSession(
            MemberContext(
                spool=sidecar.spool,
                versions=sidecar.versions,
                distributor=sidecar.distributor,
                signers=self._signers,
                group_uid=settings.group_uid,
                codecs=self._codecs,
                begun=self._begun,
            ),
            self.engine,
        )
        self._dialler = Dialler(
            sidecar.plans.parents(),
            tls=sidecar.identity.client_context,
            hello=Hello(
                protocols=[1],
                kind="control",
                group=settings.group_uid,
                member=settings.member,
                cluster=settings.cluster,
                region=settings.region,
                role="rollout",
                term=sidecar.plans.plan.term,
            ),
            emit=sidecar.emit,
            sink=self.receiver.sink,
        )
        self._status: Status | None = None
        self._status_at = 0.0

    def start(self) -> None:
        """Dials."""
        self._dialler.start()

    async def close(self) -> None:
        """Hangs up and ends what is being committed."""
        await asyncio.to_thread(self._dialler.close)
        await self.receiver.close()

    def plan_changed(self) -> None:
        """Other parents, or another term."""
        self._dialler.set_parents(self._sidecar.plans.parents())

    async def keep_house(self) -> None:
        """Tells the parent what is needed, keeps the spool small, and heeds a new CA."""
        ca_pem = self._sidecar.identity.current().files.ca_pem
        if ca_pem != self._ca_pem:
            self._ca_pem = ca_pem
            self._signers.replace_ca(ca_pem)
        self._tell_status()
        await self._sidecar.retain()

    def streams_for(self, cluster: str, region: str) -> int:
        """Inside a region two streams fill what there is."""
        return 2 if region == self._sidecar.settings.region else DEFAULT_STREAMS

    def stands_on(self) -> list[VersionRef]:
        """What its engine stands on."""
        return [version for version in (self.engine.live, self.engine.staged) if version is not None]

    def request(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        """A child asked for what is not here."""
        self.receiver.request(key, blocks)

    def report(self) -> MemberReport:
        """How it is."""
        engine = self.engine
        trouble = None
        if engine.trouble is not None:
            trouble = Trouble(reason=engine.trouble[0], message=engine.trouble[1][:200])
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
        return _report(
            self._sidecar,
            state,
            trouble=trouble,
            version=None if engine.live is None else _reported(engine.live, None),
            staged_seq=None if staged is None else staged.seq,
            scrub={True: "Passed", False: "Failed", None: None}[engine.scrub_passed],
            parent=self.receiver.parent,
            tokens_per_second=engine.tokens_per_second,
            pause_millis=None if engine.pause_us is None else engine.pause_us // 1000,
        )

    def _follow(self) -> None:
        self.receiver.follow()

    def _moved(self) -> None:
        self.receiver.moved()

    def _changed(self) -> None:
        self._tell_status()
        self._sidecar.keeper.wake()

    def _tell_status(self) -> None:
        link = self._dialler.link
        if link is None:
            self._status = None
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

    def _codecs(self) -> tuple[str, ...]:
        link = self._dialler.link
        plan = None
        if link is not None:
            plan = self._sidecar.plans.link_from(Place(link.endpoint.cluster, link.endpoint.region))
        return ("tight", "fast") if plan is not None and plan.codec == "Tight" else ("fast",)

    def _begun(self, begin: Begin) -> str:
        """An object is offered: this member's part of its version's trace begins; children join below it."""
        target = parse_key(begin.key).target
        return self._sidecar.traces.join(begin.trace, target.lineage, target.seq)

    def _timed(self, stage: str, version: VersionRef, spent_us: int) -> None:
        _log.info("version %d: %s %d us", version.seq, stage, spent_us)
        self._sidecar.traces.timed(version.lineage, version.seq, stage, spent_us)
        if stage == ACTIVATE:
            self._sidecar.traces.finish(version.lineage, version.seq)


def _reported(version: VersionRef, step: int | None) -> ReportedVersion:
    return ReportedVersion(lineage=version.lineage, seq=version.seq, step=step)


def _report(sidecar: Sidecar, state: str, **fields: object) -> MemberReport:
    settings = sidecar.settings
    return MemberReport.model_validate(
        {
            "format_version": 1,
            "group_uid": settings.group_uid,
            "member": settings.member,
            "role": "Trainer" if settings.role == "trainer" else "Rollout",
            "cluster": settings.cluster,
            "region": settings.region,
            "runtime_version": sidecar.release,
            "max_plan_format": 1,
            "state": state,
            "term": sidecar.versions.fence.term,
            "plan_revision": sidecar.plans.plan.revision,
            "children": len(sidecar.distributor.children),
            "links": sidecar.links.reports(),
            "spool_bytes": sidecar.spool.size_bytes,
            "certificate_expiry_time": sidecar.identity.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            **fields,
        },
        by_name=True,
    )
