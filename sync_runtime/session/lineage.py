"""Which lineage a trainer continues or begins when it opens with a state (PROTOCOL.md, section 1)."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.manifest import Version
from sync_runtime.bucket.spool import Spool
from sync_runtime.bucket.versions import Lineage
from sync_runtime.errors import SpoolError
from sync_runtime.session.versions import Fence, lineage_id
from sync_runtime.tensors.digest import Digest


@dataclass(frozen=True)
class KnownLineage:
    """A lineage with the digests of its retained versions."""

    lineage: str
    origin: VersionRef | None
    digests: dict[int, Digest]


@dataclass(frozen=True)
class Position:
    """Where a publisher stands."""

    lineage: str
    seq: int
    digest: Digest
    is_continued: bool
    record: KnownLineage
    before: tuple[KnownLineage, ...] = ()
    """Older lineages, oldest first, from which ways lead here."""

    def advanced(self, target: Version) -> Position:
        """After the next version."""
        digests = {**self.record.digests, target.seq: target.digest}
        record = replace(self.record, digests=digests)
        return replace(self, seq=target.seq, digest=target.digest, record=record, is_continued=True)


def newest_position(spool: Spool, layout_hash: str) -> Position | None:
    """The newest version of the newest lineage; None: there is none, or it is of another layout."""
    known = _all_known(spool, layout_hash)
    lineages = spool.lineages()
    if not known or known[-1].lineage != lineages[-1].lineage:
        return None
    newest = known[-1]
    seq = max(newest.digests)
    return Position(newest.lineage, seq, newest.digests[seq], True, newest, tuple(known[:-1]))


def open_position(spool: Spool, fence: Fence, group_uid: str, digest: Digest, layout_hash: str) -> Position:
    """Continues the newest lineage at its newest version, or begins one; a new one is durable on return."""
    if fence.incarnation is None:
        raise SpoolError("a trainer needs a term before it can open a lineage")
    newest = newest_position(spool, layout_hash)
    if newest is not None and newest.digest == digest:
        return newest
    known = _all_known(spool, layout_hash)
    origin = _find(known, digest)
    seq = 0 if origin is None else origin.seq
    others = spool.lineages()
    name = lineage_id(group_uid, fence.term, fence.incarnation, f"{digest}/{len(others)}")
    spool.put_lineage(
        Lineage(
            lineage=name,
            term=fence.term,
            incarnation=fence.incarnation,
            start=Version(seq, digest),
            layout_hash=layout_hash,
            origin=origin,
            created_unix_ns=max([time.time_ns(), *(one.created_unix_ns + 1 for one in others)]),  # clocks jump back
        )
    )
    return Position(name, seq, digest, False, KnownLineage(name, origin, {seq: digest}), tuple(known))


def _all_known(spool: Spool, layout_hash: str) -> list[KnownLineage]:
    """The lineages of this layout, oldest first."""
    found = (_known(spool, lineage, layout_hash) for lineage in spool.lineages())
    return [one for one in found if one is not None]


def _known(spool: Spool, lineage: Lineage, layout_hash: str) -> KnownLineage | None:
    """None: of another layout; no delta leads from there."""
    if lineage.layout_hash != layout_hash:
        return None
    digests = {seq: record.digest for seq, record in spool.retained(lineage.lineage).items()}
    digests.setdefault(lineage.start.seq, lineage.start.digest)
    return KnownLineage(lineage.lineage, lineage.origin, digests)


def _find(known: list[KnownLineage], digest: Digest) -> VersionRef | None:
    """The version with this digest, of several the one in the newest lineage."""
    for one in reversed(known):
        seqs = [seq for seq, found in one.digests.items() if found == digest]
        if seqs:
            return VersionRef(one.lineage, max(seqs))
    return None
