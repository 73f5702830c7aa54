"""Moves a group's pointer: claims it when a publisher opens, then puts one after the other, each on the last one's tag.

A conditional put that was refused or not answered is never repeated blindly: what lies there decides (`fences`). Knows
nothing of objects; the lines are its caller's.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from sync_runtime.errors import FormatError, SignatureError
from sync_runtime.identity.signing import Signer
from sync_runtime.transport.object_store.errors import (
    StoreConflictError,
    StoreDamagedError,
    StoreError,
    StoreForeignError,
    StoreMissingError,
)
from sync_runtime.transport.object_store.fences import Claim, Found, check_claimable, judge_found
from sync_runtime.transport.object_store.latest import Latest, Tagged
from sync_runtime.transport.object_store.lines import Lines
from sync_runtime.transport.object_store.patience import Patience, may_pass
from sync_runtime.transport.object_store.pointer import MAX_SIGNERS, Pointer

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Writer:
    """Who writes the pointer, and with which words."""

    claim: Claim
    proof: str
    """The signature for its term, in hexadecimal."""
    pen: Signer
    older_signers: tuple[str, ...] = ()


class PointerMover:
    """The pointer as one process writes it. Not thread-safe: the publisher's lock is around it."""

    def __init__(self, latest: Latest, writer: Writer, patience: Patience) -> None:
        self._latest = latest
        self._writer = writer
        self._patience = patience
        self._tag: str | None = None
        self._pointer: Pointer | None = None
        self._revision = 0
        """The largest that was ever tried: an attempt without an answer may have landed."""
        self.lost_writes = 0
        """Acknowledged pointers that the store forgot again."""

    @property
    def pointer(self) -> Pointer:
        """The one that lies there, as far as is known; raises StoreError before `claim`."""
        if self._pointer is None:
            raise StoreError("the store is not open")
        return self._pointer

    def claim(self) -> Pointer:
        """Takes the pointer over, with the lines that it has; raises FenceError, StoreForeignError, StoreError."""
        for _ in self._patience.attempts():
            found = self._read()
            if found is not None:
                check_claimable(found.pointer, self._writer.claim)
                self._revision = max(self._revision, found.pointer.revision)
                if found.pointer.place == self._writer.claim.place:
                    return self._landed(found.pointer, found.tag)  # our own claim, whose answer was lost
            before = None if found is None else found.pointer
            pointer = self._next(() if before is None else before.lines, b"" if before is None else before.manifest)
            if before is not None:
                pointer = replace(pointer, signers=_joined(pointer.signers, before.signers))
            try:
                return self._landed(
                    pointer, self._latest.swap(pointer, self._writer.pen, None if found is None else found.tag)
                )
            except StoreConflictError:
                continue  # somebody wrote between reading and putting
            except StoreError as error:
                if not may_pass(error):
                    raise
        raise StoreError("the store's pointer could not be claimed: it changes too often, or the store is away")

    def move(self, lines: Lines, manifest: bytes) -> Pointer:
        """Puts the next pointer; raises FenceError where another trainer has taken over, StoreError where it is away.

        After a StoreError the pointer may lie there or not: the next move finds out.
        """
        pointer = self._next(lines, manifest)
        pointer = replace(pointer, signers=_joined(pointer.signers, self.pointer.signers))
        for _ in self._patience.attempts():
            try:
                return self._landed(pointer, self._latest.swap(pointer, self._writer.pen, self._tag))
            except StoreConflictError:
                _log.info("the store refused revision %d of the pointer: reading what lies there", pointer.revision)
            except StoreError as error:
                if not may_pass(error):
                    raise
            if self._find_out(pointer):
                return self.pointer
        raise StoreError(f"revision {pointer.revision} of the pointer could not be put: the store is away")

    def mend(self) -> bool:
        """Looks whether the pointer still lies there, and puts it again where not; True: it had to."""
        if self._is_there():
            return False
        pointer = self.pointer
        self.move(pointer.lines, pointer.manifest)
        return True

    def renew(self, writer: Writer) -> None:
        """From now on with other words: a renewed certificate. The next move says so."""
        self._writer = writer

    def still_mine(self) -> bool:
        """Whether the pointer that lies there is the last one put."""
        return not self._latest.has_changed(self._tag)

    def _is_there(self) -> bool:
        try:
            return self.still_mine()
        except StoreMissingError:
            return False

    def _find_out(self, put: Pointer) -> bool:
        """Reads what lies there after an attempt; True: it is what was put."""
        try:
            found = self._read()
        except StoreError as error:
            if not may_pass(error):
                raise
            return False
        if found is None:
            self._tag = None
            self.lost_writes += 1
            return False
        if judge_found(found.pointer, put) is Found.MINE:
            self._landed(put, found.tag)
            return True
        if self._tag is not None and found.tag != self._tag and found.pointer.revision < self.pointer.revision:
            self.lost_writes += 1
            _log.warning("the store went back to revision %d of the pointer: putting it again", found.pointer.revision)
        self._tag = found.tag
        return False

    def _read(self) -> Tagged | None:
        try:
            return self._latest.read(may_have_ended=True)
        except StoreMissingError:
            return None
        except (FormatError, SignatureError, StoreDamagedError) as error:
            raise StoreForeignError(
                f"what lies under this prefix is not a pointer of this group ({error}): give the group another prefix, "
                "or remove it"
            ) from error

    def _next(self, lines: Lines, manifest: bytes) -> Pointer:
        claim = self._writer.claim
        self._revision += 1
        return Pointer(
            group=claim.group,
            term=claim.term,
            incarnation=claim.incarnation,
            proof=self._writer.proof,
            signers=_joined((self._writer.pen.chain_pem.decode("ascii"),), self._writer.older_signers),
            revision=self._revision,
            place=claim.place,
            lines=lines,
            manifest=manifest,
        )

    def _landed(self, pointer: Pointer, tag: str) -> Pointer:
        self._pointer, self._tag = pointer, tag
        return pointer


def _joined(own: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """This trainer's chain first; those of older manifests behind it, the oldest left out beyond the limit."""
    return tuple(dict.fromkeys((*own, *others)))[:MAX_SIGNERS]
