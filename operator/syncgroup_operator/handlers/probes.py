"""What proves that the operator is alive and ready: that its watches live and its queue moves, not that it answers.

A replica that does not lead is ready, too: it watches and can take over.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from syncgroup_operator.execute.engine import Engine

MAX_SILENCE_S: Final = 180.0
"""A watch says something every minute at least, if only a bookmark; the hub may be away for a while."""
MAX_WAIT_S: Final = 300.0
"""How long a group may be due without a pass, on a leader."""


class UnhealthyError(Exception):
    """The operator should be restarted."""


@dataclass(frozen=True)
class Health:
    """The state of one replica."""

    leading: bool
    groups: int
    watches: int
    live_watches: int
    dead_watches: int
    oldest_silence_s: float
    queue_depth: int
    queue_oldest_s: float

    def problem(self) -> str | None:
        """Why this replica should be restarted; None while it should not."""
        if self.dead_watches:
            return f"{self.dead_watches} watches of the hub ended by a fault of ours"
        if self.oldest_silence_s > MAX_SILENCE_S:
            return f"a watch of the hub has been silent for {self.oldest_silence_s:.0f} s"
        if self.leading and self.queue_oldest_s > MAX_WAIT_S:
            return f"a group has been due for {self.queue_oldest_s:.0f} s without a pass"
        return None


def health_of(engine: Engine) -> Health:
    """Look at an engine."""
    now_s = time.monotonic()
    watches = engine.clusters.hub_cache.watches
    heard = [watch.last_heard_s for watch in watches if watch.live_since_s is not None]
    return Health(
        leading=engine.leading,
        groups=len(engine.groups),
        watches=len(watches),
        live_watches=len(heard),
        dead_watches=engine.clusters.hub_cache.dead,
        oldest_silence_s=max((now_s - moment for moment in heard if moment is not None), default=0.0),
        queue_depth=engine.queue.depth,
        queue_oldest_s=engine.queue.oldest_s,
    )
