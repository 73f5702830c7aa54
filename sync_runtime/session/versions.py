"""What a sidecar knows about versions: terms, lineages, digests, the newest one. Pure.

Everything learned from elsewhere passes the fences of PROTOCOL.md, section 1, first. Knows no spool and no sockets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.errors import FormatError, OldTermError, TermConflictError, UnprovedTermError

MAX_LINEAGES = 8
"""Lineages that are remembered; of older ones no way leads into the current one any more."""
MAX_VERSIONS = 10_000
_LINEAGE_PREFIX = b"syncgroup lineage 1\0"


def lineage_id(group_uid: str, term: int, incarnation: str, start_digest: str) -> str:
    """The name of a lineage that begins under this term with this state."""
    words = (group_uid, str(term), incarnation, start_digest)
    return hashlib.sha256(_LINEAGE_PREFIX + b"\0".join(word.encode() for word in words)).hexdigest()[:32]


@dataclass(frozen=True)
class Proof:
    """A trainer's signature under its term, in hex; `terms` makes and judges it."""

    term: int
    incarnation: str
    signature: str


@dataclass
class Fence:
    """The newest term that was proved, or that the plan names, and whose it is."""

    term: int = 0
    incarnation: str | None = None
    """None: the term is the plan's, and its trainer was not heard yet."""
    proof: Proof | None = None

    @property
    def speaker(self) -> tuple[int, str] | None:
        """Term and incarnation that others are told; None: its trainer was not heard, and nothing can be said."""
        return None if self.incarnation is None else (self.term, self.incarnation)

    def admit(self, term: int, incarnation: str, proof: Proof | None = None) -> bool:
        """Whether this begins a new term; raises OldTermError or TermConflictError and changes nothing.

        For a trainer's own term, and for one that it has proved; anything else is somebody's word: `check`.
        """
        self._refuse(term, incarnation)
        is_new = (term, incarnation) != (self.term, self.incarnation)
        self.term, self.incarnation = term, incarnation
        if is_new or proof is not None:
            self.proof = proof
        return is_new

    def check(self, term: int, incarnation: str) -> None:
        """What somebody says of the term must be what is known of it; raises FenceError. Nothing moves."""
        self._refuse(term, incarnation)
        if (term, incarnation) != (self.term, self.incarnation):
            raise UnprovedTermError(f"term {term} of {incarnation} is somebody's word: no trainer has signed it")

    def appoint(self, term: int) -> None:
        """The plan's term, which comes from the operator; a smaller one is an old plan's."""
        if term > self.term:
            self.term, self.incarnation, self.proof = term, None, None

    def _refuse(self, term: int, incarnation: str) -> None:
        if term < self.term:
            raise OldTermError(f"term {term} was replaced by term {self.term}")
        if term == self.term and self.incarnation not in (None, incarnation):
            raise TermConflictError(f"two trainers claim term {term}; give one of them a larger term")


@dataclass
class Lineage:
    """A line of versions."""

    start: VersionRef | None
    """The version of another lineage that it began from."""
    digests: dict[int, str] = field(default_factory=dict)
    """By seq."""
    proved: set[int] = field(default_factory=set)
    """Seqs whose digest a signed manifest names; the others are a parent's word."""

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
        self._head_is_old = False
        """A new term began: whatever its trainer calls newest is, wherever that is."""
        self._step: int | None = None

    @property
    def head(self) -> VersionRef | None:
        """The newest version."""
        return self._head

    @property
    def lineages(self) -> Mapping[str, Lineage]:
        """By id, oldest first."""
        return MappingProxyType(self._lineages)

    def admit(self, proof: Proof) -> None:
        """Takes a proved term over or raises; a new term's trainer may go on from any version."""
        if self.fence.admit(proof.term, proof.incarnation, proof):
            self._head_is_old = True

    def digest(self, version: VersionRef | None) -> str | None:
        """A version's digest, if it is known."""
        lineage = self._lineages.get(version.lineage) if version else None
        return lineage.digests.get(version.seq) if lineage and version else None

    def step(self, version: VersionRef | None) -> int | None:
        """The trainer's number of the newest version; of others it is not kept."""
        return self._step if version is not None and version == self._head else None

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
        """Takes over the index of a lineage. `current`: the trainer itself says that this one is the newest now."""
        lineage = self._lineages.get(name)
        if lineage is None:
            lineage = self._lineages[name] = Lineage(start)
            self._sort_in(name)
        lineage.start = lineage.start or start
        for seq, digest in rows:
            _claim(lineage, seq, digest)
        for seq in sorted(lineage.digests)[:-MAX_VERSIONS]:
            del lineage.digests[seq]
        if current:
            self._lineages[name] = self._lineages.pop(name)
            self._set_head(self._newest(name), None)
        while len(self._lineages) > MAX_LINEAGES:
            kept = {name, "" if self._head is None else self._head.lineage}
            del self._lineages[next(one for one in self._lineages if one not in kept)]

    def learn_head(self, version: VersionRef, digest: str, step: int | None = None) -> bool:
        """Whether this is news. An older one than the head, or one of a lineage that was left, is only remembered."""
        self.learn_lineage(version.lineage, [(version.seq, digest)], start=None, current=False)
        head = self._head
        if head is not None and not self._head_is_old:
            order = list(self._lineages)
            if head.lineage in order and order.index(version.lineage) < order.index(head.lineage):
                return False
            if version.lineage == head.lineage and version.seq <= head.seq:
                if version == head:
                    self._step = self._step if step is None else step
                return False
        self._lineages[version.lineage] = self._lineages.pop(version.lineage)
        self._set_head(version, step)
        return True

    def prove(self, version: VersionRef, digest: str) -> None:
        """A manifest with the trainer's signature names this digest: it counts more than anybody's word."""
        self.learn_lineage(version.lineage, (), start=None, current=False)
        lineage = self._lineages[version.lineage]
        lineage.digests[version.seq] = digest
        lineage.proved.add(version.seq)

    def doubt(self) -> None:
        """Forgets what nobody signed: whose word it was is gone. The next parent tells again what is newest."""
        for lineage in self._lineages.values():
            lineage.digests = {seq: digest for seq, digest in lineage.digests.items() if seq in lineage.proved}
        self._head_is_old = True

    def forget(self, versions: Iterable[VersionRef]) -> None:
        """Versions that nothing can be made from any more."""
        for version in versions:
            lineage = self._lineages.get(version.lineage)
            if lineage is not None and version != self._head:
                lineage.digests.pop(version.seq, None)
                lineage.proved.discard(version.seq)

    def _set_head(self, version: VersionRef | None, step: int | None) -> None:
        self._head, self._step, self._head_is_old = version, step, False

    def _sort_in(self, name: str) -> None:
        """A lineage that others began from is older than they are."""
        younger: list[str] = []
        found = [name]
        while found:  # each at most once: hostile starts may run in a circle
            older = found.pop()
            for one, known in self._lineages.items():
                if known.start is not None and known.start.lineage == older and one not in (name, *younger):
                    younger.append(one)
                    found.append(one)
        for one in younger:
            self._lineages[one] = self._lineages.pop(one)

    def _newest(self, name: str) -> VersionRef | None:
        newest = self._lineages[name].newest
        return None if newest is None else VersionRef(name, newest)


def _claim(lineage: Lineage, seq: int, digest: str) -> None:
    """Somebody's word for a digest; it must not contradict a signed one."""
    known = lineage.digests.get(seq)
    if known is not None and known != digest and seq in lineage.proved:
        raise FormatError(f"version {seq} is said to have the digest {digest}; its trainer signed {known}")
    lineage.digests[seq] = digest
