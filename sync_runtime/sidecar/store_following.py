"""A rollout's way to its object store, begun and ended as the plan says: others become relays, regions go over.

What follows the store is `StoreFollower`; what passes there is written into the member's book.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sync_runtime.errors import SyncError
from sync_runtime.sidecar.store import book_of, follower_of, follows_store
from sync_runtime.sidecar.store_book import StoreBook
from sync_runtime.transport.events import ParentGone
from sync_runtime.transport.object_store.parent import StoreFollower
from sync_runtime.transport.stream import BucketSink

if TYPE_CHECKING:
    from sync_runtime.contract.sync import ObjectStore
    from sync_runtime.sidecar.brain import Sidecar

_log = logging.getLogger(__name__)
NEW_PLAN = "NewPlan"


class StoreFollowing:
    """Runs in the sidecar's loop."""

    def __init__(self, sidecar: Sidecar, sink: BucketSink) -> None:
        self._sidecar, self._sink = sidecar, sink
        self._follower: StoreFollower | None = None
        self._store: tuple[ObjectStore, str | None] | None = None
        """What is followed; None: nothing."""
        self._has_started = False
        self.book: StoreBook | None = None

    @property
    def is_on(self) -> bool:
        """Whether the plan has a store in this member's parents' place."""
        return self._store is not None

    def heed_plan(self) -> None:
        """Follows the plan's store from now on, another one, or none."""
        plans = self._sidecar.plans
        store = plans.plan.object_store if follows_store(plans) else None
        wanted = None if store is None else (store, plans.plan.store_keys)
        if wanted == self._store:
            return
        self._let_go()
        self._store = wanted
        if wanted is None:
            return
        self.book = book_of(self._sidecar, "fetched")
        try:
            self._follower = follower_of(self._sidecar, self._sink, self.book)
        except SyncError as error:
            if not self._has_started:
                raise
            self.book.failed(error)  # told in the report; the plan, or a pod with other credentials, mends it
            _log.warning("the object store of the new plan cannot be followed: %s", error)
            return
        if self._has_started:
            self._follower.start()

    def start(self) -> None:
        """Polls from now on."""
        self._has_started = True
        if self._follower is not None:
            self._follower.start()

    def renew(self) -> None:
        """Heeds new certificates."""
        if self._follower is not None:
            self._follower.renew()

    def close(self) -> None:
        """Polls no more; may wait for what is being fetched."""
        if self._follower is not None:
            self._follower.close()

    def _let_go(self) -> None:
        follower, self._follower, self.book = self._follower, None, None
        if follower is None:
            return
        link = follower.link
        if link is not None:  # the session must not wait for what it asked a store for
            self._sidecar.emit(ParentGone(link, NEW_PLAN, "the plan names other parents"))
        self._sidecar.spawn(asyncio.to_thread(follower.close))
