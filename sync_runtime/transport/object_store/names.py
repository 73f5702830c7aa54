"""Keys in a store: where things lie, and reading a listed key back (STORE.md, section 1). Pure; parses hostile text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sync_runtime.bucket.keys import ObjectKey, parse_file_stem
from sync_runtime.errors import FormatError

LATEST: Final = "latest"
PLACES: Final = "places/"
PROBES: Final = "probe/"
OPENING_HEX_DIGITS: Final = 16
_MAX_TERM: Final = 2**63 - 1
_PLACE: Final = re.compile(r"([1-9][0-9]{0,18})-[0-9a-f]{16}")
_MANIFEST: Final = "manifest"
_TEMPORARY: Final = "tmp"
_LISTED: Final = re.compile(r"places/([^/]+)/(objects|layouts|tmp)/([^/]+)(?:/[^/]+)?")


@dataclass(frozen=True)
class Listed:
    """A key of ours, taken apart."""

    place: str
    kind: str
    """`objects`, `layouts` or `tmp`."""
    name: str
    """Of an object: its key as a file is called, for its manifest and for each of its buckets."""


def place_name(term: int, opening: str) -> str:
    """The place of one opening; `opening` is 16 random hexadecimal digits."""
    name = f"{term}-{opening}"
    term_of(name)
    return name


def term_of(place: object) -> int:
    """The term of a place from anywhere; raises FormatError."""
    found = _PLACE.fullmatch(place) if isinstance(place, str) else None
    if found is None or int(found[1]) > _MAX_TERM:
        raise FormatError("a place of the store is a term and 16 hexadecimal digits")
    return int(found[1])


def bucket_path(place: str, key: ObjectKey, name: str) -> str:
    """Where a bucket of an object lies. No two objects share one, so that each can go without asking for others."""
    return f"{PLACES}{place}/objects/{key.file_stem}/{name}"


def object_path(place: str, key: ObjectKey) -> str:
    """Where the manifest of an object lies."""
    return f"{PLACES}{place}/objects/{key.file_stem}/{_MANIFEST}"


def layout_path(place: str, layout_hash: str) -> str:
    """Where a layout lies."""
    return f"{PLACES}{place}/layouts/{layout_hash}"


def temporary_path(path: str, random: str) -> str:
    """Where a folder store writes what is to become `path`: in the same place, so that it goes with it."""
    place = path[len(PLACES) :].partition("/")[0] if path.startswith(PLACES) else ""
    return f"{PLACES}{place}/{_TEMPORARY}/{random}" if place else f"{PROBES}{_TEMPORARY}-{random}"


def probe_path(place: str, attempt: int) -> str:
    """Where a publisher tries out conditions."""
    return f"{PROBES}{place}-{attempt}"


def is_probe_of_others(path: str, place: str) -> bool:
    """Whether a listed key was left by an opening, or by a write, of another process. A list may hold anything."""
    return path.startswith(PROBES) and not path.startswith(PROBES + place)


def parse_listed(path: str) -> Listed | None:
    """A listed key; None where it is none of ours, and so nobody's to remove."""
    found = _LISTED.fullmatch(path)
    if found is None:
        return None
    try:
        term_of(found[1])
        if found[2] == "objects":
            parse_file_stem(found[3])
    except FormatError:
        return None
    return Listed(found[1], found[2], found[3])
