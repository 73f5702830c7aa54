"""Events, posted one after the other beside the passes: no pass waits for what is only a courtesy.

The status says it, too, so what cannot be posted is logged and dropped; so is the oldest where too many wait. What is
worth an Event the planner decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from syncgroup_operator.errors import OperatorError
from syncgroup_operator.kube.events import EventRecorder, Subject
from syncgroup_operator.planning.decision import Note

_log = logging.getLogger(__name__)
MAX_WAITING: Final = 10_000


class News:
    """What is still to be said, in order."""

    def __init__(self, recorder: EventRecorder, max_waiting: int = MAX_WAITING) -> None:
        self._recorder = recorder
        self._waiting: deque[tuple[Subject, Note]] = deque(maxlen=max_waiting)
        self._more = asyncio.Event()
        self._all_said = asyncio.Event()
        self._all_said.set()

    def say(self, subject: Subject, note: Note) -> None:
        """Have an Event posted soon."""
        self._waiting.append((subject, note))
        self._all_said.clear()
        self._more.set()

    async def run(self) -> None:
        """Post what comes, for ever."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await self._post(*self._waiting.popleft())
            self._all_said.set()

    async def end(self, patience_s: float) -> None:
        """Return when all is said, or after a while."""
        try:
            async with asyncio.timeout(patience_s):
                await self._all_said.wait()
        except TimeoutError:
            _log.info("%d events were not posted before the end", len(self._waiting))

    async def _post(self, subject: Subject, note: Note) -> None:
        try:
            await self._recorder.post(subject, type=note.type, reason=note.reason, note=note.message)
        except OperatorError as error:  # whatever it is, the next one may come through
            _log.info("no event for %s/%s: %s", subject.namespace, subject.name, error)
