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


def lead_on(start: VersionRef | None, keys: Collection[ObjectKey]) -> VersionRef | None:
    """What is held once all objects that lead on from here are in; `keys`: stored, arriving, or asked for."""
    at, seen = start, {start}
    while at is not None:
        following = [key.target for key in keys if key.base == at and key.target not in seen]
        if not following:
            break
        here = at.lineage
        at = max(following, key=lambda version: (version.lineage != here, version.seq))
        seen.add(at)  # ways back and forth may run in a circle
    return at


def own_want(
    own: VersionRef | None, head: VersionRef | None, keys: Collection[ObjectKey], *, out_of_service: bool
) -> ObjectKey | None:
    """What a relay's engine needs that following for others will not bring; None: nothing, or it is on its way."""
    if head is None or lead_on(own, keys) == head:
        return None
    if own is None:
        coming = any(key.is_anchor and key.lineage == head.lineage for key in keys)
        return ObjectKey(head.lineage, None, None, head.seq, ANCHOR) if out_of_service and not coming else None
    return None if any(key.base == own for key in keys) else key_between(own, head)
