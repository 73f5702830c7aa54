"""The trainer's side of a store: opens it, puts versions, and removes what nobody needs any more.

STORE.md, sections 3, 5 and 7. It is handed whole, durable objects and knows neither the spool nor what is in them. One
thread at a time publishes and removes; skip deltas and anchors may be put beside.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sync_runtime.bucket.manifest import MAX_ENVELOPE_BYTES, Manifest, Version, open_envelope, parse_manifest
from sync_runtime.errors import ChainError
from sync_runtime.identity.signing import Signer, TrustedSigners
from sync_runtime.transport.object_store import lines as edit
from sync_runtime.transport.object_store.errors import StoreMissingError
from sync_runtime.transport.object_store.fences import Claim
from sync_runtime.transport.object_store.latest import Latest
from sync_runtime.transport.object_store.mover import PointerMover, Writer
from sync_runtime.transport.object_store.names import (
    OPENING_HEX_DIGITS,
    PLACES,
    PROBES,
    Listed,
    is_probe_of_others,
    object_path,
    parse_listed,
    place_name,
    term_of,
)
from sync_runtime.transport.object_store.patience import Patience, PatientObjects
from sync_runtime.transport.object_store.pointer import MAX_INLINE_BYTES, Pointer, Row
from sync_runtime.transport.object_store.ports import Objects, Offered
from sync_runtime.transport.object_store.probe import prove_conditions
from sync_runtime.transport.object_store.seal import Seal
from sync_runtime.transport.object_store.uploads import Uploads, paths_of

_log: Final = logging.getLogger(__name__)
_REMOVE_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class Trainer:
    """Who publishes."""

    group: str
    term: int
    incarnation: str
    proof: str
    """The signature for the term, in hexadecimal."""
    pen: Signer
    older_signers: tuple[str, ...] = ()
    """Chains of trainers before this one whose manifests its spool still has."""


@dataclass(frozen=True)
class PublishSettings:
    """How a publisher uses its store."""

    keep_versions: int = 32
    streams: int = 32
    """Puts at a time: over a long way every connection opens its window anew, so that many small ones fill the link."""
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True)
class Beginning:
    """A lineage that the store does not know yet."""

    lineage: str
    start: Version
    layout: bytes
    layout_hash: str
    way: Offered | None = None
    """From the newest version in the store to a version of this lineage."""
    restarts: bool = False
    """The store knows this lineage, and the spool has forgotten what came after the store's newest version."""


@dataclass(frozen=True)
class Publication:
    """A version, as the link that leads to it."""

    link: Offered
    published_unix_ns: int = 0
    trace: str = ""
    """Traceparent of its publication; empty: none."""


class StorePublisher:
    """An open store that this process publishes to. Thread-safe."""

    def __init__(
        self, store: Objects, trainer: Trainer, trusted: TrustedSigners, seal: Seal, settings: PublishSettings
    ) -> None:
        """Acts nothing yet: `open` does."""
        self._store = PatientObjects(store, settings.patience)
        self._seal = seal
        self._settings = settings
        self._trainer = trainer
        self.place = place_name(trainer.term, secrets.token_hex(OPENING_HEX_DIGITS // 2))
        self._latest = Latest(self._store, seal, trusted)
        self._mover = PointerMover(self._latest, _writer(trainer, self.place), settings.patience)
        self._uploads = Uploads(self._store, seal, self.place, streams=settings.streams)
        self._lock = threading.Lock()
        self._skips: list[Row] = []
        """Put since the last pointer."""
        self._fading: dict[Row, int] = {}
        """Rows that no pointer names any more, with the revision of the first that did not."""

    def open(self) -> Pointer:
        """Proves the store and claims its pointer; raises StoreUnfitError, StoreForeignError, FenceError."""
        with self._lock:
            self._latest.tags_are_hashes = prove_conditions(self._store, self.place, self._settings.patience)
            return self._mover.claim()

    def close(self) -> None:
        """Ends its threads; what is being put ends first."""
        self._uploads.close()

    @property
    def pointer(self) -> Pointer:
        """What the store says, as far as is known here."""
        return self._mover.pointer

    # ---------------------------------------------------------------------------------------------------- publishing

    def begin(self, beginning: Beginning) -> Pointer:
        """A new lineage; its start is visible when this returns."""
        self._uploads.put_layout(beginning.layout_hash, beginning.layout)
        way = None if beginning.way is None else self._uploads.put(beginning.way)
        with self._lock:
            place = edit.Place(beginning.layout_hash, self.place)
            before = () if beginning.restarts else self._mover.pointer.lines
            longer = edit.begun(before, beginning.lineage, beginning.start, place, way)
            return self._move(longer, b"")

    def publish(self, publications: Sequence[Publication]) -> Pointer:
        """Versions that follow each other, the first one the store's next; visible, all of them, on return.

        Raises StoreAheadError where the store has gone on without this spool, FenceError, StoreError. What failed can
        be published again: what is in the store already is not put twice.
        """
        if not publications:
            return self._mover.pointer
        first = _manifest(publications[0].link)
        edit.check_continues(self._mover.pointer.lines, first.lineage, _base(first))
        rows = [self._uploads.put(publication.link) for publication in publications]
        with self._lock:
            longer = self._mover.pointer.lines
            for publication, row in zip(publications, rows, strict=True):
                manifest = _manifest(publication.link)
                longer = edit.extended(
                    longer,
                    row,
                    _base(manifest),
                    manifest.target,
                    label=manifest.label,
                    published_unix_ns=publication.published_unix_ns,
                    trace=publication.trace,
                )
            newest = publications[-1].link.envelope
            return self._move(longer, newest if len(newest) <= MAX_INLINE_BYTES else b"")

    def add_skip(self, skip: Offered) -> None:
        """A skip delta; the next pointer names it."""
        row = self._uploads.put(skip)
        with self._lock:
            self._skips.append(row)

    def add_anchor(self, anchor: Offered) -> Pointer:
        """Whole weights of a kept version; joiners find them when this returns."""
        row = self._uploads.put(anchor)
        with self._lock:
            return self._move(edit.with_anchor(self._mover.pointer.lines, row), self._mover.pointer.manifest)

    def wanted_skips(self) -> tuple[tuple[str, int, int], ...]:
        """The skip deltas (lineage, base, target) that the newest version should have."""
        pointer = self._mover.pointer
        if not pointer.lines:
            return ()
        line = pointer.lines[0]
        return tuple((line.lineage, base, line.head.seq) for base in edit.spans_ending_at(line.head.seq, line.base.seq))

    def mend(self) -> bool:
        """Looks after the pointer while nothing is published; True: it had to be put again."""
        with self._lock:
            return self._mover.mend()

    def renew(self, trainer: Trainer) -> Pointer:
        """Signs the pointer anew under a renewed certificate."""
        with self._lock:
            self._mover.renew(_writer(trainer, self.place))
            pointer = self._mover.pointer
            return self._mover.move(pointer.lines, pointer.manifest)

    def _move(self, longer: edit.Lines, manifest: bytes) -> Pointer:
        before = edit.rows_of(self._mover.pointer.lines)
        named = edit.trimmed(edit.with_skips(longer, self._skips), self._settings.keep_versions)
        pointer = self._mover.move(named, manifest)
        kept = edit.rows_of(named)
        for row in (before | set(self._skips)) - kept:
            self._fading.setdefault(row, pointer.revision)
        self._skips.clear()
        return pointer

    # ------------------------------------------------------------------------------------------------------ removing

    def retire(self) -> int:
        """Removes what left the pointer before the last one did; how many objects went."""
        with self._lock:
            newest = self._mover.pointer.revision
            going = [row for row, since in self._fading.items() if since < newest]
        for row in going:
            self._remove_object(row)
            with self._lock:
                self._fading.pop(row, None)
        return len(going)

    def collect(self) -> int:
        """Removes garbage of failed publishes and dead processes; how many keys went.

        Lists first, then looks at the pointer: whoever claimed it in between has put nothing that the list could show.
        """
        listed = list(self._store.list(PLACES))
        # A proof of somebody who opens right now, if it was one, is only disturbed and begins anew.
        garbage = [path for path in self._store.list(PROBES) if is_probe_of_others(path, self.place)]
        with self._lock:
            lines = self._mover.pointer.lines
            kept = {(row.place, row.key.file_stem) for row in (*edit.rows_of(lines), *self._fading)}
            layouts = {(layout.place, layout.layout_hash) for layout in edit.layouts_of(lines)}
            for path in listed:
                found = parse_listed(path)
                if found is not None and self._is_garbage(found, kept, layouts):
                    garbage.append(path)
            if not garbage or not self._mover.still_mine():
                return 0
        self._remove(garbage)
        _log.info("removed %d keys of failed publishes from the store", len(garbage))
        return len(garbage)

    def _is_garbage(self, listed: Listed, kept: set[tuple[str, str]], layouts: set[tuple[str, str]]) -> bool:
        if listed.place == self.place or term_of(listed.place) > self._trainer.term:
            return False
        return (listed.place, listed.name) not in {"objects": kept, "layouts": layouts, "tmp": set()}[listed.kind]

    def _remove_object(self, row: Row) -> None:
        path = object_path(row.place, row.key)
        try:
            fetched = self._store.get(path, MAX_ENVELOPE_BYTES + self._seal.overhead_bytes)
        except StoreMissingError:
            return  # its manifest went before; what is left is garbage for the next opening
        envelope = bytes(self._seal.open(path, fetched.data))
        paths = paths_of(self._seal, row.place, row.key, parse_manifest(open_envelope(envelope)[0]))
        self._uploads.forget(row.key)
        self._remove(paths[:1])
        self._remove(paths[1:])

    def _remove(self, paths: Iterable[str]) -> None:
        for some in _in_parts(list(paths), _REMOVE_AT_ONCE):
            self._store.remove(some)


def _writer(trainer: Trainer, place: str) -> Writer:
    claim = Claim(trainer.group, trainer.term, trainer.incarnation, place)
    return Writer(claim, trainer.proof, trainer.pen, trainer.older_signers)


def _manifest(offered: Offered) -> Manifest:
    return parse_manifest(open_envelope(offered.envelope)[0])


def _base(manifest: Manifest) -> Version:
    if manifest.base is None:
        raise ChainError("a version is published as the delta from the one before, not as an anchor")
    return manifest.base


def _in_parts(paths: list[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(paths), size):
        yield paths[at : at + size]
