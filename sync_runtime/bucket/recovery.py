"""What a spool finds in its objects' folder when it opens: whole objects, partial ones, leftovers, and strangers.

Leftovers of our own are swept; what is not ours, links above all, is left where it is and named. Nothing found here is
believed: envelopes are parsed as hostile, bytes are proven when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sync_runtime.bucket.durable import TEMPORARY_PREFIX, Folder
from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.limits import MAX_PARTIAL_OBJECTS
from sync_runtime.bucket.manifest import MAX_ENVELOPE_BYTES
from sync_runtime.bucket.names import DATA, JOURNAL, MANIFEST, data_name, journal_name, manifest_name, split_name
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.errors import FormatError, SpoolCorruptError, SyncError


@dataclass
class Found:
    """What lay there."""

    stored: list[StoredObject] = field(default_factory=list)
    """Oldest first."""
    partial: list[ObjectKey] = field(default_factory=list)
    """Oldest first."""
    problems: list[str] = field(default_factory=list)
    """Sentences about what was refused or ignored."""


def recover(folder: Folder) -> Found:
    """Reads the folder and sweeps what a crash left behind."""
    found = Found()
    for key, suffixes in _files_by_key(folder, found.problems).items():
        if MANIFEST in suffixes and _take_stored(folder, key, found):
            if JOURNAL in suffixes:
                folder.remove(journal_name(key))
        elif {DATA, JOURNAL} <= suffixes:
            found.partial.append(key)
        else:
            for name in (data_name(key), journal_name(key)):
                folder.remove(name)
    found.stored.sort(key=lambda stored: (stored.facts.stored_unix_ns, stored.key.target_seq))
    found.partial.sort(key=lambda key: folder.modified_unix_ns(journal_name(key)))
    for key in found.partial[:-MAX_PARTIAL_OBJECTS]:
        for name in (journal_name(key), data_name(key)):
            folder.remove(name)
    found.partial = found.partial[-MAX_PARTIAL_OBJECTS:]
    folder.sync()
    return found


def _files_by_key(folder: Folder, problems: list[str]) -> dict[ObjectKey, set[str]]:
    files: dict[ObjectKey, set[str]] = {}
    blocked = set()
    for name in folder.names():
        plain = folder.is_plain_file(name)
        if name.startswith(TEMPORARY_PREFIX) and plain:
            folder.remove(name)
            continue
        try:
            key, suffix = split_name(name)
        except FormatError:
            problems.append(f"{name!r} in {folder.path} is none of the spool's files and was left alone")
            continue
        if plain:
            files.setdefault(key, set()).add(suffix)
        else:
            problems.append(f"{name!r} in {folder.path} is a link or no file at all and was not followed")
            blocked.add(key)
    return {key: suffixes for key, suffixes in files.items() if key not in blocked}


def _take_stored(folder: Folder, key: ObjectKey, found: Found) -> bool:
    try:
        envelope = folder.read(manifest_name(key), MAX_ENVELOPE_BYTES)
        if envelope is None:
            raise SpoolCorruptError("its manifest vanished")
        found.stored.append(StoredObject(folder, key, envelope, proven=False))
    except SyncError as error:
        found.problems.append(f"{key} was thrown away: {error}")
        folder.remove(manifest_name(key))
        return False
    return True
