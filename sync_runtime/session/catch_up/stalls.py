"""Who is behind the newest version with nothing coming, and when to ask again. Pure: time is an argument.

Requests are sent when something happens; one that is lost is never sent again by that. So housekeeping looks at how
things stand, whatever happened before: a rule over levels, not over events. Sends nothing itself.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Set
from dataclasses import dataclass

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.session.catch_up.choice import key_between
from sync_runtime.session.position import lead_on, newest_whole

PATIENCE_S = 3.0
"""An object may have to be made first: asking sooner would find a parent that is at it."""
LONGEST_S = 60.0
SILENT_S = 30.0
"""A transfer of which nothing came for so long is none. Asking again costs no bytes then: none are on their way."""


def is_stalled(
    start: VersionRef | None,
    head: VersionRef | None,
    stored: Collection[ObjectKey],
    coming: Collection[ObjectKey],
    *,
    wants_anchor: bool = False,
    live: VersionRef | None = None,
) -> bool:
    """Whether someone who stands at `start` is behind `head`, and nothing that is coming brings it any further."""
    if head is None:
        return False
    if start is not None and start.lineage == head.lineage and start.seq >= head.seq:
        return False  # a parent that is behind itself
    if start is None:
        return wants_anchor and newest_whole(live, (*stored, *coming), head) is None
    reached = lead_on(start, stored, head)
    return reached != head and lead_on(start, (*stored, *coming), head) == reached


@dataclass(frozen=True)
class Needs:
    """Who is to be brought on: the engine here, and whoever is furthest on here or below."""

    head: VersionRef | None
    furthest: VersionRef | None
    own: VersionRef | None
    refused: Set[ObjectKey]
    """What was of no use to the engine; it is not sent again."""
    wants_anchor: bool
    live: VersionRef | None = None
    """What the engine runs; only newer whole weights help it."""

    def stalled(self, stored: Set[ObjectKey], coming: Set[ObjectKey]) -> dict[str, bool]:
        """Of the line of versions, and of the engine besides: whether nothing brings them on."""
        head, own = self.head, self.own
        is_hopeless = own is not None and head is not None and own != head and key_between(own, head) in self.refused
        usable, on_its_way = stored - self.refused, coming - self.refused
        engine = is_stalled(own, head, usable, on_its_way, wants_anchor=self.wants_anchor, live=self.live)
        return {"line": is_stalled(self.furthest, head, stored, coming), "engine": engine and not is_hopeless}


@dataclass
class _Stall:
    asked_s: float
    wait_s: float
    times: int = 0


class StallWatch:
    """Remembers since when each one stands still; asks after PATIENCE_S, then ever more rarely."""

    def __init__(self, patience_s: float = PATIENCE_S, longest_s: float = LONGEST_S) -> None:
        self._patience_s, self._longest_s = patience_s, longest_s
        self._stalls: dict[Hashable, _Stall] = {}
        self.asked = 0
        """How often something was asked for again."""

    def due(self, who: Hashable, now_s: float, *, stalled: bool) -> int:
        """Zero: nothing is to be done now. Otherwise ask again, the how-manieth time since it last moved."""
        if not stalled:
            self._stalls.pop(who, None)
            return 0
        stall = self._stalls.setdefault(who, _Stall(now_s, self._patience_s))
        if now_s - stall.asked_s < stall.wait_s:
            return 0
        stall.asked_s, stall.wait_s = now_s, min(2 * stall.wait_s, self._longest_s)
        stall.times += 1
        self.asked += 1
        return stall.times

    def forget(self, who: Hashable) -> None:
        """It is gone."""
        self._stalls.pop(who, None)
