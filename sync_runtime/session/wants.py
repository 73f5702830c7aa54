"""What a member asks its parent for: what follows where it stands, the rest of what is partial, what its engine lacks.

Owns the link upwards and what was said over it: what the parent takes us to hold, what was asked for by name, and when
it was last heard. Takes no messages in: must not know manifests, signatures, or what makes an object whole (`receive`).
"""

from __future__ import annotations

import logging
import time

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.errors import SpoolError
from sync_runtime.session.catch_up.stalls import SILENT_S, Needs, StallWatch
from sync_runtime.session.incoming import Arrivals, Engine, MemberContext, Parent
from sync_runtime.session.position import furthest, lead_on, own_want
from sync_runtime.transport.messages import Drop, Follow, Want

_log = logging.getLogger(__name__)


class Wants:
    """Asks the parent, for the engine here and for everyone below."""

    def __init__(self, context: MemberContext, engine: Engine, arrivals: Arrivals) -> None:
        self._context, self._engine, self._arrivals = context, engine, arrivals
        self._parent: Parent | None = None
        self._wanted: set[ObjectKey] = set()
        self._told: VersionRef | None = None
        """What the parent takes us to hold, with what it has begun to send."""
        self._greeted = False
        """Whether the parent was told what is held."""
        self._stalls = StallWatch()
        self._asked_again = 0
        self._heard_s = time.monotonic()
        """When a transfer began or a bucket came, last."""

    @property
    def parent(self) -> Parent | None:
        """Who is asked."""
        return self._parent

    @property
    def greeted(self) -> bool:
        """Whether the parent was told what is held: nothing is asked of it before."""
        return self._greeted

    @property
    def asked_again(self) -> int:
        """How often housekeeping asked the parent again."""
        return self._asked_again

    # --- the link ----------------------------------------------------------------------------------------------------

    def connected(self, parent: Parent) -> None:
        """Another parent: it was told nothing yet."""
        self._parent, self._told, self._greeted = parent, None, False
        self._wanted.clear()  # of whom it was asked is gone
        self.heard()

    def gone(self) -> None:
        """There is nobody to ask."""
        self._parent = None

    def greet(self) -> None:
        """Asks for the rest of what is partial, then says what is held."""
        self._greeted = True
        for key in self._context.spool.partial():
            self._ask_rest(key)
        self.follow()
        self._context.distributor.ask_again()

    def heard(self) -> None:
        """A transfer began or a bucket came."""
        self._heard_s = time.monotonic()

    def answered(self, key: ObjectKey) -> None:
        """What was asked for comes, or will not come."""
        self._wanted.discard(key)

    def begun(self, key: ObjectKey) -> None:
        """A transfer began: the parent reckons with its end."""
        self.heard()
        if key.base is not None and key.base == self._told:
            self._told = key.target

    def drop(self, transfer: int, reason: str) -> None:
        """Tells the parent that a transfer is not wanted any more."""
        if self._parent is not None:
            self._parent.send(Drop(transfer=transfer, reason=reason))

    # --- asking ------------------------------------------------------------------------------------------------------

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
        self.ask_own()

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
            self.ask_own()  # a relay's own engine may need what its children do not

    def ask_own(self) -> None:
        """What the own engine needs and following does not bring: at a relay, or where an object was of no use."""
        engine, own, head = self._engine, self._engine.holds(), self._context.versions.head
        usable = self._keys() - engine.refused
        for repair, blocks in engine.repairs().items():
            if repair not in usable:
                self.request(repair, blocks)
        if self._parent is None or lead_on(own, usable, head) == self._told:
            return
        key = own_want(own, head, usable, out_of_service=engine.out_of_service(), live=engine.live)
        if key is not None and key not in engine.refused:
            self.request(key, None)

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
            live=engine.live,
        )
        whole = {one.key for one in self._arrivals.objects if one.committing}
        stored = whole | {one.key for one in self._context.spool.objects()}
        stalled = needs.stalled(stored, set() if silent else self._arrivals.coming())
        times = [self._stalls.due(who, now_s, stalled=one) for who, one in stalled.items()]
        if 1 in times:
            _log.warning("behind the newest version, and %s sends nothing: asking again", self._parent.name)
        if any(times):
            self._asked_again += 1
            self._ask_anew(silent=silent)

    def _ask_anew(self, *, silent: bool) -> None:
        """As after a new link, but for what is on its way: that is not asked for twice."""
        arrivals = self._arrivals
        if silent:
            for transfer in arrivals.cut_off():
                self.drop(transfer, "Stalled")
        coming, partial = arrivals.coming(), self._context.spool.partial()
        for incoming in arrivals.objects:
            if incoming.key not in coming and incoming.key not in partial and not incoming.committing:
                arrivals.remove(incoming.key)  # it made room for others
                self._context.distributor.aborted(incoming.key, "Void")
        self._wanted &= coming
        for key in partial:
            held = arrivals.get(key)
            if key not in coming and (held is None or not held.committing):
                self._ask_rest(key)
        self.follow()
        self._context.distributor.ask_again()

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
            self._arrivals.remove(key)
            receiver.abort()
            self._context.distributor.aborted(key, "Void")  # nobody below waits for what will not come
        elif self._parent is not None:
            self._wanted.add(key)
            self._parent.send(Want(key=key.text, have=[list(run) for run in receiver.have()], blocks=None))

    def _furthest(self) -> VersionRef | None:
        return furthest(self._engine.holds(), self._context.distributor.positions(), self._context.versions.head)

    def _keys(self) -> set[ObjectKey]:
        """Objects that are here, on their way, or asked for."""
        arriving = (incoming.key for incoming in self._arrivals.objects)
        return {*arriving, *self._wanted, *(stored.key for stored in self._context.spool.objects())}
