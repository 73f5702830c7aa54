"""Where a member stands, for itself and for everyone below it: what it tells its parent, and what it asks for. Pure.

A leaf follows for its engine. A relay follows for whoever is furthest on, so that a version passes through it while it
is still being written; what its own engine needs besides, it asks for by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sync_runtime.bucket.keys import ANCHOR, ObjectKey, VersionRef
from sync_runtime.session.catch_up import key_between


def furthest(own: VersionRef | None, below: Iterable[VersionRef], head: VersionRef | None) -> VersionRef | None:
    """The version to follow from: the newest in the lineage that is followed, else the engine's own, else any."""
    known = [*([] if own is None else [own]), *below]
    current = [version for version in known if head is not None and version.lineage == head.lineage]
    if current:
        return max(current, key=lambda version: version.seq)
    return known[0] if known else None


def lead_on(start: VersionRef | None, keys: Iterable[ObjectKey], head: VersionRef | None) -> VersionRef | None:
    """What is held once all objects that lead on from here are in; `keys`: stored, arriving, or asked for."""
    found = None if start is None or head is None else _ways(start, keys, head.lineage)
    return start if not found else max(found, key=lambda version: version.seq)


def next_step(start: VersionRef, keys: Iterable[ObjectKey], head: VersionRef) -> ObjectKey | None:
    """The first object of the shortest way from here to the newest version that can be reached; None: there is none."""
    found = _ways(start, keys, head.lineage)
    furthest_on = max(found, key=lambda version: version.seq, default=None)
    return None if furthest_on is None else found[furthest_on]


def newest_whole(live: VersionRef | None, keys: Iterable[ObjectKey], head: VersionRef) -> ObjectKey | None:
    """The newest whole weights of the lineage that is followed, newer than what is live; None: there are none."""
    newer = -1 if live is None or live.lineage != head.lineage else live.seq
    whole = [key for key in keys if key.is_anchor and key.part is None and key.lineage == head.lineage]
    return max((key for key in whole if key.target_seq > newer), key=lambda key: key.target_seq, default=None)


def own_want(
    own: VersionRef | None,
    head: VersionRef | None,
    keys: Collection[ObjectKey],
    *,
    out_of_service: bool,
    live: VersionRef | None = None,
) -> ObjectKey | None:
    """What an engine needs that nothing brings which is here or on its way; None: nothing.

    `own` is where deltas help, None where none does. Whole weights help only beyond what is `live`: older ones, which a
    relay may well keep, must not pass for those that it waits for.
    """
    if head is None or own == head:
        return None
    if own is None:
        is_due = out_of_service and newest_whole(live, keys, head) is None
        return ObjectKey(head.lineage, None, None, head.seq, ANCHOR) if is_due else None
    return key_between(own, head) if next_step(own, keys, head) is None else None


def _ways(start: VersionRef, keys: Iterable[ObjectKey], lineage: str) -> dict[VersionRef, ObjectKey]:
    """Versions of a lineage that objects lead to from here, with the first object of the shortest way to each.

    Every step leads into that lineage, and forward: what lies between may be activated.
    """
    onward: dict[VersionRef, list[ObjectKey]] = {}
    for key in keys:
        is_back = key.base is not None and key.base.lineage == lineage and key.target_seq < key.base.seq
        if key.base is not None and key.lineage == lineage and not is_back:
            onward.setdefault(key.base, []).append(key)
    first: dict[VersionRef, ObjectKey] = {}
    at = [start]
    for here in at:  # grows while it is walked: breadth first
        for key in onward.get(here, ()):
            if key.target not in first and key.target != start:
                first[key.target] = first.get(here, key)
                at.append(key.target)
    return first
