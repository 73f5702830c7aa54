"""One sidecar: builds the parts for its member's role and carries every event to the part that it concerns.

The brain is one asyncio loop. Transport's threads hand events over; libraries and HTTP live on the loop. It decides
nothing about weights itself: sessions do.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.spool import Spool
from sync_runtime.contract.traces import SEND
from sync_runtime.errors import LocalProtocolError, SyncError, TransportError
from sync_runtime.identity.names import expect
from sync_runtime.identity.watch import CertificateWatch
from sync_runtime.local.link import LibraryLink, LinkHandler
from sync_runtime.local.messages import Hello as LocalHello
from sync_runtime.local.messages import Message as LocalMessage
from sync_runtime.membership.documents import LeaseTimes
from sync_runtime.membership.keeper import LeaseKeeper
from sync_runtime.session.local_server import WORK_KINDS, LocalLimits, LocalServer
from sync_runtime.session.local_server import Admission as LocalAdmission
from sync_runtime.session.mirror import sweep
from sync_runtime.session.relay import Distributor, Supply
from sync_runtime.session.shelf import Child, LinkPace
from sync_runtime.session.versions import Versions
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.admission import ChildPolicy, Standing
from sync_runtime.sidecar.parts import lease_of, release
from sync_runtime.sidecar.plans import PlanWatch, check_role
from sync_runtime.sidecar.pushed import Pushed
from sync_runtime.sidecar.reports import TroubleOf, no_trouble
from sync_runtime.sidecar.rollout import Rollout
from sync_runtime.sidecar.stage_times import StageTimes
from sync_runtime.sidecar.tracing import Tracing
from sync_runtime.sidecar.trainer import Trainer
from sync_runtime.sidecar.tuned import LinkBook
from sync_runtime.sidecar.worker import GpuWorker
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.events import (
    BucketFailed,
    BucketKept,
    BucketsAcked,
    ChildConnected,
    ChildGone,
    DialFailed,
    Event,
    MessageArrived,
    ParentConnected,
    ParentGone,
    PayloadDone,
    Refused,
    StreamLost,
    StreamSample,
    WorkArrived,
    WorkConnected,
    WorkGone,
)
from sync_runtime.transport.listener import Listener
from sync_runtime.transport.messages import Follow, Hello

_log = logging.getLogger(__name__)
HOUSEKEEPING_S = 1.0
LOG_EVERY_S = 60.0
BAD_ENDS = frozenset({"BadParent", "BadFrame"})
"""Why we ended the link to a parent that broke the rules."""


class Sidecar:
    """The sync runtime of one member."""

    def __init__(
        self, settings: SidecarSettings, environment: Mapping[str, str], trouble: TroubleOf = no_trouble
    ) -> None:
        self.settings, self.environment, self._trouble = settings, environment, trouble
        self.plans = PlanWatch(settings)
        check_role(settings, self.plans)
        self.release = release()
        self.identity = CertificateWatch(settings.identity_dir)
        expect(self.identity.identity, group_uid=settings.group_uid, roles=(settings.role,), member=settings.member)
        retention = self.plans.plan.retention
        self.spool = Spool.open(
            settings.spool_dir,
            max_bytes=min(settings.spool_bytes, retention.bytes),
            max_versions=retention.versions,
        )
        for problem in self.spool.problems:
            _log.warning("in the spool: %s", problem)
        if settings.role == "rollout" and (self.spool.path / "mirror").is_dir():  # a trainer may go on from one
            sweep(self.spool.path / "mirror")
        self.versions = Versions()
        self.refusals: Counter[str] = Counter()
        self.draining = False
        self._logged: dict[tuple[str, str], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.distributor = Distributor(
            self.versions,
            Supply(
                stored=self.spool.stored,
                layout=self.spool.layout,
                request=self._request,
                makes=settings.role == "trainer",
                chain=self._chain,
                pace=self._pace,
                superseded=self._superseded,
            ),
        )
        self.links = LinkBook(settings)
        self.tracing = Tracing(settings, self.plans, environment, self.release)
        self.traces = self.tracing.traces
        self.stage_times, self._pushed = StageTimes(), Pushed()
        self.role: Trainer | Rollout = Trainer(self) if settings.role == "trainer" else Rollout(self)
        # In a pod the volume decides who reaches the socket, and the user's image may run under any uid.
        limits = LocalLimits(ring_bytes=settings.ring_bytes, any_uid=bool(settings.pod_uid))
        self.local = LocalServer(str(settings.socket_path), self, limits)
        self.listener: Listener | None = None
        self.keeper = LeaseKeeper(lease_of(settings), self.role.report, self._lease_times)
        self.worker = GpuWorker(settings, self.keeper.wake) if settings.gpu_access == "CudaIpc" else None

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens and dials."""
        self._loop = asyncio.get_running_loop()
        self._listen()
        await self.local.start()
        self.role.start()
        self.spawn(self.keeper.run())
        self.spawn(self._keep_house())
        if self.worker is not None:
            self.spawn(self.worker.run())

    async def close(self) -> None:
        """Lets go of everything; what is durable stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.local.close()
        await self.role.close()
        if self.listener is not None:
            await asyncio.to_thread(self.listener.close)
        self.links.save()
        await self.tracing.close()
        self.spool.close()

    def emit(self, event: Event) -> None:
        """From any thread."""
        self.call_soon(lambda: self._happened(event))

    def call_soon(self, act: Callable[[], None]) -> None:
        """From any thread, on the loop; nowhere before the start and after the end."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended; nobody is left to hear
                loop.call_soon_threadsafe(act)

    def spawn(self, work: object) -> None:
        """Runs something beside the rest; its failure is logged, never swallowed."""
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def reload(self) -> None:
        """Plan and certificates are looked at now."""
        if self.plans.look():
            _log.info("plan %d of term %d is in force", self.plans.plan.revision, self.plans.plan.term)
            self.role.plan_changed()
            self.tracing.plan_changed()
        try:
            self._listen()  # the plan may have made a relay of this member
        except TransportError as error:
            self.log_once("Listen", self.settings.member, str(error))
        self.identity.current()

    def trouble(self) -> tuple[str, str] | None:
        """What is wrong around the weights, in a word and a sentence; None: nothing."""
        return self._trouble() or (None if self.worker is None else self.worker.trouble)

    def all_refusals(self) -> dict[str, int]:
        """Counts by reason, from all sides."""
        found = Counter(self.refusals)
        if isinstance(self.role, Rollout):
            found.update(self.role.receiver.refusals)
        return dict(found)

    # --- libraries ---------------------------------------------------------------------------------------------------

    def admit(self, hello: LocalHello) -> LocalAdmission:
        """A trainer's sidecar serves a publisher and its work, a rollout's a subscriber and workers."""
        wanted = ("publisher", "work") if self.settings.role == "trainer" else ("subscriber", "worker")
        if hello.kind not in wanted:
            raise LocalProtocolError(f"this is the sidecar of a {self.settings.role}: it serves a {wanted[0]}")
        return LocalAdmission(self.settings.group, self.settings.member, self.versions.fence.term)

    async def attached(self, library: LibraryLink) -> None:
        """A library is in."""
        await self._served_by(library).attached(library)

    async def message(self, library: LibraryLink, message: LocalMessage) -> None:
        """A message of a library."""
        await self._served_by(library).message(library, message)

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """Bytes of a library's stream."""
        await self._served_by(library).data(library, data)

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """A library is gone."""
        _log.warning("the user's process (pid %d) is gone: %s", library.pid, reason)
        await self._served_by(library).detached(library, reason)
        self.keeper.wake()

    def _served_by(self, library: LibraryLink) -> LinkHandler:
        return self.role.work.libraries if library.hello.kind in WORK_KINDS else self.role.libraries

    # --- events ------------------------------------------------------------------------------------------------------

    def _happened(self, event: Event) -> None:
        match event:
            case ChildConnected(link=link):
                _log.info("%s connected", link.name)
                self.links.connected(link)
                self.distributor.connected(link, link.name)
            case ChildGone(link=link, reason=reason):
                _log.info("%s is gone: %s", link.name, reason)
                self.distributor.gone(link)
                self.links.gone(link)
            case MessageArrived(link=link, message=message):
                if isinstance(link, ChildLink):
                    if isinstance(message, Follow):
                        self.links.follow(link, message)
                    self.distributor.arrived(link, message)
                elif isinstance(self.role, Rollout):
                    self.role.receiver.arrived(link, message)
                    self.role.heard()
            case PayloadDone(link=link, transfer=transfer):
                self.links.on_event(event)
                self.distributor.finished(link, transfer)
                self._sent(event)
            case BucketsAcked(link=link, transfer=transfer, size_bytes=size_bytes):
                self.links.on_event(event)
                self.distributor.acked(link, transfer, size_bytes)
            case WorkConnected() | WorkArrived() | WorkGone():
                self.role.work.on_event(event)
            case StreamSample() | StreamLost():
                self.links.on_event(event)
            case Refused(reason=reason, peer=peer, message=message):
                self.refusals[reason] += 1
                self.log_once(reason, peer, f"refused {peer}: {reason}: {message}")
            case _:
                self._from_parent(event)

    def _sent(self, event: PayloadDone) -> None:
        key = self.tracing.sent(event)
        if key is not None:
            self.stage_times.took(SEND, int((event.ended_s - event.started_s) * 1e6))
        if key is not None and isinstance(self.role, Rollout):
            self.role.relayed(key)

    def _from_parent(self, event: Event) -> None:
        role = self.role
        if not isinstance(role, Rollout):
            return
        match event:
            case ParentConnected(link=link):
                _log.info("receiving from %s", link.name)
                role.receiver.connected(link)
            case ParentGone(link=link, reason=reason, message=message):
                _log.info("%s is gone: %s %s", link.name, reason, message)
                if reason in BAD_ENDS:
                    self.refusals[reason] += 1
                    role.broken(reason, message)
                role.receiver.gone(link)
            case BucketKept(key=key, index=index):
                role.receiver.bucket_kept(key, index)
            case BucketFailed(link=link, transfer=transfer, error=error):
                role.receiver.bucket_failed(link, transfer, error)
            case DialFailed(member=member, reason=reason, message=message):
                self.refusals[f"Dial{reason}"] += 1
                self.log_once(reason, member, f"{member} cannot be dialled: {reason}: {message}")
            case _:
                return

    def log_once(self, reason: str, peer: str, sentence: str) -> None:
        """Once per reason, peer and minute."""
        host, now = peer.rpartition(":")[0] or peer, time.monotonic()
        if now - self._logged.get((reason, host), -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged = {key: seen for key, seen in self._logged.items() if now - seen < LOG_EVERY_S}
            self._logged[reason, host] = now
            _log.warning("%s", sentence)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """A trainer, and a member that the plan makes a relay, now or later; who was one goes on listening."""
        if self.listener is not None or not (self.plans.member.relay or self.settings.role == "trainer"):
            return
        policy = ChildPolicy(self.settings, self._standing, self._streams_for)
        address = (self.settings.listen.host, self.settings.listen.port)
        listener = Listener(
            address, self.identity.server_context, policy, self.emit, ends_at=lambda: self.identity.expires_at
        )
        listener.start()
        self.listener = listener

    def _request(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        self.role.request(key, blocks)

    def _chain(self) -> tuple[ObjectKey, ...]:
        """A store merges nothing: who follows one leads its children on with what it has fetched."""
        is_following = isinstance(self.role, Rollout) and self.role.follows_store
        return tuple(stored.key for stored in self.spool.objects()) if is_following else ()

    def _pace(self, link: Child) -> LinkPace:
        return self.links.pace(link)

    def _superseded(self, link: Child, transfers: tuple[int, ...], reason: str) -> None:
        self.links.superseded(link, transfers, reason)

    def _standing(self) -> Standing:
        fence = self.versions.fence
        return Standing(fence.term, fence.incarnation, self.plans.plan, self.draining)

    def _streams_for(self, hello: Hello) -> int:
        return self.role.streams_for(hello.cluster, hello.region)

    def _lease_times(self) -> LeaseTimes:
        lease = self.plans.plan.lease
        return LeaseTimes(lease.duration_seconds, lease.renew_interval_seconds)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            try:
                await self._tidy()
            except (SyncError, OSError):  # a full table of files, a disk that fails: the next turn may do better
                _log.exception("housekeeping failed and goes on")

    async def _tidy(self) -> None:
        self.reload()
        self.links.tick()
        self.distributor.look_after(time.monotonic())
        if self.listener is not None:
            self.listener.end_expired(datetime.datetime.now(datetime.UTC))
        if self.draining:
            self.drain()
        sending = {key for view in self.distributor.children for key in view.transfers.values()}
        self.tracing.tidy(sending, self.role.awaits())
        self._pushed.look(self)
        await self.role.keep_house()

    def drain(self) -> bool:
        """Takes no new children and begins no new transfer; children that were served go. Whether all have gone."""
        if not self.draining:
            _log.info("draining: no new children, no new transfers")
        self.draining = True
        served = self.distributor.drain()
        for link in () if self.listener is None else self.listener.children:
            if any(one is link for one in served):
                link.close("ShuttingDown", "this member is being drained")
        return not self.distributor.children

    async def retain(self) -> None:
        """Evicts what nobody needs."""
        needed = [*self.distributor.needed(), *self.role.stands_on()]
        gone = await asyncio.to_thread(self.spool.retain, needed, self.versions.head)
        kept = {one.key.target for one in self.spool.objects()} | {
            one.key.base for one in self.spool.objects() if one.key.base is not None
        }
        self.versions.forget(key.target for key in gone if key.target not in kept)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a task of the sidecar failed", exc_info=task.exception())
