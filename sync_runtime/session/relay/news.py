"""What every child is told: whose signatures count, which versions there are, which one is the newest.

Newcomers hear all of it, the others what is new. Sends no objects and decides nothing about them.
"""

from __future__ import annotations

from collections.abc import Iterable

from sync_runtime.session.shelf import Child, index_of
from sync_runtime.session.versions import Versions
from sync_runtime.transport.messages import Head, Signer

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
        for lineage in self._versions.lineages:
            self.tell_index([link], lineage)
        if self.head is not None:
            link.send(self.head)

    def add_signer(self, links: Iterable[Child], certificates: str) -> None:
        """A trainer's certificates."""
        if certificates in self._signers:
            return
        self._signers = [*self._signers[1 - MAX_SIGNERS :], certificates]
        for link in links:
            link.send(Signer(certificates=certificates))

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
