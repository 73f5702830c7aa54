"""What a sidecar knows about versions: terms, lineages, digests, the newest one. Pure.

Everything learned from elsewhere passes the fences of PROTOCOL.md, section 1, first. Knows no spool and no sockets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.errors import FormatError, OldTermError, TermConflictError

MAX_LINEAGES = 8
"""Lineages that are remembered; of older ones no way leads into the current one any more."""
MAX_VERSIONS = 10_000
_LINEAGE_PREFIX = b"syncgroup lineage 1\0"


def lineage_id(group_uid: str, term: int, incarnation: str, start_digest: str) -> str:
    """The name of a lineage that begins under this term with this state."""
    words = (group_uid, str(term), incarnation, start_digest)
    return hashlib.sha256(_LINEAGE_PREFIX + b"\0".join(word.encode() for word in words)).hexdigest()[:32]


@dataclass
class Fence:
    """The newest term that was seen, and whose it is."""

    term: int = 0
    incarnation: str | None = None

    def admit(self, term: int, incarnation: str) -> bool:
        """Whether this begins a new term; raises OldTermError or TermConflictError and changes nothing."""
        if term < self.term:
            raise OldTermError(f"term {term} was replaced by term {self.term}")
        if term == self.term and self.incarnation not in (None, incarnation):
            raise TermConflictError(f"two trainers claim term {term}; give one of them a larger term")
        is_new = (term, incarnation) != (self.term, self.incarnation)
        self.term, self.incarnation = term, incarnation
        return is_new


@dataclass
class Lineage:
    """A line of versions."""

    start: VersionRef | None
    """The version of another lineage that it began from."""
    digests: dict[int, str] = field(default_factory=dict)
    """By seq."""

    @property
    def newest(self) -> int | None:
        """Its newest seq."""
        return max(self.digests, default=None)


class Versions:
    """All that is known; the newest lineage last."""

    def __init__(self) -> None:
        self.fence = Fence()
        self._lineages: dict[str, Lineage] = {}
        self._head: VersionRef | None = None

    @property
    def head(self) -> VersionRef | None:
        """The newest version."""
        return self._head

    @property
    def lineages(self) -> Mapping[str, Lineage]:
        """By id, oldest first."""
        return MappingProxyType(self._lineages)

    def digest(self, version: VersionRef | None) -> str | None:
        """A version's digest, if it is known."""
        lineage = self._lineages.get(version.lineage) if version else None
        return lineage.digests.get(version.seq) if lineage and version else None

    def find(self, digest: str) -> VersionRef | None:
        """The version with this digest; of several the newest."""
        for name in reversed(self._lineages):
            seqs = [seq for seq, known in self._lineages[name].digests.items() if known == digest]
            if seqs:
                return VersionRef(name, max(seqs))
        return None

    def learn_lineage(
        self, name: str, rows: Iterable[tuple[int, str]], *, start: VersionRef | None, current: bool = True
    ) -> None:
        """Takes over the index of a lineage; a current one becomes the newest."""
        known = self._lineages.pop(name, None)
        lineage = known or Lineage(start)
        for seq, digest in rows:
            _check_same(lineage, seq, digest)
            lineage.digests[seq] = digest
        for seq in sorted(lineage.digests)[:-MAX_VERSIONS]:
            del lineage.digests[seq]
        if current:
            self._lineages[name] = lineage
            self._head = self._newest(name)
        else:
            self._lineages = {name: lineage, **self._lineages}
        while len(self._lineages) > MAX_LINEAGES:
            del self._lineages[next(iter(self._lineages))]

    def learn_head(self, version: VersionRef, digest: str) -> bool:
        """Whether this is news; an older one than the head is only remembered."""
        lineage = self._lineages.get(version.lineage)
        if lineage is None:
            self.learn_lineage(version.lineage, [(version.seq, digest)], start=None)
            return True
        _check_same(lineage, version.seq, digest)
        lineage.digests[version.seq] = digest
        if self._head is not None and (version.lineage != self._head.lineage or version.seq <= self._head.seq):
            return False
        self._head = version
        return True

    def forget(self, versions: Iterable[VersionRef]) -> None:
        """Versions that nothing can be made from any more."""
        for version in versions:
            lineage = self._lineages.get(version.lineage)
            if lineage is not None and version != self._head:
                lineage.digests.pop(version.seq, None)

    def _newest(self, name: str) -> VersionRef | None:
        newest = self._lineages[name].newest
        return None if newest is None else VersionRef(name, newest)


def _check_same(lineage: Lineage, seq: int, digest: str) -> None:
    known = lineage.digests.get(seq)
    if known is not None and known != digest:
        raise FormatError(f"version {seq} is said to have two digests, {known} and {digest}")
