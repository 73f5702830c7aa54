"""All stores that a trainer's sidecar feeds: one thread each, begun and ended as the plan says.

A store that is slow or away holds up none of the others. What happens in one is `store`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.session.catch_up import Maker
from sync_runtime.sidecar.store import StoreFeeder, fed_by
from sync_runtime.sidecar.store_book import StoreBooks

if TYPE_CHECKING:
    from sync_runtime.sidecar.brain import Sidecar


class StoreFeeders:
    """Runs in the sidecar's loop."""

    def __init__(
        self,
        sidecar: Sidecar,
        maker: Maker,
        make_anchor: Callable[[ObjectKey], Awaitable[None]],
        trace_of: Callable[[VersionRef], str],
    ) -> None:
        self._sidecar, self._maker, self._make_anchor, self._trace_of = sidecar, maker, make_anchor, trace_of
        self._feeders: dict[str, StoreFeeder] = {}
        """By what tells one store of the plan from another."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.heed_plan()

    @property
    def any(self) -> bool:
        """Whether there is a store at all."""
        return bool(self._feeders)

    @property
    def books(self) -> StoreBooks | None:
        """What was done with the stores; None: there is none."""
        return StoreBooks([(one.address, one.book) for one in self._feeders.values()]) if self._feeders else None

    def heed_plan(self) -> None:
        """Begins to feed the plan's stores, and ends with those that it names no more."""
        wanted = {fed.model_dump_json(): fed for fed in fed_by(self._sidecar.plans.plan)}
        for key in [key for key in self._feeders if key not in wanted]:
            self._sidecar.spawn(asyncio.to_thread(self._feeders.pop(key).close))
        for key, fed in wanted.items():
            if key not in self._feeders:
                feeder = StoreFeeder(self._sidecar, fed, self._maker, self._make_anchor, self._trace_of)
                self._feeders[key] = feeder
                if self._loop is not None:
                    feeder.start(self._loop)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Feeds from now on."""
        self._loop = loop
        for feeder in self._feeders.values():
            feeder.start(loop)

    def wake(self) -> None:
        """A version is durable."""
        for feeder in self._feeders.values():
            feeder.wake()

    def are_at(self, version: VersionRef | None) -> bool:
        """Whether every store has this version as its newest."""
        return all(feeder.level == version for feeder in self._feeders.values())

    async def close(self) -> None:
        """Ends after what is being put, in all of them at once."""
        await asyncio.gather(*(asyncio.to_thread(feeder.close) for feeder in self._feeders.values()))
