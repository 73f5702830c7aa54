"""The sidecar of a trainer: publishes, makes what members need to catch up, serves relays and members."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.bucket.manifest import Version
from sync_runtime.bucket.spool import Spool
from sync_runtime.contract.reports import MemberReport
from sync_runtime.contract.traces import ATTR_BUCKETS, ATTR_BYTES, ENCODE, EXTRACT
from sync_runtime.errors import SignatureError, SyncError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.signing import Signer
from sync_runtime.session.catch_up import Maker, MakerSettings
from sync_runtime.session.machine import PublishState
from sync_runtime.session.publish import PublisherSession, TrainerContext
from sync_runtime.session.ranks.publishing import PublisherRanks
from sync_runtime.session.terms import prove
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.reports import report_of, reported
from sync_runtime.sidecar.store import BUCKET_BYTES
from sync_runtime.sidecar.store_book import StoreBooks
from sync_runtime.sidecar.store_feeders import StoreFeeders
from sync_runtime.sidecar.work import TrainerWork
from sync_runtime.telemetry.surface import Attributes, Fault

if TYPE_CHECKING:
    from sync_runtime.sidecar.brain import Sidecar

_log = logging.getLogger(__name__)
DEFAULT_STREAMS = 8
MAX_TRACED = 64


class Trainer:
    """Publishes; serves relays and members."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        spool, versions = sidecar.spool, sidecar.versions
        self._newest_term = 0
        """Of which this spool knows; larger than ours where this trainer was replaced."""
        self._take_term(sidecar.settings, spool)
        self._announced = b""
        self._announce()
        self._making: set[ObjectKey] = set()
        self._traced: dict[VersionRef, str] = {}
        """Traceparents of the last versions: the store's readers join them."""
        self._maker = Maker(spool, MakerSettings(self._sign, self._bucket_bytes, sidecar.links.streams))
        self.engine = PublisherSession(
            TrainerContext(
                spool=spool,
                versions=versions,
                distributor=sidecar.distributor,
                group_uid=sidecar.settings.group_uid,
                sign=self._sign,
                bucket_bytes=self._bucket_bytes,
                streams=sidecar.links.streams,
                trace=self._begin_trace,
                published=self._published,
                failed=self._failed,
                is_put=self._is_put,
            )
        )
        self.libraries = PublisherRanks(self.engine)
        self.work = TrainerWork(sidecar, self.engine)
        self._feeders = StoreFeeders(sidecar, self._maker, self._anchor, lambda version: self._traced.get(version, ""))
        self.plan_changed()

    def _take_term(self, settings: SidecarSettings, spool: Spool) -> None:
        """The term that this sidecar leads with; PROTOCOL.md, section 1.

        Without an operator this spool's lock makes it unique: one more at every start. In a pod it is the one that the
        pod was created for, at every start and never the plan's: a later one there is another trainer's. Where the
        spool knows a later one, this trainer leads nobody, and its report says so to whoever allocates terms.
        """
        fence, plan_term = self._sidecar.versions.fence, self._sidecar.plans.plan.term
        if not settings.in_pod:
            term = spool.next_term(max(1, plan_term))
            fence.admit(term, spool.incarnation(term))
        elif settings.term >= spool.term:
            fence.admit(settings.term, spool.incarnation(settings.term))
        else:
            _log.error("this pod was made for term %d, but its spool knows term %d", settings.term, spool.term)
            fence.admit(settings.term, secrets.token_hex(16))  # of its own, so that nobody takes it for the other
        self._newest_term = spool.term

    @property
    def store_book(self) -> StoreBooks | None:
        """What was done with the object stores; None: there is none."""
        return self._feeders.books

    def _begin_trace(self, version: VersionRef, step: int | None) -> str:
        line = self._sidecar.traces.begin(*version, step)
        self._traced[version] = line
        while len(self._traced) > MAX_TRACED:
            del self._traced[next(iter(self._traced))]
        return line

    def start(self) -> None:
        """Nothing to dial; children are told of the term as they come."""
        self.work.start()
        self._feeders.start(asyncio.get_running_loop())

    async def close(self) -> None:
        """What is being made durable becomes so."""
        await self.engine.close()
        await self._feeders.close()
        self.work.close()

    def plan_changed(self) -> None:
        """Stores may come and go. A trainer's term comes with its start: a larger one in the plan is another's."""
        self.engine.appointed_term = max(self._sidecar.plans.plan.term, self._newest_term)
        self._feeders.heed_plan()

    async def keep_house(self) -> None:
        """Certificates may have been renewed; leases of work may have expired."""
        self._announce()
        await self.work.keep_house()

    def streams_for(self, cluster: str, region: str) -> int:
        """Streams that a new child shall hold open."""
        return DEFAULT_STREAMS

    def awaits(self) -> set[VersionRef]:
        """Versions that something is still expected of, besides what children are sent: none."""
        return set()

    def stands_on(self) -> list[VersionRef]:
        """The newest version."""
        return [] if self.engine.version is None else [self.engine.version]

    def request(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        """Makes what a child asked for; what is being made is not begun again."""
        if key not in self._making:
            self._making.add(key)
            self._sidecar.spawn(self._make(key, blocks))

    def report(self) -> MemberReport:
        """How it is."""
        version = self.engine.version
        return report_of(
            self._sidecar,
            "Starting" if self.engine.state in (PublishState.WAITING, PublishState.OPENING) else "Serving",
            version=None if version is None else reported(version, self.engine.step),
            term=max(self._sidecar.versions.fence.term, self.engine.appointed_term),
        )

    async def _make(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        distributor = self._sidecar.distributor
        answer: Callable[[ObjectKey], None] = distributor.made
        try:
            if key.is_anchor:
                await self._make_anchor(key, blocks)
            else:
                await asyncio.to_thread(self._maker.make, key)
        except SyncError as error:
            _log.info("%s cannot be made: %s", key, error)
            answer = partial(distributor.missing, reason="NotFound")
        finally:
            self._making.discard(key)
        answer(key)

    async def _make_anchor(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        base = self.engine.snapshot()
        if base is None or key.part is not None or base.version != key.target:
            await self.engine.make_anchor(key, blocks)
            return
        mirror = base.mirror
        await asyncio.to_thread(
            self._maker.make_anchor, key, mirror.bound(), Version(key.target_seq, base.digest), mirror.layout
        )

    def _bucket_bytes(self) -> int:
        tuned = self._sidecar.links.bucket_bytes()
        return max(tuned, BUCKET_BYTES) if self._feeders.any else tuned

    def _is_put(self) -> bool:
        return self._feeders.are_at(self.engine.version)

    async def _anchor(self, key: ObjectKey) -> None:
        await self._make_anchor(key, None)

    def _sign(self, document: bytes) -> bytes:
        try:
            return Signer.of(self._sidecar.identity.current().files).sign(document)
        except IdentityError as error:
            raise SignatureError(f"the manifest cannot be signed: {error}") from error

    def _announce(self) -> None:
        """Who signs, and the proof of the term; again under a new certificate, which may be of another key."""
        sidecar = self._sidecar
        signer, fence = Signer.of(sidecar.identity.current().files), sidecar.versions.fence
        if signer.chain_pem == self._announced or fence.incarnation is None:
            return
        self._announced = signer.chain_pem
        sidecar.distributor.add_signer(signer.chain_pem.decode())
        if fence.term >= self._newest_term:  # one that was replaced leads nobody, and proves nothing
            fence.proof = prove(signer, sidecar.settings.group_uid, fence.term, fence.incarnation)
            sidecar.distributor.tell_term()

    def _published(self, version: VersionRef, timings_us: Mapping[str, int]) -> None:
        _log.info("version %d is durable (%s)", version.seq, ", ".join(f"{k} {v} us" for k, v in timings_us.items()))
        stages = {EXTRACT: timings_us.get("copy", 0), **timings_us}  # coder `sidecar`: the library only copies
        stored = next((one for one in self._sidecar.spool.objects() if one.key.target == version), None)
        coded: Attributes = {}
        if stored is not None:
            coded = {ATTR_BYTES: stored.facts.size_bytes, ATTR_BUCKETS: stored.num_buckets}
        self._sidecar.traces.timings(*version, stages, {ENCODE: coded})
        self._sidecar.stage_times.all_took(stages)
        self._sidecar.keeper.wake()
        self._sidecar.spawn(self._sidecar.retain())
        self._feeders.wake()
        self.work.published()

    def _failed(self, version: VersionRef, reason: str) -> None:
        _log.warning("version %d was not published: %s", version.seq, reason)
        self._sidecar.traces.finish(*version, Fault("NotPublished", reason))
