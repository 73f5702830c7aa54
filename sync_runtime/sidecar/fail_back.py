"""Back to the first parent of the list once it answers again: a second one is for the time that the first is away.

Looks now and then, between two versions only, and knocks before it lets go of the parent that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence

from sync_runtime.contract.plan import Endpoint
from sync_runtime.transport.dialler import Dialler

AFTER_S = 60.0
"""With another parent, and between two looks."""
KNOCK_S = 2.0


class FailBack:
    """One member's way back to its first parent."""

    def __init__(self, dialler: Dialler, parents: Callable[[], Sequence[Endpoint]]) -> None:
        self._dialler, self._parents = dialler, parents
        self._since_s: float | None = None

    async def look(self, *, is_idle: bool) -> None:
        """Now and then; `is_idle`: nothing is on its way in."""
        link, parents = self._dialler.link, self._parents()
        now_s = time.monotonic()
        if link is None or not parents or link.endpoint == parents[0]:
            self._since_s = None
            return
        self._since_s = self._since_s or now_s
        if not is_idle or now_s - self._since_s < AFTER_S:
            return
        self._since_s = now_s
        if await asyncio.to_thread(_answers, parents[0]):
            self._dialler.renew(f"{parents[0].member} answers again")


def _answers(endpoint: Endpoint) -> bool:
    """Whether somebody listens there; who it is the handshake will tell."""
    with contextlib.suppress(OSError), socket.create_connection((endpoint.host, endpoint.port), KNOCK_S):
        return True
    return False
