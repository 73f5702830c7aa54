"""A member's session towards its parent: takes objects in, checks them, keeps them, hands them on.

Lives on the brain's loop. Every message passes the fences first; a manifest counts only with the trainer's signature.
What is complete goes to the spool, to the children (`relay`) and to the engine (`members`); nothing is decoded here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.errors import DigestError, FenceError, FormatError, SignatureError, SpoolError, SyncError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.session.catch_up.stalls import SILENT_S, Needs, StallWatch
from sync_runtime.session.incoming import Engine, Incoming, MemberContext, Parent, SpoolSink, verified
from sync_runtime.session.machine import TransferEvent
from sync_runtime.session.position import furthest, lead_on, own_want
from sync_runtime.session.relay import Shelved
from sync_runtime.transport.messages import (
    Abort,
    Begin,
    Drop,
    Follow,
    Head,
    Index,
    LayoutDocument,
    ManifestEnvelope,
    Message,
    Signer,
    Want,
)

_log = logging.getLogger(__name__)
BAD_PARENT = "BadParent"
GONE = "Gone"
"""Why transport aborts a transfer whose source cannot be read any more."""
RETRY_S = 1.0
"""Before an object that could not be kept is asked for again."""


class ReceiverSession:
    """Everything between the parent and the spool."""

    def __init__(self, context: MemberContext, engine: Engine) -> None:
        self._context, self._engine = context, engine
        self.sink = SpoolSink(context.spool)
        self.refusals: Counter[str] = Counter()
        self._parent: Parent | None = None
        self._incoming: dict[ObjectKey, Incoming] = {}
        self._transfers: dict[int, ObjectKey] = {}
        self._wanted: set[ObjectKey] = set()
        self._told: VersionRef | None = None
        """What the parent takes us to hold, with what it has begun to send."""
        self._from_before: set[ObjectKey] = set()
        """Objects of which buckets came before this link: what is wrong with them may not be this parent's doing."""
        self._greeted = False
        """Whether the parent was told what is held."""
        self._trainer: tuple[int, str] | None = None
        """Term and incarnation under which what is partial came; None: another process took it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._stalls = StallWatch()
        self.asked_again = 0
        """How often housekeeping asked the parent again."""
        self._heard_s = time.monotonic()
        """When a transfer began or a bucket came, last."""
        context.distributor.on_moved(self.moved)
        for chain in context.spool.signers():
            self._trust(chain.decode("ascii", "replace"), keep=False)

    @property
    def parent(self) -> str | None:
        """Whom it receives from."""
        return None if self._parent is None else self._parent.name

    @property
    def incoming(self) -> tuple[Incoming, ...]:
        """What is on its way."""
        return tuple(self._incoming.values())

    def look_after(self, now_s: float) -> None:
        """Now and then: whoever here is behind with nothing coming asks again, however that came about."""
        if self._parent is None or not self._greeted:
            return
        engine, silent = self._engine, now_s - self._heard_s > SILENT_S
        needs = Needs(
            head=self._context.versions.head,
            furthest=self._furthest(),
            own=engine.holds(),
            refused=engine.refused,
            wants_anchor=engine.out_of_service(),
        )
        whole = {key for key, one in self._incoming.items() if one.committing}
        stored = whole | {one.key for one in self._context.spool.objects()}
        stalled = needs.stalled(stored, set() if silent else {*self._transfers.values()})
        times = [self._stalls.due(who, now_s, stalled=one) for who, one in stalled.items()]
        if 1 in times:
            _log.warning("behind the newest version, and %s sends nothing: asking again", self._parent.name)
        if any(times):
            self.asked_again += 1
            self._ask_anew(silent=silent)

    # --- the link ----------------------------------------------------------------------------------------------------

    def connected(self, parent: Parent) -> None:
        """A parent welcomed us: ask for the rest of what is partial, then say what is held."""
        self._parent, self._transfers, self._told = parent, {}, None
        self._context.versions.doubt()  # what the last one said without a signature counts no longer
        self._wanted.clear()  # of whom it was asked is gone
        self._greeted = False
        self._heard_s = time.monotonic()
        self._from_before = set(self._context.spool.partial())
        if not self._from_before:
            self._go_on()  # otherwise after HEAD, which tells what of it became durable

    def _go_on(self) -> None:
        """Asks for the rest of what is partial, then says what is held."""
        self._greeted = True
        for key in self._context.spool.partial():
            self._ask_rest(key)
        self.follow()
        self._context.distributor.ask_again()

    def _void_after(self, head: VersionRef) -> bool:
        """A trainer that came back has this version as its newest: what was on its way to the next one is void.

        It writes that one anew, under the same name and with other bytes. Whether there was any.
        """
        # Only what came before this link: a bucket of the next version may overtake the HEAD before it.
        void = [key for key in self._from_before if key.lineage == head.lineage and key.target_seq > head.seq]
        for key in void:
            self._void(key)
        return bool(void)

    def _void(self, key: ObjectKey) -> None:
        self._from_before.discard(key)
        self._incoming.pop(key, None)
        for transfer in [number for number, one in self._transfers.items() if one == key]:
            del self._transfers[transfer]
            self._drop(transfer, "Void")  # otherwise the parent takes it for held
        self._wanted.discard(key)
        self._context.distributor.aborted(key, "Void")
        self._context.spool.receive(key).abort()

    def gone(self, parent: Parent) -> None:
        """What is verified stays; the next parent brings the rest."""
        if parent is self._parent:
            self._parent, self._transfers = None, {}

    def follow(self) -> None:
        """Tells the parent what is held, here and below, so that it pushes what follows."""
        if self._parent is None or not self._greeted:
            return
        engine, keys = self._engine, self._keys()
        stands = lead_on(self._furthest(), keys, self._context.versions.head)
        self._told = stands
        streams, bucket_bytes = self._context.bounds()
        self._parent.send(
            Follow(
                lineage=None if stands is None else stands.lineage,
                seq=None if stands is None else stands.seq,
                digest=None if stands is not None else engine.digest(),
                codecs=list(self._context.codecs()),  # type: ignore[arg-type]
                out_of_service=engine.out_of_service(),
                want_anchor=stands is None and engine.out_of_service(),
                streams=streams,
                bucket_bytes=bucket_bytes,
            )
        )
        self._ask_own()

    def request(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        """A child wants what is not here: ask the own parent. Without one the child waits until there is one."""
        if self._parent is not None and self._greeted:  # otherwise it is asked for with all the rest
            self._wanted.add(key)
            self._parent.send(Want(key=key.text, have=[], blocks=blocks))

    def moved(self) -> None:
        """Someone below stands elsewhere: a parent that thinks otherwise is told."""
        if self._parent is None:
            return
        if lead_on(self._furthest(), self._keys(), self._context.versions.head) != self._told:
            self.follow()
        else:
            self._ask_own()  # a relay's own engine may need what its children do not

    def arrived(self, parent: Parent, message: Message) -> None:
        """A message of the parent; what breaks a rule ends the link with a counted reason."""
        if parent is not self._parent:
            return
        try:
            self._take(message)
        except FenceError as error:
            self._turn_away(parent, type(error).__name__.removesuffix("Error"), str(error))
        except (SignatureError, IdentityError, FormatError) as error:
            self._turn_away(parent, BAD_PARENT, str(error))
        except SpoolError as error:  # no room, or too many objects are partial
            self.refusals[type(error).__name__] += 1
            self._soon(self.follow)

    def bucket_kept(self, key_text: str, index: int) -> None:
        """A bucket is verified and in the spool: pass it on."""
        self._heard_s = time.monotonic()
        try:
            key = parse_key(key_text)
        except FormatError:
            return
        self._context.distributor.bucket(key, index)
        incoming = self._incoming.get(key)
        if incoming is not None:
            self._check_complete(incoming)

    def bucket_failed(self, key_text: str, error: Exception) -> None:
        """It could not be kept; transport dropped the transfer. No room: later. Contradictions are somebody's lie."""
        key, parent = parse_key(key_text), self._parent
        incoming = self._incoming.pop(key, None)
        if incoming is not None:
            self._context.distributor.aborted(key, "NotKept")
        if isinstance(error, FormatError | DigestError):
            if incoming is not None:
                incoming.receiver.abort()  # which of the buckets is the wrong one nobody knows
            blamed = key not in self._from_before
            self._from_before.discard(key)
            if parent is not None and blamed:
                self._turn_away(parent, BAD_PARENT, str(error))
                return
        self.refusals[type(error).__name__] += 1
        self._soon(self.follow)

    async def close(self) -> None:
        """Waits for what is being committed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        context = self._context
        match message:
            case Signer(certificates=certificates):
                self._trust(certificates, keep=True)
            case Index():
                self._admit(message.term, message.incarnation)
                start = None if message.start is None else VersionRef(message.start.lineage, message.start.seq)
                context.versions.learn_lineage(message.lineage, message.versions, start=start, current=False)
                context.distributor.tell_index(message.lineage)
                self._engine.learned()
            case Head():
                self._admit(message.term, message.incarnation)
                head, before = VersionRef(message.lineage, message.seq), context.versions.head
                if context.versions.learn_head(head, message.digest, message.step):
                    context.distributor.set_head(message)
                    self._engine.learned()
                    if before is not None and before.lineage != head.lineage:
                        self.follow()  # what is on its way into the lineage that ended may be of no use any more
                is_new = (message.term, message.incarnation) != self._trainer
                self._trainer = message.term, message.incarnation
                is_void = is_new and self._void_after(head)
                if not self._greeted:
                    self._go_on()
                elif is_void:
                    self.follow()  # a parent that was told to stop waits for this
            case LayoutDocument(document=document):
                context.spool.put_layout(document)
            case Begin():
                self._begin(message)
            case ManifestEnvelope(transfer=transfer, envelope=envelope):
                self._manifest(transfer, envelope)
            case Abort(transfer=transfer, reason=reason):
                self._abort(transfer, reason)
            case _:
                return

    def _admit(self, term: int, incarnation: str) -> None:
        self._context.versions.admit(term, incarnation)

    def _trust(self, certificates: str, *, keep: bool) -> None:
        pem = certificates.encode("ascii", "replace")
        try:
            self._context.signers.add(pem)
        except IdentityError:
            if keep:
                raise
            return  # one of the spool's that has ended, or of another CA
        self._context.distributor.add_signer(certificates)
        if keep:
            self._context.spool.put_signer(pem)

    def _begin(self, begin: Begin) -> None:
        self._admit(begin.term, begin.incarnation)
        key = parse_key(begin.key)
        self._wanted.discard(key)
        stored = self._context.spool.stored(key)
        if stored is not None:
            self._drop(begin.transfer, "HaveIt")
            self._engine.arrived(stored)
            self.follow()  # a parent that was told to stop waits for this
            return
        incoming = self._incoming.get(key)
        if incoming is None:
            try:
                receiver = self._context.spool.receive(key)
            except SpoolError as error:
                self.refusals[type(error).__name__] += 1
                self._drop(begin.transfer, "NoRoom")
                self._soon(self.follow)
                return
            incoming = self._incoming[key] = Incoming(key, begin, receiver)
            template = begin.model_copy(update={"transfer": 0, "trace": self._context.begun(begin)})
            kept = [index for start, end in receiver.have() for index in range(start, end)]
            self._context.distributor.begun(Shelved(key, template, receiver, kept))
        self._heard_s = time.monotonic()
        incoming.begin = begin  # a parent before this one may have said something else
        self._transfers[begin.transfer] = key
        if key.base is not None and key.base == self._told:
            self._told = key.target

    def _manifest(self, transfer: int, envelope: bytes) -> None:
        key = self._transfers.get(transfer)
        incoming = None if key is None else self._incoming.get(key)
        if incoming is None or incoming.committing:
            return
        manifest = verified(incoming, envelope, self._context)
        incoming.envelope, incoming.manifest = envelope, manifest
        kept_bytes = incoming.receiver.kept_bytes
        incoming.receiver.check(manifest)
        if incoming.receiver.kept_bytes < kept_bytes:
            if incoming.key in self._from_before:  # a trainer died before it was durable: its successor wrote it anew
                self.refusals["VoidBuckets"] += 1
                self._void(incoming.key)
                self.follow()
                return
            raise FormatError(f"buckets of {incoming.key} came under other hashes than its manifest names")
        self._check_complete(incoming)

    def _check_complete(self, incoming: Incoming) -> None:
        manifest = incoming.manifest
        if manifest is None or incoming.envelope is None or incoming.committing:
            return
        if incoming.receiver.check(manifest):
            return
        incoming.committing = True
        task = asyncio.create_task(self._commit(incoming, incoming.envelope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, incoming: Incoming, envelope: bytes) -> None:
        """All buckets of a good manifest are here: durable, then onward."""
        try:
            stored = await asyncio.to_thread(incoming.receiver.commit, envelope)
        except SyncError as error:
            self.refusals[type(error).__name__] += 1
            incoming.committing = False
            self._soon(lambda: self._retry_commit(incoming))
            return
        incoming.machine.feed(TransferEvent.ALL_KEPT)
        self._context.received(incoming.key)
        self._incoming.pop(incoming.key, None)
        for transfer in [number for number, key in self._transfers.items() if key == incoming.key]:
            del self._transfers[transfer]
            if self._parent is not None:
                self._parent.finish(transfer)
        self._context.distributor.completed(incoming.key, envelope)
        self._context.distributor.stored(incoming.key)
        self._engine.arrived(stored)
        self._ask_own()

    def _retry_commit(self, incoming: Incoming) -> None:
        if self._incoming.get(incoming.key) is incoming:
            self._check_complete(incoming)

    def _abort(self, transfer: int, reason: str) -> None:
        if reason == GONE:
            self._drop(transfer, GONE)  # its stream found nothing to send; the parent's session has not heard of it
        key = self._transfers.pop(transfer, None)
        incoming = None if key is None else self._incoming.get(key)
        if key is None or incoming is None:
            return
        if incoming.committing:  # all of it came, and a good manifest: it is as good as here
            self.follow()
            return
        del self._incoming[key]
        incoming.machine.feed(TransferEvent.ABANDONED)
        incoming.receiver.abort()
        self._wanted.discard(key)
        self._context.distributor.aborted(key, reason)
        if reason == "NotFound":
            self._engine.no_way(key)
            if key.is_anchor:
                self._soon(self.follow)  # nobody can make one now: asking at once would go round and round
                return
        self.follow()

    def _ask_rest(self, key: ObjectKey) -> None:
        """The missing buckets of a partial object; one that leads nowhere any more is thrown away."""
        head, holds = self._context.versions.head, self._engine.holds()
        left = head is not None and key.lineage != head.lineage
        passed = holds is not None and key.lineage == holds.lineage and key.target_seq <= holds.seq
        passed = passed and key.part is None  # a repair is of what is live
        try:
            receiver = self._context.spool.receive(key)
        except SpoolError:
            return
        if left or passed:
            self._incoming.pop(key, None)
            receiver.abort()
            self._context.distributor.aborted(key, "Void")  # nobody below waits for what will not come
        elif self._parent is not None:
            self._wanted.add(key)
            self._parent.send(Want(key=key.text, have=[list(run) for run in receiver.have()], blocks=None))

    def _ask_own(self) -> None:
        """What the own engine needs and following does not bring: at a relay, or where an object was of no use."""
        engine, own, head = self._engine, self._engine.holds(), self._context.versions.head
        usable = self._keys() - engine.refused
        for repair, blocks in engine.repairs().items():
            if repair not in usable:
                self.request(repair, blocks)
        if self._parent is None or lead_on(own, usable, head) == self._told:
            return
        key = own_want(own, head, usable, out_of_service=engine.out_of_service())
        if key is not None and key not in engine.refused:
            self.request(key, None)

    def _ask_anew(self, *, silent: bool) -> None:
        """As after a new link, but for what is on its way: that is not asked for twice."""
        if silent:
            for transfer, key in list(self._transfers.items()):
                incoming = self._incoming.get(key)
                if incoming is None or not incoming.committing:
                    del self._transfers[transfer]
                    self._drop(transfer, "Stalled")
        coming, partial = set(self._transfers.values()), self._context.spool.partial()
        for key, incoming in list(self._incoming.items()):
            if key not in coming and key not in partial and not incoming.committing:
                del self._incoming[key]  # it made room for others
                self._context.distributor.aborted(key, "Void")
        self._wanted &= coming
        for key in partial:
            held = self._incoming.get(key)
            if key not in coming and (held is None or not held.committing):
                self._ask_rest(key)
        self.follow()
        self._context.distributor.ask_again()

    def _furthest(self) -> VersionRef | None:
        return furthest(self._engine.holds(), self._context.distributor.positions(), self._context.versions.head)

    def _keys(self) -> set[ObjectKey]:
        """Objects that are here, on their way, or asked for."""
        return {*self._incoming, *self._wanted, *(stored.key for stored in self._context.spool.objects())}

    def _soon(self, what: Callable[[], None]) -> None:
        """Tries again after a moment; the one place on this side that does so for objects."""
        asyncio.get_running_loop().call_later(RETRY_S, what)

    def _drop(self, transfer: int, reason: str) -> None:
        if self._parent is not None:
            self._parent.send(Drop(transfer=transfer, reason=reason))

    def _turn_away(self, parent: Parent, reason: str, message: str) -> None:
        if reason == BAD_PARENT:  # counted with the end of the link, as what transport finds
            self._context.versions.doubt()
        else:
            self.refusals[reason] += 1
        parent.close(reason, message, retry=False)
