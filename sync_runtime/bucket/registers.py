"""The small things a spool remembers: the term, layouts, signers, lineages. A file each, written whole or not at all.

Read back as hostile: a file under a wrong name or with other content than its name promises is ignored, with a reason.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Collection

from sync_runtime.bucket.durable import TEMPORARY_PREFIX, Folder
from sync_runtime.bucket.limits import MAX_LAYOUTS, MAX_LINEAGES, MAX_SIGNER_BYTES, MAX_SIGNERS
from sync_runtime.bucket.versions import MAX_DOCUMENT_BYTES as MAX_LINEAGE_BYTES
from sync_runtime.bucket.versions import Lineage, parse_lineage
from sync_runtime.errors import FormatError, LimitError, OldTermError, SpoolCorruptError, SpoolError
from sync_runtime.tensors.layout import MAX_DOCUMENT_BYTES as MAX_LAYOUT_BYTES

_TERM_FILE = "term"
_TERM = re.compile(rb"([1-9][0-9]{0,18}) ([0-9a-f]{32})\n")
_MAX_TERM = 2**63 - 1


class Terms:
    """The number in the file `term` and the incarnation drawn for it; durable before they are told to anyone."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._term, self._incarnation = self._read()

    @property
    def term(self) -> int:
        """The last one; 0: none yet."""
        with self._lock:
            return self._term

    def next(self, at_least: int) -> int:
        """One more than the last, or `at_least` where that is larger; with a new incarnation."""
        with self._lock:
            self._take(max(self._term + 1, at_least))
            return self._term

    def incarnation(self, term: int) -> str:
        """The incarnation of a term that was allocated here or elsewhere; drawn where the term is new."""
        with self._lock:
            if term < self._term:
                raise OldTermError(f"term {term} was replaced by {self._term} in this spool")
            if term > self._term or not self._incarnation:
                self._take(term)
            return self._incarnation

    def _take(self, term: int) -> None:
        if not 0 < term <= _MAX_TERM:
            raise LimitError(f"a term is a number from 1 to {_MAX_TERM}")
        incarnation = secrets.token_hex(16)
        self._folder.replace(_TERM_FILE, f"{term} {incarnation}\n".encode())
        self._term, self._incarnation = term, incarnation

    def _read(self) -> tuple[int, str]:
        raw = self._folder.read(_TERM_FILE, 128)
        if raw is None:
            return 0, ""
        found = _TERM.fullmatch(raw)
        if found is None:
            raise SpoolCorruptError(
                f"{self._folder.path / _TERM_FILE} does not hold a term: put back its last number, or start with an "
                "empty folder and a term above all that were used"
            )
        return int(found[1]), found[2].decode()


class NamedByHash:
    """Documents under the SHA-256 of their bytes; the oldest that nobody needs go beyond the limit."""

    def __init__(self, folder: Folder, *, suffix: str, limit_bytes: int, limit_count: int) -> None:
        self._folder = folder
        self._suffix = suffix
        self._limit_bytes = limit_bytes
        self._limit_count = limit_count
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self._names = self._list()

    def put(self, document: bytes, needed: Collection[str] = ()) -> str:
        """Keeps a document; returns its hash in hexadecimal."""
        if len(document) > self._limit_bytes:
            raise LimitError(f"the document has {len(document)} bytes; the limit is {self._limit_bytes}")
        name = hashlib.sha256(document).hexdigest()
        with self._lock:
            if name not in self._names:
                self._folder.replace(name + self._suffix, document)
                self._names.append(name)
            spare = [held for held in self._names if held not in needed and held != name]
            for held in spare[: max(0, len(self._names) - self._limit_count)]:
                self._folder.remove(held + self._suffix)
                self._names.remove(held)
        return name

    def get(self, name: str) -> bytes | None:
        """The document of a hash; None where it is unknown. Raises SpoolCorruptError where it was altered."""
        if name not in self._names:
            return None
        document = self._folder.read(name + self._suffix, self._limit_bytes)
        if document is None or hashlib.sha256(document).hexdigest() != name:
            raise SpoolCorruptError(f"{self._folder.path / name} is gone or was altered: fetch it again")
        return document

    def names(self) -> tuple[str, ...]:
        """The hashes, oldest first."""
        with self._lock:
            return tuple(self._names)

    def _list(self) -> list[str]:
        pattern = re.compile(rf"([0-9a-f]{{64}}){re.escape(self._suffix)}")
        found = []
        for name in sweep(self._folder):
            match = pattern.fullmatch(name)
            if match and self._folder.is_plain_file(name):
                found.append((self._folder.modified_unix_ns(name), match[1]))
            else:
                self.problems.append(f"{name!r} in {self._folder.path} is none of the spool's files and was left alone")
        return [name for _, name in sorted(found)]


def layouts_in(folder: Folder) -> NamedByHash:
    """Layout documents."""
    return NamedByHash(folder, suffix=".json", limit_bytes=MAX_LAYOUT_BYTES, limit_count=MAX_LAYOUTS)


def signers_in(folder: Folder) -> NamedByHash:
    """Certificate chains of trainers."""
    return NamedByHash(folder, suffix=".pem", limit_bytes=MAX_SIGNER_BYTES, limit_count=MAX_SIGNERS)


class Lineages:
    """Where each lineage began, by its name."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self._known: dict[str, Lineage] = {}
        for name in sweep(folder):
            self._take(name)

    def put(self, lineage: Lineage) -> None:
        """Keeps a lineage; one that is known under the same name must be the same."""
        with self._lock:
            before = self._known.get(lineage.lineage)
            if before is not None:
                if (before.start, before.origin) != (lineage.start, lineage.origin):
                    raise SpoolError(f"lineage {lineage.lineage} is known with another beginning")
                return
            document = lineage.to_json()
            parse_lineage(document)  # what cannot be read back must not be written
            self._folder.replace(lineage.lineage + ".json", document)
            self._known[lineage.lineage] = lineage
            for old in self._sorted()[:-MAX_LINEAGES]:
                self._folder.remove(old.lineage + ".json")
                del self._known[old.lineage]

    def all(self) -> tuple[Lineage, ...]:
        """Oldest first."""
        with self._lock:
            return tuple(self._sorted())

    def _sorted(self) -> list[Lineage]:
        return sorted(self._known.values(), key=lambda lineage: lineage.order)

    def _take(self, name: str) -> None:
        try:
            lineage = parse_lineage(self._folder.read(name, MAX_LINEAGE_BYTES) or b"")
        except (FormatError, SpoolCorruptError) as error:
            self.problems.append(f"{name!r} in {self._folder.path} was ignored: {error}")
            return
        if name != lineage.lineage + ".json":
            self.problems.append(f"{name!r} in {self._folder.path} is the document of another lineage and was ignored")
            return
        self._known[lineage.lineage] = lineage


def sweep(folder: Folder) -> list[str]:
    """The names in a folder, after half-written files of a crash were removed."""
    kept = []
    for name in folder.names():
        if name.startswith(TEMPORARY_PREFIX) and folder.is_plain_file(name):
            folder.remove(name)
        else:
            kept.append(name)
    return kept
