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
        return replace(self, seq=target.seq, digest=target.digest)


def open_position(spool: Spool, fence: Fence, group_uid: str, digest: Digest, layout_hash: str) -> Position:
    """Continues the newest lineage at its newest version, or begins one; a new one is durable on return."""
    if fence.incarnation is None:
        raise SpoolError("a trainer needs a term before it can open a lineage")
    found = (_known(spool, lineage, layout_hash) for lineage in spool.lineages())
    known = [one for one in found if one is not None]
    newest = known[-1] if known else None
    if newest is not None and newest.digests[max(newest.digests)] == digest:
        return Position(newest.lineage, max(newest.digests), digest, True, newest, tuple(known[:-1]))
    origin = None if newest is None else _find(newest, digest)
    seq = 0 if origin is None else origin.seq
    name = lineage_id(group_uid, fence.term, fence.incarnation, f"{digest}/{len(spool.lineages())}")
    spool.put_lineage(
        Lineage(
            lineage=name,
            term=fence.term,
            incarnation=fence.incarnation,
            start=Version(seq, digest),
            layout_hash=layout_hash,
            origin=origin,
            created_unix_ns=time.time_ns(),
        )
    )
    return Position(name, seq, digest, False, KnownLineage(name, origin, {seq: digest}), tuple(known))


def _known(spool: Spool, lineage: Lineage, layout_hash: str) -> KnownLineage | None:
    """None: of another layout; no delta leads from there."""
    if lineage.layout_hash != layout_hash:
        return None
    digests = {seq: record.digest for seq, record in spool.retained(lineage.lineage).items()}
    digests.setdefault(lineage.start.seq, lineage.start.digest)
    return KnownLineage(lineage.lineage, lineage.origin, digests)


def _find(known: KnownLineage, digest: Digest) -> VersionRef | None:
    seqs = [seq for seq, found in known.digests.items() if found == digest]
    return VersionRef(known.lineage, max(seqs)) if seqs else None
