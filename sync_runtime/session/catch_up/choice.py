"""Which object leads from one version to another, and which links it is made of (PROTOCOL.md, section 5). Pure.

An index of the spool in, a path out; keys may come from hostile peers. Knows no bytes, no members and no links.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sync_runtime.bucket.keys import FAST, ObjectKey, VersionRef, delta_key


@dataclass(frozen=True)
class Step:
    """A link of a lineage, taken forward or back."""

    link: ObjectKey
    is_back: bool = False


@dataclass(frozen=True)
class Path:
    """What an object would be made of. No steps: both versions are one state under two names."""

    key: ObjectKey
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class SpoolIndex:
    """What a path is looked for in."""

    stored: Collection[ObjectKey]
    origins: Mapping[str, VersionRef | None] = field(default_factory=dict)
    """For each known lineage the version of another one that it started from."""


def key_between(base: VersionRef, target: VersionRef) -> ObjectKey:
    """The key of the `fast` object from one version to another."""
    if base.lineage == target.lineage:
        return delta_key(target.lineage, base.seq, target.seq)
    return ObjectKey(target.lineage, base.lineage, base.seq, target.seq, FAST)


def find_path(key: ObjectKey, index: SpoolIndex) -> Path | None:
    """The stored links that make an object; None: one is missing, or no way leads there."""
    base, target = key.base, key.target
    if base is None or key.codec != FAST:
        return None
    way = _way_between(base.lineage, target.lineage, index.origins)
    if way is None:
        return None
    steps: list[Step] = []
    at = base.seq
    for here, end in [*way, (target.lineage, target.seq)]:
        if abs(end - at) > len(index.stored):
            return None  # before a list of that length is made
        steps += _steps(here, at, end)
        at = end
    complete = all(step.link in index.stored for step in steps)
    return Path(key, tuple(steps)) if complete else None


def _way_between(first: str, last: str, origins: Mapping[str, VersionRef | None]) -> list[tuple[str, int]] | None:
    """Lineages to go through before the last one, each with the seq to leave it at: up to the common one, then down.

    A lineage keeps the seq of the version that it began from, so both ends of a fork have one number.
    """
    down = _ancestry(last, origins)
    up = _ancestry(first, origins)
    common = next((lineage for lineage in up if lineage in down), None)
    if common is None:
        return None
    way = []
    for lineage in up[: up.index(common)]:
        origin = origins[lineage]
        if origin is None:
            return None
        way.append((lineage, origin.seq))
    for lineage in reversed(down[: down.index(common)]):
        origin = origins[lineage]
        if origin is None:
            return None
        way.append((origin.lineage, origin.seq))
    return way


def _ancestry(lineage: str, origins: Mapping[str, VersionRef | None]) -> list[str]:
    """A lineage, the one that it began from, and so on."""
    found = [lineage]
    while (origin := origins.get(found[-1])) is not None and origin.lineage not in found:
        found.append(origin.lineage)
    return found


def _steps(lineage: str, first: int, last: int) -> list[Step]:
    if first <= last:
        return [Step(delta_key(lineage, seq, seq + 1)) for seq in range(first, last)]
    return [Step(delta_key(lineage, seq - 1, seq), is_back=True) for seq in range(first, last, -1)]
