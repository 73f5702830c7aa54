"""Renews the lease for as long as the sidecar runs, whatever happens to it.

The only loop that retries here. A failed renewal is counted, its sentence kept for the control API, and tried again
with back-off; it raises nothing and stops nothing. Durations are measured on the monotonic clock: a clock that jumps
neither hastens nor delays a renewal.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
import time
from collections.abc import Callable
from typing import Final, Protocol

from sync_runtime.contract.reports import MemberReport
from sync_runtime.membership.documents import LeaseTimes
from sync_runtime.membership.errors import MembershipError

LEAST_PAUSE_S: Final = 1.0
"""Between two renewals, however often somebody calls `wake`."""
JITTER: Final = 0.1
"""Members of a large group must not renew in step after an outage."""

_log = logging.getLogger(__name__)


class Lease(Protocol):
    """Where a lease is kept."""

    async def renew(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> None:
        """Renew it once, creating it where it does not exist; raises MembershipError."""

    async def close(self) -> None:
        """Let connections go; the lease stays and runs out by itself."""


class LeaseKeeper:
    """Keeps one lease."""

    def __init__(
        self,
        lease: Lease,
        report: Callable[[], MemberReport],
        times: Callable[[], LeaseTimes],
        *,
        timeout_s: float = 5.0,
    ) -> None:
        """`report` and `times` are asked before every renewal: the plan may change while the sidecar runs."""
        self._lease = lease
        self._report = report
        self._times = times
        self._timeout_s = timeout_s
        self._wake = asyncio.Event()
        self._renewed_at: float | None = None
        self.renewals = 0
        self.failures = 0
        """In a row; 0 while all is well."""
        self.problem: str | None = None
        """Why the last renewal failed, in a sentence."""

    async def run(self) -> None:
        """Renew until cancelled."""
        try:
            while True:
                await self._renew()
                pause_s = next_pause_s(self._times().interval_s, self.failures, random.random())  # noqa: S311 jitter
                await self._sleep(pause_s)
        finally:
            await self._lease.close()

    def wake(self) -> None:
        """Something in the report matters now: renew soon."""
        self._wake.set()

    def age_s(self) -> float | None:
        """Seconds since the lease was last renewed; None: never."""
        return None if self._renewed_at is None else time.monotonic() - self._renewed_at

    async def _renew(self) -> None:
        self._wake.clear()
        now = datetime.datetime.now(datetime.UTC)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._lease.renew(self._report(), self._times().duration_s, now)
        # ValueError: figures that the contract does not allow in a report; our bug, and no reason to look dead later.
        except (MembershipError, TimeoutError, ValueError) as error:
            sentence = str(error) or f"no answer within {self._timeout_s:g} s"
            if not self.failures:  # once per outage
                _log.warning("the lease was not renewed, the member goes on: %s", sentence)
            self.failures += 1
            self.problem = sentence
            return
        if self.failures:
            _log.info("the lease is renewed again after %d failures", self.failures)
        self.renewals += 1
        self.failures, self.problem = 0, None
        self._renewed_at = time.monotonic()

    async def _sleep(self, pause_s: float) -> None:
        least_s = min(LEAST_PAUSE_S, pause_s)
        await asyncio.sleep(least_s)
        try:
            # Not wait_for: a cancellation that comes together with a wake-up would be lost in it (Python 3.11).
            async with asyncio.timeout(pause_s - least_s):
                await self._wake.wait()
        except TimeoutError:
            return


def next_pause_s(interval_s: float, failures: int, chance: float) -> float:
    """How long to wait for the next renewal: the interval, or after failures 1, 2, 4 … s up to it; ± 10 %."""
    pause_s = interval_s if not failures else min(interval_s, LEAST_PAUSE_S * 2 ** min(failures - 1, 16))
    return pause_s * (1 + JITTER * (2 * chance - 1))
