"""A member's session towards its parent: takes objects in, checks them, keeps them, hands them on.

Lives on the brain's loop. Every message passes the fences first; a manifest counts only with the trainer's signature.
What is complete goes to the spool, to the children (`relay`) and to the engine (`members`); nothing is decoded here.
What it asks the parent for, and when, is up to `wants`.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections import Counter
from collections.abc import Callable

from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.bucket.manifest import Manifest
from sync_runtime.errors import DigestError, FenceError, FormatError, SignatureError, SpoolError, SyncError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.session.incoming import Arrivals, Engine, Incoming, MemberContext, Parent, SpoolSink, verified
from sync_runtime.session.machine import TransferEvent
from sync_runtime.session.relay import Shelved
from sync_runtime.session.terms import check_proof
from sync_runtime.session.versions import Proof
from sync_runtime.session.wants import Wants
from sync_runtime.transport.messages import (
    Abort,
    Begin,
    Head,
    Index,
    LayoutDocument,
    ManifestEnvelope,
    Message,
    Signer,
    Term,
)

BAD_PARENT = "BadParent"
LIES = frozenset({BAD_PARENT, "UnprovedTerm"})
"""Why a parent is left of which nothing is believed any more."""
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
        self._arrivals = Arrivals()
        self._wants = Wants(context, engine, self._arrivals)
        self._from_before: set[ObjectKey] = set()
        """Objects of which buckets came before this link: what is wrong with them may not be this parent's doing."""
        self._trainer: tuple[int, str] | None = None
        """Term and incarnation under which what is partial came; None: another process took it."""
        self._left: Parent | None = None
        """The parent that was turned away: what else it says is not heard."""
        self._tasks: set[asyncio.Task[None]] = set()
        context.distributor.on_moved(self._wants.moved)
        for chain in context.spool.signers():
            self._trust(chain.decode("ascii", "replace"), keep=False)

    @property
    def parent(self) -> str | None:
        """Whom it receives from."""
        parent = self._wants.parent
        return None if parent is None else parent.name

    @property
    def incoming(self) -> tuple[Incoming, ...]:
        """What is on its way."""
        return self._arrivals.objects

    @property
    def asked_again(self) -> int:
        """How often housekeeping asked the parent again."""
        return self._wants.asked_again

    def follow(self) -> None:
        """Tells the parent what is held, here and below, so that it pushes what follows."""
        self._wants.follow()

    def request(self, key: ObjectKey, blocks: list[list[int]] | None) -> None:
        """A child wants what is not here: ask the own parent."""
        self._wants.request(key, blocks)

    def moved(self) -> None:
        """Someone below stands elsewhere: a parent that thinks otherwise is told."""
        self._wants.moved()

    def look_after(self, now_s: float) -> None:
        """Now and then: whoever here is behind with nothing coming asks again, however that came about."""
        self._wants.look_after(now_s)

    # --- the link ----------------------------------------------------------------------------------------------------

    def connected(self, parent: Parent) -> None:
        """A parent welcomed us: ask for the rest of what is partial, then say what is held."""
        self._arrivals.unlinked()
        self._wants.connected(parent)
        self._left = None
        self._context.versions.doubt()  # what the last one said without a signature counts no longer
        self._from_before = set(self._context.spool.partial())
        if not self._from_before:
            self._wants.greet()  # otherwise after HEAD, which tells what of it became durable

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
        self._arrivals.remove(key)
        for transfer in self._arrivals.end_all(key):
            self._wants.drop(transfer, "Void")  # otherwise the parent takes it for held
        self._wants.answered(key)
        self._context.distributor.aborted(key, "Void")
        self._context.spool.receive(key).abort()

    def gone(self, parent: Parent) -> None:
        """What is verified stays; the next parent brings the rest."""
        if parent is self._wants.parent:
            self._wants.gone()
            self._arrivals.unlinked()

    def arrived(self, parent: Parent, message: Message) -> None:
        """A message of the parent; what breaks a rule ends the link with a counted reason."""
        if parent is not self._wants.parent or parent is self._left:
            return
        try:
            self._take(message)
        except FenceError as error:
            self._turn_away(parent, type(error).__name__.removesuffix("Error"), str(error))
        except (SignatureError, IdentityError, FormatError) as error:
            self._turn_away(parent, BAD_PARENT, str(error))
        except SpoolError as error:  # no room, or too many objects are partial
            self.refusals[type(error).__name__] += 1
            self._soon(self._wants.follow)

    def bucket_kept(self, key_text: str, index: int) -> None:
        """A bucket is verified and in the spool: pass it on."""
        self._wants.heard()
        try:
            key = parse_key(key_text)
        except FormatError:
            return
        self._context.distributor.bucket(key, index)
        incoming = self._arrivals.get(key)
        if incoming is not None:
            self._check_complete(incoming)

    def bucket_failed(self, parent: Parent, transfer: int, error: Exception) -> None:
        """It could not be kept; transport dropped the transfer. No room: later. Contradictions are somebody's lie."""
        incoming = self._arrivals.brought_by(transfer)
        if parent is not self._wants.parent or incoming is None or incoming.committing:
            return  # of a link or a transfer that is over, or of an object that is whole without it
        key = incoming.key
        if isinstance(error, SyncError):
            self._context.refused(key, error)
        self._arrivals.remove(key)
        for other in self._arrivals.end_all(key):
            if other != transfer:  # a parent that offered it again must not take it for held
                self._wants.drop(other, "NotKept")
        self._context.distributor.aborted(key, "NotKept")
        if isinstance(error, FormatError | DigestError):
            incoming.receiver.abort()  # which of the buckets is the wrong one nobody knows
            blamed = key not in self._from_before
            self._from_before.discard(key)
            if blamed:
                self._turn_away(parent, BAD_PARENT, str(error))
                return
        self.refusals[type(error).__name__] += 1
        self._soon(self._wants.follow)

    async def close(self) -> None:
        """Waits for what is being committed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        context = self._context
        match message:
            case Signer(certificates=certificates):
                self._trust(certificates, keep=True)
            case Term():
                self._prove(Proof(message.term, message.incarnation, message.signature))
            case Index():
                context.versions.fence.check(message.term, message.incarnation)
                start = None if message.start is None else VersionRef(message.start.lineage, message.start.seq)
                context.versions.learn_lineage(message.lineage, message.versions, start=start, current=False)
                context.distributor.tell_index(message.lineage)
                self._engine.learned()
            case Head():
                self._head(message)
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

    def _head(self, message: Head) -> None:
        context = self._context
        context.versions.fence.check(message.term, message.incarnation)
        head, before = VersionRef(message.lineage, message.seq), context.versions.head
        if context.versions.learn_head(head, message.digest, message.step):
            context.distributor.set_head(message)
            self._engine.learned()
            if before is not None and before.lineage != head.lineage:
                self._wants.follow()  # what is on its way into the lineage that ended may be of no use any more
        is_new = (message.term, message.incarnation) != self._trainer
        self._trainer = message.term, message.incarnation
        is_void = is_new and self._void_after(head)
        if not self._wants.greeted:
            self._wants.greet()
        elif is_void:
            self._wants.follow()  # a parent that was told to stop waits for this

    def _prove(self, proof: Proof) -> None:
        """The trainer's own word for its term: the one message that moves the fence."""
        context, now = self._context, datetime.datetime.now(datetime.UTC)
        if proof == context.versions.fence.proof:
            return
        try:
            check_proof(proof, context.versions.fence, context.signers, context.group_uid, now)
        except IdentityError as error:  # its time is over: nobody's lie, and it proves nothing
            if self._wants.parent is not None:
                self._turn_away(self._wants.parent, error.reason, str(error))
            return
        context.versions.admit(proof)
        context.distributor.tell_term()

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
        self._context.versions.fence.check(begin.term, begin.incarnation)
        key = parse_key(begin.key)
        self._wants.answered(key)
        stored = self._context.spool.stored(key)
        if stored is not None:
            self._wants.drop(begin.transfer, "HaveIt")
            self._engine.arrived(stored)
            self._wants.follow()  # a parent that was told to stop waits for this
            return
        incoming = self._arrivals.get(key)
        if incoming is None:
            try:
                receiver = self._context.spool.receive(key)
            except SpoolError as error:
                self.refusals[type(error).__name__] += 1
                self._wants.drop(begin.transfer, "NoRoom")
                self._soon(self._wants.follow)
                return
            incoming = Incoming(key, begin, receiver)
            self._arrivals.add(incoming)
            template = begin.model_copy(update={"transfer": 0, "trace": self._context.begun(begin)})
            kept = [index for start, end in receiver.have() for index in range(start, end)]
            self._context.distributor.begun(Shelved(key, template, receiver, kept))
        incoming.begin = begin  # a parent before this one may have said something else
        self._arrivals.began(begin.transfer, key)
        self._wants.begun(key)

    def _manifest(self, transfer: int, envelope: bytes) -> None:
        incoming = self._arrivals.brought_by(transfer)
        if incoming is None or incoming.committing:
            return
        manifest = self._verified(incoming, envelope)
        incoming.envelope, incoming.manifest = envelope, manifest
        kept_bytes = incoming.receiver.kept_bytes
        incoming.receiver.check(manifest)
        if incoming.receiver.kept_bytes < kept_bytes:
            if incoming.key in self._from_before:  # a trainer died before it was durable: its successor wrote it anew
                self.refusals["VoidBuckets"] += 1
                self._void(incoming.key)
                self._wants.follow()
                return
            raise FormatError(f"buckets of {incoming.key} came under other hashes than its manifest names")
        self._check_complete(incoming)

    def _verified(self, incoming: Incoming, envelope: bytes) -> Manifest:
        began_s = time.monotonic()
        try:
            manifest = verified(incoming, envelope, self._context)
        except (SyncError, IdentityError) as error:
            self._context.refused(incoming.key, error)
            raise
        self._context.verified(incoming.key, int((time.monotonic() - began_s) * 1e6))
        return manifest

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
            self._context.refused(incoming.key, error)
            incoming.committing = False
            self._soon(lambda: self._retry_commit(incoming))
            return
        incoming.machine.feed(TransferEvent.ALL_KEPT)
        self._context.received(incoming.key)
        self._arrivals.remove(incoming.key)
        for transfer in self._arrivals.end_all(incoming.key):
            if self._wants.parent is not None:
                self._wants.parent.finish(transfer)
        self._context.distributor.completed(incoming.key, envelope)
        self._context.distributor.stored(incoming.key)
        self._engine.arrived(stored)
        self._wants.ask_own()

    def _retry_commit(self, incoming: Incoming) -> None:
        if self._arrivals.get(incoming.key) is incoming:
            self._check_complete(incoming)

    def _abort(self, transfer: int, reason: str) -> None:
        if reason == GONE:  # its stream found nothing to send; the parent's session has not heard of it
            self._wants.drop(transfer, GONE)
        incoming = self._arrivals.brought_by(transfer)
        self._arrivals.ended(transfer)
        if incoming is None:
            return
        if incoming.committing:  # all of it came, and a good manifest: it is as good as here
            self._wants.follow()
            return
        key = incoming.key
        self._arrivals.remove(key)
        incoming.machine.feed(TransferEvent.ABANDONED)
        incoming.receiver.abort()
        self._wants.answered(key)
        self._context.distributor.aborted(key, reason)
        if reason == "NotFound":
            self._engine.no_way(key)
            if key.is_anchor:
                self._soon(self._wants.follow)  # nobody can make one now: asking at once would go round and round
                return
        self._wants.follow()

    def _soon(self, what: Callable[[], None]) -> None:
        """Tries again after a moment; the one place on this side that does so for objects."""
        asyncio.get_running_loop().call_later(RETRY_S, what)

    def _turn_away(self, parent: Parent, reason: str, message: str) -> None:
        self._left = parent
        if reason in LIES:
            self._context.versions.doubt()
        if reason != BAD_PARENT:  # that is counted with the end of the link, as what transport finds
            self.refusals[reason] += 1
        parent.close(reason, message, retry=False)
