"""Plan and certificate of a member in a pod, fetched side by side.

Says what a sidecar still waits for before it can be whole, and what keeps a whole one from being well.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sync_runtime.membership.api import ClusterApi
from sync_runtime.pod.certificates import CertificateSource
from sync_runtime.pod.plans import PlanSource
from sync_runtime.settings import SidecarSettings

NO_PLAN: Final = "NoPlan"
AGAIN_S: Final = 60.0
"""After a failure that nobody foresaw: a plan that comes late is better than none for ever."""

_log = logging.getLogger(__name__)


class Provision:
    """What the API server gives a member."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._api = ClusterApi(token_dir=settings.token_dir)
        self.plan = PlanSource(self._api, settings)
        self.certificate = CertificateSource(self._api, settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def trouble(self) -> tuple[str, str] | None:
        """What is wrong, in a word and a sentence; None: nothing."""
        if self.certificate.trouble is not None:
            return self.certificate.trouble
        if not self.plan.has_plan:
            return NO_PLAN, self.plan.problem or "the plan has not come yet"
        return None

    def start(self) -> None:
        """Fetches in the background, until closed."""
        self._run(self.plan)
        self._run(self.certificate)

    async def close(self) -> None:
        """Ends it; what was fetched stays."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.close()

    def _run(self, source: PlanSource | CertificateSource) -> None:
        if self._closed:
            return
        task = asyncio.create_task(source.run())
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                _log.error("%s failed and is begun again", type(source).__name__, exc_info=task.exception())
                task.get_loop().call_later(AGAIN_S, self._run, source)

        task.add_done_callback(ended)
