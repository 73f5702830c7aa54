"""What every child is told: whose signatures count, whose term it is, which versions there are, which is the newest.

Newcomers hear all of it, the others what is new. Sends no objects and decides nothing about them.
"""

from __future__ import annotations

from collections.abc import Iterable

from sync_runtime.session.shelf import Child, index_of, spoken_now
from sync_runtime.session.versions import Versions
from sync_runtime.transport.messages import Head, Signer, Term

MAX_SIGNERS = 4
"""The last ones: a certificate that was replaced four times has ended."""


class News:
    """What is known, for whoever asks or comes later."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._signers: list[str] = []
        self.head: Head | None = None

    def greet(self, link: Child) -> None:
        """All of it, for a child that has just come."""
        for certificates in self._signers:
            link.send(Signer(certificates=certificates))
        self.tell_term([link])
        for lineage in self._versions.lineages:
            self.tell_index([link], lineage)
        # Between a trainer's proof and its first HEAD what its predecessor called newest still is.
        head = None if self.head is None else spoken_now(self.head, self._versions)
        if head is not None:
            link.send(head)

    def add_signer(self, links: Iterable[Child], certificates: str) -> None:
        """A trainer's certificates."""
        if certificates in self._signers:
            return
        self._signers = [*self._signers[1 - MAX_SIGNERS :], certificates]
        for link in links:
            link.send(Signer(certificates=certificates))

    def tell_term(self, links: Iterable[Child]) -> None:
        """The trainer's own word for its term, as it came."""
        proof = self._versions.fence.proof
        if proof is not None:
            for link in links:
                link.send(Term(term=proof.term, incarnation=proof.incarnation, signature=proof.signature))

    def tell_index(self, links: Iterable[Child], lineage: str) -> None:
        """The versions of a lineage."""
        index = index_of(lineage, self._versions)
        if index is not None:
            for link in links:
                link.send(index)

    def set_head(self, links: Iterable[Child], head: Head) -> None:
        """The newest version."""
        self.head = head
        for link in links:
            link.send(head)
