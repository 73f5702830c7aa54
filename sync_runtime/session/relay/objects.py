"""What is here to be sent, and which of it a child gets next.

Objects are being written, arriving, or stored. Knows what a child holds and waits for, not how anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from sync_runtime.bucket.keys import ANCHOR, FAST, TIGHT, ObjectKey, VersionRef, delta_key
from sync_runtime.session.catch_up import key_between
from sync_runtime.session.position import next_step
from sync_runtime.session.relay.economy import Economy
from sync_runtime.session.shelf import ChildView, Shelved, Supply, offer
from sync_runtime.session.versions import Versions
from sync_runtime.transport.messages import Head


class Objects:
    """All objects of one sidecar that a child could get."""

    def __init__(self, versions: Versions, supply: Supply, economy: Economy) -> None:
        self._versions, self._supply, self._economy = versions, supply, economy
        self.unfinished: dict[ObjectKey, Shelved] = {}
        """Those that are being written or are arriving; stored ones are looked up."""
        self.promised: set[ObjectKey] = set()
        """Those that will begin soon."""

    def find(self, key: ObjectKey, head: Head | None) -> Shelved | None:
        """An object, wherever it is; one that leads to the newest version carries the trace of its HEAD."""
        shelved = self.unfinished.get(key)
        if shelved is not None:
            return shelved
        stored = self._supply.stored(key)
        if stored is None:
            return None
        trace = head.trace if head is not None and key.target == self._versions.head else ""
        template = offer(key, stored, self._versions, trace)
        return Shelved(key, template, stored, list(range(stored.num_buckets)), stored.envelope)

    def next_key(self, view: ChildView, waits: Sequence[ObjectKey], newest: Head | None) -> ObjectKey | None:
        """The object that brings a child on; None: there is none, or it comes by itself. It may not be here yet."""
        head, holds = self._versions.head, view.holds
        if head is None:
            return None
        if holds is None:
            wants = view.want_anchor and view.out_of_service and not _anchor_is_coming(view, waits, head.lineage)
            return ObjectKey(head.lineage, None, None, head.seq, ANCHOR) if wants else None
        if holds == head:
            return self._preferred(view, VersionRef(head.lineage, head.seq + 1), newest, only_here=True)
        if holds.lineage != head.lineage:
            # Where no way leads from there, the trainer says so, and an anchor follows.
            return self._led_on(holds, head) or key_between(holds, head)
        if holds.seq > head.seq:
            return None
        if holds.seq + 1 == head.seq:
            return self._preferred(view, head, newest, only_here=False)
        return self._led_on(holds, head) or key_between(holds, head)

    def _led_on(self, holds: VersionRef, head: VersionRef) -> ObjectKey | None:
        """The next object of a chain that is here; None: there is none, or whoever is asked merges."""
        chain = self._supply.chain()
        return next_step(holds, chain, head) if chain else None

    def _preferred(
        self, view: ChildView, target: VersionRef, newest: Head | None, *, only_here: bool
    ) -> ObjectKey | None:
        """The single delta in the codec that the child likes best and that is there, or will soon be."""
        for codec in self._economy.codecs_of(view):
            if codec not in (FAST, TIGHT):
                continue
            key = delta_key(target.lineage, target.seq - 1, target.seq, codec)
            if key in self.promised:
                return None
            if self.find(key, newest) is not None:
                return key
        return None if only_here else delta_key(target.lineage, target.seq - 1, target.seq)


def _anchor_is_coming(view: ChildView, waits: Sequence[ObjectKey], lineage: str) -> bool:
    """Whole weights of an older version are as good, with the deltas that follow: one anchor at a time."""
    keys = (*view.transfers.values(), *waits)
    return any(key.is_anchor and key.part is None and key.lineage == lineage for key in keys)
