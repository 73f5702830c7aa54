"""Which streams of a link are stuck, judged by what their TCP says of itself. PROTOCOL.md, section 3.5.

Pure: no sockets, no clock (`now_s` is an argument).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STUCK_AFTER_S: Final = 1.0
STUCK_RTTS: Final = 4.0
GIVE_UP_AFTER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a stream's TCP says of itself."""

    acked_bytes: int
    retransmits: int
    rtt_s: float


@dataclass(slots=True)
class _Watch:
    progress: Progress
    since_s: float
    stuck_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Streams that just got stuck, and streams to close."""

    stuck: tuple[int, ...]
    hopeless: tuple[int, ...]


class StuckWatch:
    """Tells a stuck stream from a slow one.

    Stuck: it carries unacknowledged buckets, the peer's kernel has acknowledged nothing for max(1 s, 4 round trips),
    and TCP has retransmitted meanwhile. Only against streams that move: when none does, the path is away, and what is
    under way arrives when it is back.
    """

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}

    def forget(self, stream: int) -> None:
        """The stream is gone."""
        self._watches.pop(stream, None)

    def observe(self, carrying: dict[int, Progress], now_s: float) -> Verdicts:
        """`carrying`: the streams with unacknowledged buckets, as they stand now."""
        for stream in [stream for stream in self._watches if stream not in carrying]:
            del self._watches[stream]
        silent: list[int] = []
        for stream, progress in carrying.items():
            watch = self._watches.get(stream)
            if watch is None or progress.acked_bytes > watch.progress.acked_bytes:
                self._watches[stream] = _Watch(progress, now_s)
            elif progress.retransmits > watch.progress.retransmits:
                silent.append(stream)
        moving = len(carrying) > len(silent)
        stuck: list[int] = []
        hopeless: list[int] = []
        for stream in silent:
            watch = self._watches[stream]
            patience_s = max(STUCK_AFTER_S, STUCK_RTTS * watch.progress.rtt_s)
            if not moving or now_s - watch.since_s < patience_s:
                continue
            if watch.stuck_since_s is None:
                watch.stuck_since_s = now_s
                stuck.append(stream)
            elif now_s - watch.stuck_since_s >= GIVE_UP_AFTER_S:
                hopeless.append(stream)
        return Verdicts(tuple(stuck), tuple(hopeless))
