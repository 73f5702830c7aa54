"""What a receiving session works with: its parent, its engine, objects on their way in, and the check of a manifest."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from sync_runtime.bucket.keys import ObjectKey, VersionRef, check_manifest, parse_key
from sync_runtime.bucket.manifest import Manifest, open_envelope, parse_manifest
from sync_runtime.bucket.spool import ObjectReceiver, Spool, StoredObject
from sync_runtime.errors import FormatError, SignatureError, SyncError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.signing import TrustedSigners
from sync_runtime.session.machine import Machine, TransferEffect, TransferEvent, TransferState, transfer_machine
from sync_runtime.session.relay import Distributor
from sync_runtime.session.versions import Versions
from sync_runtime.transport.messages import Begin, Bounds, Message


class Parent(Protocol):
    """A link to a parent, as far as it is used here."""

    @property
    def name(self) -> str:
        """Its member name."""

    def send(self, message: Message) -> None:
        """A control message."""

    def finish(self, transfer: int) -> None:
        """Nothing more is expected of this transfer."""

    def close(self, reason: str, message: str, *, retry: bool = True) -> None:
        """Ends the link; the dialler goes to the next parent."""


class Engine(Protocol):
    """The member's own engine, which wants what arrives."""

    def holds(self) -> VersionRef | None:
        """The version it holds, or will hold once all that is staged is activated; None: unknown."""

    @property
    def live(self) -> VersionRef | None:
        """The version it runs, though no delta may lead on from it; None: unknown."""

    def digest(self) -> str | None:
        """The full digest of the weights it opened with, where that is no known version."""

    @property
    def refused(self) -> Set[ObjectKey]:
        """Objects that turned out to be of no use to it."""

    def out_of_service(self) -> bool:
        """Whether it may be given an anchor."""

    def learned(self) -> None:
        """Versions became known: the digest may be one of them."""

    def arrived(self, stored: StoredObject) -> None:
        """An object is complete and durable."""

    def no_way(self, key: ObjectKey) -> None:
        """Nobody can make this object."""

    def repairs(self) -> Mapping[ObjectKey, list[list[int]]]:
        """Anchors of some blocks that live weights are to be mended with, and the ranges of these blocks."""


@dataclass
class Incoming:
    """An object on its way in."""

    key: ObjectKey
    begin: Begin
    receiver: ObjectReceiver
    machine: Machine[TransferState, TransferEvent, TransferEffect] = field(default_factory=transfer_machine)
    envelope: bytes | None = None
    manifest: Manifest | None = None
    committing: bool = False


class Arrivals:
    """Objects on their way in, and the transfers of the link that bring them. An object outlives its transfers."""

    def __init__(self) -> None:
        self._incoming: dict[ObjectKey, Incoming] = {}
        self._transfers: dict[int, ObjectKey] = {}

    @property
    def objects(self) -> tuple[Incoming, ...]:
        """What is on its way, from whichever parent it began to come."""
        return tuple(self._incoming.values())

    def coming(self) -> set[ObjectKey]:
        """Objects that the parent of this link is sending."""
        return set(self._transfers.values())

    def get(self, key: ObjectKey) -> Incoming | None:
        """This object, where it is on its way."""
        return self._incoming.get(key)

    def brought_by(self, transfer: int) -> Incoming | None:
        """The object that a transfer brings."""
        key = self._transfers.get(transfer)
        return None if key is None else self._incoming.get(key)

    def add(self, incoming: Incoming) -> None:
        """An object begins to come."""
        self._incoming[incoming.key] = incoming

    def remove(self, key: ObjectKey) -> Incoming | None:
        """An object is here, or will not come."""
        return self._incoming.pop(key, None)

    def began(self, transfer: int, key: ObjectKey) -> None:
        """The parent sends this object under this number."""
        self._transfers[transfer] = key

    def ended(self, transfer: int) -> None:
        """It sends nothing more under this number."""
        self._transfers.pop(transfer, None)

    def end_all(self, key: ObjectKey) -> list[int]:
        """Forgets every transfer of an object; their numbers."""
        return self._forget([number for number, one in self._transfers.items() if one == key])

    def cut_off(self) -> list[int]:
        """Forgets the transfers of all that is not whole yet; their numbers."""
        whole = {key for key, incoming in self._incoming.items() if incoming.committing}
        return self._forget([number for number, key in self._transfers.items() if key not in whole])

    def unlinked(self) -> None:
        """The link ended, and every transfer with it."""
        self._transfers.clear()

    def _forget(self, transfers: list[int]) -> list[int]:
        for transfer in transfers:
            del self._transfers[transfer]
        return transfers


class SpoolSink:
    """Puts buckets into the spool, in the streams' threads. A bucket may come before the loop has seen its BEGIN."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def put(self, *, transfer: int, key: str, index: int, offset: int, data: memoryview, sha256: bytes) -> bool:
        """Keeps a bucket; False: it was there."""
        return self._spool.keep(parse_key(key), index, offset, data, sha256, is_verified=True)


@dataclass(frozen=True)
class MemberContext:
    """What the session works with."""

    spool: Spool
    versions: Versions
    distributor: Distributor
    signers: TrustedSigners
    group_uid: str
    codecs: Callable[[], tuple[str, ...]]
    """What to ask the parent for, best first."""
    bounds: Callable[[], tuple[Bounds | None, Bounds | None]]
    """Of the link's streams and bucket sizes, as the plan has them."""
    begun: Callable[[Begin], str]
    """Told of every transfer; gives the line that children join the version's trace by."""
    received: Callable[[ObjectKey], None]
    """Told of every object that is complete and durable."""
    verified: Callable[[ObjectKey, int], None] = lambda key, spent_us: None
    """Told of every good manifest, and how many microseconds its check took."""
    refused: Callable[[ObjectKey, SyncError | IdentityError], None] = lambda key, error: None
    """Told of every object that was not taken, and why."""


def verified(incoming: Incoming, envelope: bytes, context: MemberContext) -> Manifest:
    """A manifest that a trainer of this group signed and that is of the object announced; raises otherwise."""
    document, signature = open_envelope(envelope)
    try:
        context.signers.verify(document, signature, datetime.datetime.now(datetime.UTC))
    except IdentityError as error:
        raise SignatureError(f"the manifest of {incoming.key} is not signed by a trainer: {error}") from error
    manifest = parse_manifest(document)
    check_manifest(incoming.key, manifest)
    context.versions.prove(incoming.key.target, str(manifest.target.digest))
    if manifest.base is not None and incoming.key.base is not None:
        context.versions.prove(incoming.key.base, str(manifest.base.digest))
    begin = incoming.begin
    if manifest.layout_hash != begin.layout:
        raise FormatError(f"the manifest of {incoming.key} is of another layout than was announced")
    if manifest.base is not None and begin.base is not None and str(manifest.base.digest) != begin.base.digest:
        raise FormatError(f"the manifest of {incoming.key} starts from another state than was announced")
    return manifest
