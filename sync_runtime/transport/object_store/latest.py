"""`latest` in a store: read and judged, signed and put on condition. What both sides share of the pointer's handling.

Knows signatures and the seal; what a pointer means is for `fences` and its callers.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sync_runtime.errors import FormatError, SignatureError
from sync_runtime.identity.errors import BadSignatureError, IdentityError
from sync_runtime.identity.signing import Signer, TrustedSigners
from sync_runtime.transport.object_store.errors import StoreError
from sync_runtime.transport.object_store.names import LATEST
from sync_runtime.transport.object_store.pointer import (
    MAX_POINTER_BYTES,
    Pointer,
    open_pointer,
    pack_pointer,
    parse_pointer,
)
from sync_runtime.transport.object_store.ports import Fetched, Objects
from sync_runtime.transport.object_store.seal import Seal

STORE_PREFIX: Final = b"syncgroup store 1\0"
"""Stands before every signed pointer, so that no other signature by the same key can pass for one."""
_LOOKS: Final = 8
"""At a pointer that changes while it is read, before we try again later."""
_FIRST_PAUSE_S: Final = 0.002
"""Between two looks, doubled each time."""


def utc_now() -> datetime.datetime:
    """The wall clock, for certificates only."""
    return datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Tagged:
    """A pointer with the store's tag of it."""

    pointer: Pointer
    tag: str


class Latest:
    """One group's `latest`. Not thread-safe: its owner asks from one thread at a time."""

    def __init__(
        self,
        store: Objects,
        seal: Seal,
        trusted: TrustedSigners,
        now: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._store = store
        self._seal = seal
        self._trusted = trusted
        self._now = now
        self.tags_are_hashes = False
        """Whether this store's tags are known to be hashes: bytes that a tag does not fit are then of another state."""

    def read(self, *, may_have_ended: bool = False) -> Tagged:
        """What lies there, by a trainer of this group; raises StoreMissingError, SyncError.

        `may_have_ended`: also under a certificate whose only fault is its time, for whoever is about to replace it.
        """
        fetched = self._settled(self._store.get(LATEST, self._limit_bytes))
        return Tagged(self._judged(fetched, may_have_ended=may_have_ended), fetched.tag)

    def read_if_changed(self, tag: str | None) -> Tagged | None:
        """The same; None where it still has this tag."""
        fetched = self._store.get_if_changed(LATEST, tag, self._limit_bytes)
        if fetched is None:
            return None
        fetched = self._settled(fetched)
        return Tagged(self._judged(fetched, may_have_ended=False), fetched.tag)

    def has_changed(self, tag: str | None) -> bool:
        """Whether something else lies there than what has this tag, whatever it is."""
        return self._store.get_if_changed(LATEST, tag, self._limit_bytes) is not None

    def swap(self, pointer: Pointer, pen: Signer, tag: str | None) -> str:
        """Signs and puts, on condition, once; the new tag. Raises StoreConflictError, StoreError."""
        document = pointer.to_json()
        parse_pointer(document)  # what no reader could read must not be put
        envelope = pack_pointer(document, pen.sign(document, STORE_PREFIX))
        return self._store.swap(LATEST, bytes(self._seal.close(LATEST, envelope)), tag)

    def _settled(self, fetched: Fetched) -> Fetched:
        """Bytes and tag of one state. A store may answer with the bytes of one and the tag of the next.

        Whoever replaced that would undo what it has not seen, and whoever waited for a change of the tag would wait for
        the one after. Most tags are a hash of the bytes and prove it; in other stores two answers in a row must be the
        same.
        """
        for look in range(_LOOKS):
            if is_hash_of(fetched.tag, fetched.data):
                self.tags_are_hashes = True
                return fetched
            if self.tags_are_hashes:
                time.sleep(_FIRST_PAUSE_S * (1 << look))
            again = self._store.get(LATEST, self._limit_bytes)
            if not self.tags_are_hashes and (again.tag, bytes(again.data)) == (fetched.tag, bytes(fetched.data)):
                return again
            fetched = again
        raise StoreError("the store's pointer changes whenever it is read")

    @property
    def _limit_bytes(self) -> int:
        return MAX_POINTER_BYTES + self._seal.overhead_bytes

    def _judged(self, fetched: Fetched, *, may_have_ended: bool) -> Pointer:
        document, signature = open_pointer(bytes(self._seal.open(LATEST, fetched.data)))
        pointer = parse_pointer(document)
        for chain in pointer.signers:
            try:
                self._trusted.add(chain.encode("ascii"))
            except IdentityError:
                continue  # of a CA that was replaced since: what it signed is refused below, and nothing else
        try:
            self._trusted.verify(document, signature, self._now(), STORE_PREFIX)
        except BadSignatureError as error:
            raise SignatureError(f"the store's pointer is not signed by a trainer of this group: {error}") from error
        except IdentityError as error:
            if not may_have_ended:
                raise SignatureError(f"the store's pointer cannot be trusted now: {error}") from error
        if not pointer.signers:
            raise FormatError("the pointer names no signer")
        return pointer


def is_hash_of(tag: str, data: bytes | memoryview) -> bool:
    """Whether a tag is a hash of these bytes: MD5 in most stores, SHA-256 in our folder. It proves no origin."""
    hashes = (hashlib.sha256(data), hashlib.md5(data, usedforsecurity=False))
    return any(one.hexdigest() in tag for one in hashes)
