"""Brings an object store level with the trainer's spool: versions in order, then the skip deltas that end at them.

Level-triggered: whatever happened, it compares what the spool retains with what the store names and puts the rest. Runs
in a thread of its own; the user's publish waits for none of it. What lies in the store and how is the publisher's
business (STORE.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sync_runtime.bucket.keys import ANCHOR, ObjectKey, VersionRef, delta_key
from sync_runtime.bucket.manifest import Version
from sync_runtime.bucket.spool import Spool
from sync_runtime.bucket.versions import Lineage, VersionRecord
from sync_runtime.errors import ChainError
from sync_runtime.session.catch_up import Maker, key_between
from sync_runtime.transport.object_store.lines import missing_from
from sync_runtime.transport.object_store.ports import Offered
from sync_runtime.transport.object_store.publisher import Beginning, Publication, StorePublisher

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Witness:
    """Who asks and is told about versions on their way into the store; in the thread that calls the feed."""

    trace: Callable[[VersionRef], str] = lambda _: ""
    """Traceparent of a version's publication; empty: it is in no trace."""
    put: Callable[[VersionRef, int, int, float], None] = lambda *_: None
    """The newest version that became visible, bytes and objects that were put for it, seconds."""


class StoreFeed:
    """One spool and one open store. Not thread-safe: one thread calls it."""

    def __init__(self, spool: Spool, maker: Maker, publisher: StorePublisher, witness: Witness | None = None) -> None:
        self._spool, self._maker, self._publisher = spool, maker, publisher
        self._witness = witness or Witness()

    def level(self) -> VersionRef | None:
        """Puts what the store lacks; its newest version then, None where the spool has no lineage yet.

        Raises StoreError (retry helps: call again), StoreAheadError and FenceError (it never will).
        """
        lineage = next(reversed(self._spool.lineages()), None)
        if lineage is None:
            return None
        retained = self._spool.retained(lineage.lineage)
        own = [Version(seq, record.digest) for seq, record in sorted(retained.items())]
        if not own:
            return None
        self._begin(lineage, own)
        missing = missing_from(self._publisher.pointer.lines, lineage.lineage, own)
        if missing:
            self._publish([self._publication(lineage.lineage, seq, retained) for seq in missing])
            self._add_skips()
            self._publisher.retire()
        return self._publisher.pointer.head

    def anchor_due(self, every_versions: int) -> ObjectKey | None:
        """Whole weights that the store should have by now; 0: never. They are made where the weights are."""
        lines = self._publisher.pointer.lines
        if not lines or every_versions <= 0:
            return None
        line = lines[0]
        if line.anchor is not None and line.head.seq - line.anchor.key.target_seq < every_versions:
            return None
        return ObjectKey(line.lineage, None, None, line.head.seq, ANCHOR)

    def put_anchor(self, key: ObjectKey) -> None:
        """An anchor that is in the spool by now; one that was evicted again is made again later."""
        stored = self._spool.stored(key)
        if stored is not None:
            self._publisher.add_anchor(stored)

    def _publish(self, publications: list[Publication]) -> None:
        began_s = time.monotonic()
        self._publisher.publish(publications)
        size_bytes = sum(one.link.size_bytes for one in publications)
        newest = publications[-1].link.key.target
        self._witness.put(newest, size_bytes, len(publications), time.monotonic() - began_s)

    def _begin(self, lineage: Lineage, own: list[Version]) -> None:
        """The lineage where the store has not got it, or has not got on to where the spool begins."""
        lines = self._publisher.pointer.lines
        is_known = bool(lines) and lines[0].lineage == lineage.lineage
        if is_known and lines[0].head.seq >= own[0].seq:
            return
        layout = self._spool.layout(lineage.layout_hash)
        if layout is None:
            raise ChainError(f"the layout of lineage {lineage.lineage} is not in the spool")
        if is_known:
            _log.warning("the store stopped at version %d, the spool begins at %d", lines[0].head.seq, own[0].seq)
        way = None if is_known or not lines else self._way(lines[0].head_ref, VersionRef(lineage.lineage, own[0].seq))
        self._publisher.begin(Beginning(lineage.lineage, own[0], layout, lineage.layout_hash, way, restarts=is_known))

    def _way(self, base: VersionRef, target: VersionRef) -> Offered | None:
        try:
            return self._maker.make(key_between(base, target))
        except ChainError as error:
            _log.info("no way leads from version %d in the store into the new lineage: %s", base.seq, error)
            return None

    def _publication(self, lineage: str, seq: int, retained: Mapping[int, VersionRecord]) -> Publication:
        stored = self._spool.stored(delta_key(lineage, seq - 1, seq))
        if stored is None:
            raise ChainError(f"the delta to version {seq} was evicted before it was in the store")
        return Publication(stored, retained[seq].stored_unix_ns, self._witness.trace(VersionRef(lineage, seq)))

    def _add_skips(self) -> None:
        """A skip delta that cannot be made is left out: readers take what is there."""
        for lineage, base, target in self._publisher.wanted_skips():
            try:
                skip = self._maker.make(delta_key(lineage, base, target))
            except ChainError as error:
                _log.info("no skip delta from %d to %d: %s", base, target, error)
                return  # longer ones need the same links
            self._publisher.add_skip(skip)
