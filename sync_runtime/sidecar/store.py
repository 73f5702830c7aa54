"""The sidecar's object stores: who uses one by the plan, the trainer's thread that feeds it, a member's way to follow.

The store stands between the trainer and those whose first parent the trainer is; everyone else dials a relay as ever.
Brings plan, Secret, certificates and spool together; what happens in the store is not known here (STORE.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.contract.plan import FedStore, Plan
from sync_runtime.contract.stores import address_of
from sync_runtime.errors import FenceError, SettingsError, SyncError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.signing import Signer, TrustedSigners
from sync_runtime.session.catch_up import Maker
from sync_runtime.session.store_feed import StoreFeed, Witness
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.plans import PlanWatch
from sync_runtime.sidecar.store_book import StoreBook, Way
from sync_runtime.telemetry.surface import Attributes
from sync_runtime.transport.object_store.errors import StoreError
from sync_runtime.transport.object_store.fences import Seen
from sync_runtime.transport.object_store.opening import open_seal, open_store
from sync_runtime.transport.object_store.parent import StoreFollower
from sync_runtime.transport.object_store.patience import Patience
from sync_runtime.transport.object_store.ports import Objects
from sync_runtime.transport.object_store.publisher import PublishSettings, StorePublisher, Trainer
from sync_runtime.transport.object_store.reader import ReadSettings, StoreReader
from sync_runtime.transport.object_store.seal import Seal
from sync_runtime.transport.stream import BucketSink

if TYPE_CHECKING:
    from sync_runtime.sidecar.brain import Sidecar

_log = logging.getLogger(__name__)
MEND_EVERY_S: Final = 30.0
COLLECT_EVERY_S: Final = 6 * 3600.0
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 30.0
ANCHOR_TIMEOUT_S: Final = 3600.0
BUCKET_BYTES: Final = 4 << 20
"""At least, where a store is fed: every put costs a round trip and a window that opens anew."""
_JOIN_S: Final = 30.0


def fed_by(plan: Plan) -> list[FedStore]:
    """The stores that a trainer publishes to: its own place's, and those of other regions."""
    own = [] if plan.object_store is None else [FedStore(object_store=plan.object_store, keys=plan.store_keys)]
    return [*own, *(plan.feeds or ())]


def follows_store(plans: PlanWatch) -> bool:
    """Whether a rollout follows a store: where it would dial the trainer, or nobody."""
    plan, parents = plans.plan, plans.member.parents
    trainer = None if plan.trainer is None else plan.trainer.member
    return plan.transport == "ObjectStore" and (not parents or parents[0] == trainer)


def store_of(settings: SidecarSettings, plan: Plan, fed: FedStore) -> tuple[Objects, Seal]:
    """A store of the plan, with the credentials that this member has for it."""
    wanted, keys = fed.object_store, fed.keys or ""
    prefix = wanted.prefix or f"{plan.group_namespace}/{plan.group_name}"
    secret = settings.store_secret_dir
    return open_store(wanted.url, prefix, secret, keys), open_seal(settings.group_uid, secret, keys)


def book_of(sidecar: Sidecar, way: Way) -> StoreBook:
    """What is told of the store; stages go to the version's trace, which the sidecar's loop owns."""

    def on_stage(version: VersionRef, stage: str, spent_us: int, attributes: Attributes) -> None:
        sidecar.call_soon(lambda: sidecar.tracing.stored(version, stage, spent_us, attributes, sidecar.stage_times))

    return StoreBook(way, on_stage)


def follower_of(sidecar: Sidecar, sink: BucketSink, book: StoreBook) -> StoreFollower:
    """What brings a member its versions from the store."""
    settings, fence, plan = sidecar.settings, sidecar.versions.fence, sidecar.plans.plan
    if plan.object_store is None:
        raise SettingsError("the plan's transport is ObjectStore, but it names no store")
    store, seal = store_of(settings, plan, FedStore(object_store=plan.object_store, keys=plan.store_keys))
    trusted = TrustedSigners(sidecar.identity.current().files.ca_pem, settings.group_uid)
    for chain in sidecar.spool.signers():
        with contextlib.suppress(IdentityError):  # one that has ended, or of another CA
            trusted.add(chain)
    seen = Seen(fence.term, fence.incarnation or "", 0)
    stopping = threading.Event()
    reading = ReadSettings(patience=Patience.until(stopping))
    reader = StoreReader(store, settings.group_uid, trusted, seal, seen=seen, settings=reading)
    return StoreFollower(
        reader,
        sidecar.emit,
        sink,
        stopping=stopping,
        renewed=lambda: trusted.replace_ca(sidecar.identity.current().files.ca_pem),
        witness=book,
    )


class StoreFeeder:
    """The trainer's thread that keeps one store level with its spool."""

    def __init__(
        self,
        sidecar: Sidecar,
        fed: FedStore,
        maker: Maker,
        make_anchor: Callable[[ObjectKey], Awaitable[None]],
        trace_of: Callable[[VersionRef], str],
    ) -> None:
        self._sidecar, self._fed, self._maker, self._make_anchor = sidecar, fed, maker, make_anchor
        plan = sidecar.plans.plan
        self.address = address_of(fed.object_store, plan.group_namespace, plan.group_name)
        self.book = book_of(sidecar, "put")
        self._witness = Witness(trace_of, self.book.put)
        self._publisher: StorePublisher | None = None
        self._feed: StoreFeed | None = None
        self._chain = b""
        self.level: VersionRef | None = None
        """The newest version that is in the store, as far as is known."""
        self._failures = 0
        self._mended_s = self._collected_s = 0.0
        self._said = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-feeder", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Feeds from now on; whole weights are made on the loop."""
        self._loop = loop
        self._thread.start()

    def wake(self) -> None:
        """A version is durable."""
        self._wake.set()

    def close(self) -> None:
        """Ends after what is being put."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        if self._publisher is not None:
            self._publisher.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._turn()
                self._failures = 0
                self.book.fine(None if self.level is None else self.level.seq)
            except FenceError as error:
                self.book.failed(error)
                _log.error("%s follows another trainer; this one publishes there no more: %s", self.address, error)
                return
            except (SyncError, IdentityError) as error:
                self._failures += 1
                self.book.failed(error)
                self._say(f"{self.address} is not level: {error}")
            pause_s = (
                min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LAST_PAUSE_S) if self._failures else MEND_EVERY_S
            )
            self._wake.wait(pause_s)
            if self._failures:
                self._stopping.wait(FIRST_PAUSE_S)  # versions that come meanwhile do not mend it: no circles

    def _turn(self) -> None:
        """Everything that is due; raises SyncError."""
        feed, publisher = self._opened()
        self.level = feed.level()
        if self.level is None:
            return
        anchor = feed.anchor_due(self._sidecar.plans.plan.anchor_every)
        if anchor is not None:
            self._bring_anchor(feed, anchor)
        now_s = time.monotonic()
        if now_s - self._mended_s >= MEND_EVERY_S:
            self._mended_s = now_s
            publisher.mend()
        if now_s - self._collected_s >= COLLECT_EVERY_S:
            self._collected_s = now_s
            publisher.collect()

    def _opened(self) -> tuple[StoreFeed, StorePublisher]:
        trainer = self._identity()
        if self._publisher is None or self._feed is None:
            plan = self._sidecar.plans.plan
            store, seal = store_of(self._sidecar.settings, plan, self._fed)
            trusted = TrustedSigners(self._sidecar.identity.current().files.ca_pem, self._sidecar.settings.group_uid)
            patience = Patience.until(self._stopping)
            settings = PublishSettings(keep_versions=plan.retention.versions, patience=patience)
            publisher = StorePublisher(store, trainer, trusted, seal, settings)
            publisher.open()
            self.book.fine(None)  # it takes conditional writes, and the credentials are good
            self._collected_s = time.monotonic() - COLLECT_EVERY_S  # garbage of the process before this one
            feed = StoreFeed(self._sidecar.spool, self._maker, publisher, self._witness)
            self._publisher, self._feed = publisher, feed
            self._chain = trainer.pen.chain_pem
        elif trainer.pen.chain_pem != self._chain:
            self._publisher.renew(trainer)
            self._chain = trainer.pen.chain_pem
        return self._feed, self._publisher

    def _identity(self) -> Trainer:
        sidecar, fence = self._sidecar, self._sidecar.versions.fence
        if fence.incarnation is None or fence.proof is None:
            raise StoreError("this trainer leads nobody yet: it has proved no term")
        older = tuple(chain.decode("ascii", "replace") for chain in reversed(sidecar.spool.signers()))
        pen = Signer.of(sidecar.identity.current().files)
        group = sidecar.settings.group_uid
        return Trainer(group, fence.term, fence.incarnation, fence.proof.signature, pen, older)

    def _bring_anchor(self, feed: StoreFeed, key: ObjectKey) -> None:
        """Whole weights for those who join; where they cannot be made now, the next version tries again."""
        if self._loop is None:
            return
        made = asyncio.run_coroutine_threadsafe(self._await(key), self._loop)
        try:
            made.result(ANCHOR_TIMEOUT_S)
        except (SyncError, TimeoutError) as error:
            made.cancel()
            self._say(f"whole weights for {self.address} could not be made: {error}")
            return
        feed.put_anchor(key)

    async def _await(self, key: ObjectKey) -> None:
        await self._make_anchor(key)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:  # once, and again when it is another one
            self._said = sentence
            _log.warning("%s", sentence)
