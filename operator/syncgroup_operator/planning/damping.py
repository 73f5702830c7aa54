"""How fast members may be replaced: how many at once, how many in an hour, how often the same seat. Pure.

All of it is kept in the group's state, so that neither a restart nor a change of leader starts afresh.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from sync_runtime.contract.policies import LeasePolicy
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.state import WINDOW_MINUTES, MinuteCount

FIRST_BACK_OFF_S = 10.0
MAX_BACK_OFF_S = 600.0
MAX_ATTEMPTS = 1000
UNDER_WAY_S = 900.0
"""A replacement that did not serve by then no longer holds up the others: its place may have no room for days."""


def back_off_s(attempts: int) -> float:
    """How long a seat is left alone after so many replacements in a row."""
    return float(min(FIRST_BACK_OFF_S * 2 ** min(max(attempts - 1, 0), 16), MAX_BACK_OFF_S)) if attempts > 0 else 0.0


def window(counts: Iterable[MinuteCount], now: datetime.datetime) -> dict[int, int]:
    """Replacements per minute of the last hour. One more bucket than minutes, since the oldest is partly past."""
    minute = clock.minute_of(now)
    kept: dict[int, int] = {}
    for entry in counts:
        at = min(entry.minute, minute)
        if at >= minute - WINDOW_MINUTES and entry.count:
            kept[at] = kept.get(at, 0) + entry.count
    return kept


@dataclass(slots=True)
class Budget:
    """What one pass may still replace. Counts down as it is used."""

    policy: LeasePolicy
    now: datetime.datetime
    minutes: dict[int, int]
    under_way: int
    """Seats whose replacement is under way, apart from those that gave up waiting."""

    @classmethod
    def of(
        cls,
        policy: LeasePolicy,
        counts: Iterable[MinuteCount],
        replacing: Iterable[datetime.datetime | None],
        now: datetime.datetime,
    ) -> Budget:
        """What is left, given what was done."""
        busy = sum(under_way(since, now) for since in replacing)
        return cls(policy, now, window(counts, now), busy)

    @property
    def forbidden(self) -> bool:
        """Whether members are never replaced."""
        return self.policy.max_replacements_per_hour == 0

    def allows(self, *, counted: bool) -> bool:
        """Whether one more may begin; `counted`: its seat is among those under way already."""
        hour = sum(self.minutes.values()) < self.policy.max_replacements_per_hour
        return hour and (counted or self.under_way < self.policy.max_concurrent_replacements)

    def take(self, *, counted: bool) -> None:
        """One more begins."""
        minute = clock.minute_of(self.now)
        self.minutes[minute] = self.minutes.get(minute, 0) + 1
        self.under_way += 0 if counted else 1

    def next_release_s(self) -> float | None:
        """When the oldest minute of a full hour is forgotten."""
        if self.forbidden or sum(self.minutes.values()) < self.policy.max_replacements_per_hour:
            return None
        moment = clock.LONG_AGO + datetime.timedelta(minutes=min(self.minutes) + WINDOW_MINUTES + 1)
        return max((moment - self.now).total_seconds(), 0.0)

    def counts(self) -> list[MinuteCount]:
        """For the state."""
        return [MinuteCount(minute=minute, count=count) for minute, count in sorted(self.minutes.items())]


def under_way(since: datetime.datetime | None, now: datetime.datetime) -> bool:
    """Whether a replacement that began then still counts."""
    return since is not None and clock.seconds_since(since, now) < UNDER_WAY_S
