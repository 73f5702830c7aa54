"""What to forget: which objects go when a spool is above its limits. Pure: facts in, keys out.

Limits win over needs: a straggler beyond them falls to an anchor. Below them nothing goes. Chains are eaten from their
old end only, so what stays always leads to the newest version without a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sync_runtime.bucket.keys import FAST, ObjectKey, VersionRef


class Held(NamedTuple):
    """An object as retention sees it."""

    key: ObjectKey
    size_bytes: int


def plan_retention(
    objects: Sequence[Held],
    needed: Collection[VersionRef],
    *,
    max_bytes: int,
    max_versions: int,
    head: VersionRef | None = None,
    origins: Mapping[str, VersionRef | None] | None = None,
) -> tuple[ObjectKey, ...]:
    """The keys to remove, oldest objects first in `objects`.

    `needed`: versions that live members stand on. `head`: the newest version; without it the last link's target.
    `origins`: for each lineage the version of another one that it started from.
    """
    head = head or _newest(objects)
    order = _order(objects, _needed_links(objects, needed, head, origins or {}), head)
    removed: set[ObjectKey] = set()
    for is_link in (True, False):  # what was made from links is a cache: as many as links, at most
        total = sum(_is_chain_link(held.key) == is_link for held in objects)
        going = [held.key for held in order if _is_chain_link(held.key) == is_link]
        removed.update(going[: max(0, total - max(1, max_versions))])
    total_bytes = sum(held.size_bytes for held in objects if held.key not in removed)
    for held in order:
        if total_bytes <= max_bytes:
            break
        if held.key not in removed:
            removed.add(held.key)
            total_bytes -= held.size_bytes
    return tuple(held.key for held in objects if held.key in removed)


def _is_chain_link(key: ObjectKey) -> bool:
    return key.is_link and key.codec == FAST


def _newest(objects: Sequence[Held]) -> VersionRef | None:
    links = [held.key for held in objects if _is_chain_link(held.key)]
    return max(links, key=lambda key: (key.lineage == links[-1].lineage, key.target_seq)).target if links else None


def _order(objects: Sequence[Held], needed: set[ObjectKey], head: VersionRef | None) -> list[Held]:
    """Everything that may go, first to go first. The newest version's own delta never goes.

    First what can be made again and leads nowhere new; then links of dead lineages that nobody needs; then what can be
    made again; at last the newest lineage's links and needed ones of others, each from the old end.
    """
    newest_anchor = next((held.key for held in reversed(objects) if held.key.is_anchor and held.key.part is None), None)
    lineage_age = {held.key.lineage: age for age, held in enumerate(objects)}

    def rank(item: tuple[int, Held]) -> tuple[int, int, int, int]:
        age, (key, _) = item
        current = head is not None and key.lineage == head.lineage
        if not _is_chain_link(key):
            useful = key == newest_anchor or (head is not None and key.target == head)
            return (2 if useful else 0, 0, 0, age)
        group = 3 if current or key in needed else 1
        return (group, int(current), lineage_age[key.lineage], key.target_seq)

    ranked = sorted(enumerate(objects), key=rank)
    return [held for _, held in ranked if not (_is_chain_link(held.key) and held.key.target == head)]


def _needed_links(
    objects: Sequence[Held],
    needed: Collection[VersionRef],
    head: VersionRef | None,
    origins: Mapping[str, VersionRef | None],
) -> set[ObjectKey]:
    """The links between the versions that members stand on and the newest one, through the fork where there is one."""
    if head is None or not needed:
        return set()
    ends = _ends(head, origins)
    names = list(ends)
    spans: list[tuple[str, int, int]] = []
    for version in needed:
        if version.lineage in ends:
            end = ends[version.lineage]
            spans.append((version.lineage, min(version.seq, end), max(version.seq, end)))
            for younger in names[: names.index(version.lineage)]:
                start = origins[younger]
                spans.append((younger, 0 if start is None else start.seq, ends[younger]))
    return {
        held.key
        for held in objects
        if _is_chain_link(held.key)
        and any(held.key.lineage == lineage and first < held.key.target_seq <= last for lineage, first, last in spans)
    }


def _ends(head: VersionRef, origins: Mapping[str, VersionRef | None]) -> dict[str, int]:
    """How far each lineage on the way to the newest version is followed: to its fork. The newest first."""
    ends: dict[str, int] = {}
    version: VersionRef | None = head
    while version is not None and version.lineage not in ends:
        ends[version.lineage] = version.seq
        version = origins.get(version.lineage)
    return ends
