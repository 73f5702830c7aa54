"""How long versions take to a member, by its own clock alone. Pure: `now_s` is monotonic and an argument.

From the first word of a version (its BEGIN, sent while the trainer still encodes, or a HEAD) until it is staged and
verified here. No clock of another machine is in it, and neither is the engine's wait for a safe point, which says
nothing about weights or links. A member whose engine came later could not be faster than its engine: then its opening
is where the time begins.
"""

from __future__ import annotations

from typing import Final

from sync_runtime.bucket.keys import VersionRef

MAX_KEPT: Final = 64
"""Versions of which times are kept; older ones are neither staged nor live any more."""


class SyncTimes:
    """The times of one member's last versions."""

    def __init__(self) -> None:
        self._heard_s: dict[VersionRef, float] = {}
        self._took_s: dict[VersionRef, float] = {}
        self._open_s: float | None = None

    def heard(self, version: VersionRef, now_s: float) -> None:
        """Somebody spoke of a version; the first time counts."""
        self._heard_s.setdefault(version, now_s)
        _trim(self._heard_s)

    def engine(self, *, is_open: bool, now_s: float) -> None:
        """Whether there is an engine that can take weights; told whenever it may have changed."""
        if not is_open:
            self._open_s = None
        elif self._open_s is None:
            self._open_s = now_s

    def staged(self, version: VersionRef, now_s: float) -> float | None:
        """A version is there whole and verified; how long it took, where that is new.

        One that comes again (a repair) was there before.
        """
        heard_s = self._heard_s.get(version)
        if heard_s is None or self._open_s is None or version in self._took_s:
            return None
        self._took_s[version] = took_s = now_s - max(heard_s, self._open_s)
        _trim(self._took_s)
        return took_s

    def millis(self, version: VersionRef | None) -> int | None:
        """How long a version took; None where it did not come as an update."""
        took_s = None if version is None else self._took_s.get(version)
        return None if took_s is None else round(took_s * 1000)


def _trim(times: dict[VersionRef, float]) -> None:
    while len(times) > MAX_KEPT:
        del times[next(iter(times))]
