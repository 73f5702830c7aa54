"""The parent's side of a sidecar: which object goes to which child, and when. Trainer and relay alike.

Lives on the brain's loop: no locks, no waiting. It decides from what children say they hold (FOLLOW) and from what is
on the shelf: objects being written, arriving or stored. A bucket is passed on as soon as it is there (cut-through);
nothing is decoded. What is not on the shelf is asked for once, of whoever can make or fetch it; housekeeping asks again
where that led nowhere (`look_after`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.errors import FormatError, TransportError
from sync_runtime.session.catch_up.stalls import StallWatch
from sync_runtime.session.position import lead_on
from sync_runtime.session.relay.economy import Economy
from sync_runtime.session.relay.news import News
from sync_runtime.session.relay.objects import Objects
from sync_runtime.session.shelf import Child, ChildView, Shelved, Supply, covered, offer, spoken_now
from sync_runtime.session.versions import Versions
from sync_runtime.transport.messages import Drop, Follow, Head, LayoutDocument, Message, Status, Want

_log = logging.getLogger(__name__)
MAX_AHEAD = 2
"""Transfers under way to one child before it is given a merged object instead of every single one."""


class Distributor:
    """All children of one sidecar."""

    def __init__(self, versions: Versions, supply: Supply) -> None:
        self._versions, self._supply = versions, supply
        self._children: dict[int, ChildView] = {}
        self._asked: dict[ObjectKey, dict[int, Want | None]] = {}
        """Who waits for an object that nobody here has yet; with a WANT where there was one."""
        self._news = News(versions)
        self._economy = Economy(supply)
        self._objects = Objects(versions, supply, self._economy)
        self._moved: Callable[[], None] = lambda: None
        self._stalls = StallWatch()
        self._draining = False

    @property
    def asked_again(self) -> int:
        """How often housekeeping asked again for what a child waits for."""
        return self._stalls.asked

    @property
    def children(self) -> tuple[ChildView, ...]:
        """All that are connected."""
        return tuple(self._children.values())

    @property
    def is_level(self) -> bool:
        """Whether nothing is on its way to a child, and nobody waits for what is being made."""
        return not any(view.transfers for view in self._children.values()) and not any(self._asked.values())

    def wants_codec(self, codec: str) -> bool:
        """Whether a child would rather have this codec, and its link gains by it."""
        return any(self._economy.codecs_of(view)[0] == codec for view in self._children.values())

    def needed(self) -> list[VersionRef]:
        """The versions that someone below still stands on."""
        found = []
        for view in self._children.values():
            if view.status is not None and view.status.needs is not None:
                found.append(VersionRef(view.status.needs.lineage, view.status.needs.seq))
            elif view.holds is not None:
                found.append(view.holds)
        return found

    def positions(self) -> list[VersionRef]:
        """What children will hold when their transfers are done."""
        return [view.holds for view in self._children.values() if view.following and view.holds is not None]

    def on_moved(self, moved: Callable[[], None]) -> None:
        """Whom to tell when children stand elsewhere."""
        self._moved = moved

    def ask_again(self) -> None:
        """Whoever was asked is gone, and somebody else is there."""
        self._asked = {key: waiting for key, waiting in self._asked.items() if waiting}
        for key, waiting in list(self._asked.items()):
            blocks = next((want.blocks for want in waiting.values() if want is not None), None)
            self._supply.request(key, blocks)

    def look_after(self, now_s: float) -> None:
        """Now and then: who is behind with nothing coming is served again, and what it waits for asked for again."""
        for number, view in list(self._children.items()):
            waits = self._waits(view)
            behind = bool(view.postponed) or (view.following and self._next_key(view, waits) is not None)
            stalled = not self._draining and (bool(waits) or (behind and not view.transfers))
            times = self._stalls.due(number, now_s, stalled=stalled)
            if not times:
                continue
            if times == 1:
                holds = "nothing known" if view.holds is None else f"version {view.holds.seq}"
                _log.warning("%s holds %s and waits for what is not coming: asking again", view.name, holds)
            self._start_postponed(view)
            self._pump(view)
            for key in waits:
                waiting = self._asked.get(key, {})
                if number in waiting:
                    want = waiting[number]
                    self._supply.request(key, None if want is None else want.blocks)

    def drain(self) -> tuple[Child, ...]:
        """Begins nothing new for anyone from now on; the children that need nothing more of what was begun."""
        self._draining = True
        return tuple(view.link for view in self._children.values() if not view.transfers)

    # --- children ----------------------------------------------------------------------------------------------------

    def connected(self, link: Child, name: str) -> None:
        """A child was admitted: it is told what there is."""
        self._children[id(link)] = ChildView(link, name)
        self._news.greet(link)

    def gone(self, link: Child) -> None:
        """Its transfers are over; what it has it will say when it is back."""
        self._children.pop(id(link), None)
        self._stalls.forget(id(link))
        for waiting in self._asked.values():
            waiting.pop(id(link), None)

    def arrived(self, link: Child, message: Message) -> None:
        """A message of a child."""
        view = self._children.get(id(link))
        if view is None:
            return
        match message:
            case Follow():
                self._follow(view, message)
            case Want():
                self._want(view, message)
            case Drop(transfer=transfer):
                view.over(transfer)
                view.following = False  # it says anew what it holds
                link.abort(transfer, "Dropped")
            case Status():
                view.status = message
            case _:
                pass

    def finished(self, link: Child, transfer: int) -> None:
        """Every bucket of a transfer was acknowledged."""
        view = self._children.get(id(link))
        if view is not None and view.over(transfer) is not None:
            self._start_postponed(view)
            self._pump(view)

    def acked(self, link: Child, transfer: int, size_bytes: int) -> None:
        """The child has so much more of a transfer."""
        view = self._children.get(id(link))
        if view is not None and transfer in view.transfers:
            view.acked_bytes[transfer] = view.acked_bytes.get(transfer, 0) + size_bytes

    # --- objects -----------------------------------------------------------------------------------------------------

    def promise(self, key: ObjectKey) -> None:
        """This object will begin soon; whoever prefers its codec waits for it."""
        self._objects.promised.add(key)

    def begun(self, shelved: Shelved) -> None:
        """An object is being written or is arriving."""
        self._objects.promised.discard(shelved.key)
        self._objects.unfinished[shelved.key] = shelved
        if shelved.envelope is None:
            self._economy.begun(shelved.key, time.monotonic())
        self._serve_waiting(shelved)
        for view in self._children.values():
            self._pump(view)

    def bucket(self, key: ObjectKey, index: int) -> None:
        """A bucket of it is there."""
        shelved = self._objects.unfinished.get(key)
        if shelved is None or index in shelved.indices:
            return
        shelved.indices.append(index)
        for view, transfer in self._transfers_of(key):
            view.link.add_bucket(transfer, index)

    def completed(self, key: ObjectKey, envelope: bytes) -> None:
        """It is durable (at the trainer) or has its good manifest (at a relay): the manifest goes on."""
        shelved = self._objects.unfinished.get(key)
        if shelved is None:
            return
        shelved.envelope = envelope
        self._economy.completed(key, time.monotonic())
        for view, transfer in self._transfers_of(key):
            view.link.complete(transfer, envelope)

    def stored(self, key: ObjectKey) -> None:
        """It is in the spool now and need not be kept here."""
        self._objects.unfinished.pop(key, None)

    def made(self, key: ObjectKey) -> None:
        """An object that was asked for is in the spool now."""
        shelved = self._objects.find(key, self._news.head)
        if shelved is None:
            self.missing(key, "NotFound")  # evicted already
            return
        self._economy.made(key)
        self.begun(shelved)
        self.stored(key)

    def aborted(self, key: ObjectKey, reason: str) -> None:
        """It will not become whole: void everywhere."""
        self._objects.unfinished.pop(key, None)
        self._objects.promised.discard(key)
        self.missing(key, reason)
        for view, transfer in self._transfers_of(key):
            view.over(transfer)
            view.link.abort(transfer, reason)
            view.following = False  # wait for its next FOLLOW
        for view in self._children.values():
            self._pump(view)

    def missing(self, key: ObjectKey, reason: str) -> None:
        """Nobody can make it: whoever waits is told."""
        for number, want in self._asked.pop(key, {}).items():
            view = self._children.get(number)
            if view is None or self._versions.fence.speaker is None:
                continue
            if want is None:
                view.following = False  # it says anew what it holds, or that it wants whole weights
            with contextlib.suppress(TransportError):  # it has just ended, or is told when it asks again
                view.link.abort(view.link.begin(offer(key, None, self._versions), None), reason)

    # --- documents ---------------------------------------------------------------------------------------------------

    def add_signer(self, certificates: str) -> None:
        """A trainer's certificates, for all children."""
        self._news.add_signer(self._links(), certificates)

    def tell_term(self) -> None:
        """A trainer proved its term: all children are told."""
        self._news.tell_term(self._links())

    def tell_index(self, lineage: str) -> None:
        """A lineage became known: all children are told of its versions."""
        self._news.tell_index(self._links(), lineage)

    def set_head(self, head: Head) -> None:
        """The newest version, for all children."""
        self._news.set_head(self._links(), head)
        for view in self._children.values():
            self._pump(view)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _follow(self, view: ChildView, message: Follow) -> None:
        view.codecs = tuple(message.codecs)
        view.out_of_service, view.want_anchor = message.out_of_service, message.want_anchor
        view.holds, view.digest = None, message.digest
        if message.lineage is not None and message.seq is not None:
            view.holds = VersionRef(message.lineage, message.seq)
        self._resolve(view)
        # What is under way may have been begun before the child wrote this: it is not sent twice.
        view.holds = lead_on(view.holds, view.transfers.values(), self._versions.head)
        view.following = True
        self._moved()
        self._pump(view)

    def _resolve(self, view: ChildView) -> None:
        """A child may have said its digest before the version was known here."""
        if view.holds is None and view.digest is not None:
            view.holds = self._versions.find(view.digest)

    def _want(self, view: ChildView, message: Want) -> None:
        try:
            key = parse_key(message.key)
        except FormatError:
            return  # transport checked the frame; a key without meaning is answered like one that nobody has
        if key in view.transfers.values():
            return  # asked for again, or for two reasons: it is on its way
        shelved = self._objects.find(key, self._news.head)
        if shelved is not None:
            self._start(view, shelved, covered(message.have))
        else:
            self._ask(key, view, message)

    def _pump(self, view: ChildView) -> None:
        """Starts what can be started for a child."""
        self._resolve(view)
        if self._draining:
            return
        self._supersede(view)
        while view.following and len(view.transfers) < MAX_AHEAD:
            key = self._next_key(view, self._waits(view))
            if key is None or key in view.transfers.values():
                return
            shelved = self._objects.find(key, self._news.head)
            if shelved is None:
                self._ask(key, view, None)
                return
            if not self._start(view, shelved, frozenset()):
                return
            view.holds = key.target
            self._moved()

    def _supersede(self, view: ChildView) -> None:
        """What runs gives way where one merged object brings the newest version sooner (PROTOCOL.md, 3.6)."""
        found = self._economy.replacement(view, self._versions.head)
        if found is None:
            return
        chain, verdict = found
        if verdict.make and self._supply.makes and verdict.key not in self._asked:
            self._asked[verdict.key] = {}
            self._supply.request(verdict.key, None)  # it is judged again by its true size, once it is there
        if verdict.abandons:
            for number in chain.transfers:
                view.over(number)
                view.link.abort(number, "Superseded")
            view.holds = chain.start
            view.superseded += len(chain.transfers)
            self._supply.superseded(view.link, chain.transfers, verdict.reason)

    def _next_key(self, view: ChildView, waits: list[ObjectKey]) -> ObjectKey | None:
        return self._objects.next_key(view, waits, self._news.head)

    def _waits(self, view: ChildView) -> list[ObjectKey]:
        """What a child waits for that nobody here has yet."""
        return [key for key, waiting in self._asked.items() if id(view.link) in waiting]

    def _start(self, view: ChildView, shelved: Shelved, have: frozenset[int]) -> bool:
        """Whether a transfer was begun; a link that has just ended, or has enough to do, takes none."""
        if self._draining:
            return False
        begin = spoken_now(shelved.begin, self._versions)
        if begin is None:  # before a trainer proved its term nothing is offered under it
            view.postponed[shelved.key] = have
            return False
        layout = begin.layout
        if layout not in view.layouts:
            document = self._supply.layout(layout)
            if document is not None:
                view.link.send(LayoutDocument(document))
                view.layouts.add(layout)
        try:
            transfer = view.link.begin(begin, shelved.source)
        except TransportError:
            view.postponed[shelved.key] = have  # of no use where the link has ended: it is forgotten with the child
            return False
        view.transfers[transfer] = shelved.key
        for index in shelved.indices:
            if index not in have:
                view.link.add_bucket(transfer, index)
        if shelved.envelope is not None:
            view.link.complete(transfer, shelved.envelope)
        return True

    def _start_postponed(self, view: ChildView) -> None:
        for key, have in list(view.postponed.items()):
            del view.postponed[key]
            shelved = self._objects.find(key, self._news.head)
            if shelved is None or not self._start(view, shelved, have):
                return

    def _ask(self, key: ObjectKey, view: ChildView, want: Want | None) -> None:
        waiting = self._asked.setdefault(key, {})
        is_first = not waiting
        waiting[id(view.link)] = want
        if is_first:
            self._supply.request(key, None if want is None else want.blocks)

    def _serve_waiting(self, shelved: Shelved) -> None:
        """Who waited gets what it asked for, though something newer may be there: otherwise it might wait for ever."""
        key = shelved.key
        for number, want in self._asked.pop(key, {}).items():
            view = self._children.get(number)
            if view is None or key in view.transfers.values():
                continue
            if want is not None:
                self._start(view, shelved, covered(want.have))
            elif (
                view.following
                and view.holds == key.base
                and (view.want_anchor or not key.is_anchor)
                and self._start(view, shelved, frozenset())
            ):
                view.holds = key.target
                self._moved()

    def _transfers_of(self, key: ObjectKey) -> list[tuple[ChildView, int]]:
        return [
            (view, transfer)
            for view in self._children.values()
            for transfer, sent in view.transfers.items()
            if sent == key
        ]

    def _links(self) -> list[Child]:
        return [view.link for view in self._children.values()]
