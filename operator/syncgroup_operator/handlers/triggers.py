"""Watch events of SyncGroups and SyncClusters become wake-ups; nothing is decided here.

Only `on.event` handlers: kopf then keeps no progress on the user's objects and adds no finalizer of its own.
"""

from __future__ import annotations

from typing import Any

import kopf

from sync_runtime.contract.names import API_GROUP, API_VERSION, SYNCCLUSTER_PLURAL, SYNCGROUP_PLURAL
from syncgroup_operator.execute.engine import Engine

DELETED = "DELETED"


def register(registry: kopf.OperatorRegistry, engine: Engine) -> None:
    """Connect the watches to an engine."""

    @kopf.on.event(API_GROUP, API_VERSION, SYNCGROUP_PLURAL, registry=registry)
    async def group_seen(event: kopf.RawEvent, **_: Any) -> None:
        body: Any = event["object"]
        if event["type"] == DELETED:
            engine.drop_group(body)
        else:
            engine.put_group(body)

    @kopf.on.event(API_GROUP, API_VERSION, SYNCCLUSTER_PLURAL, registry=registry)
    async def cluster_seen(event: kopf.RawEvent, **_: Any) -> None:
        body: Any = event["object"]
        if event["type"] == DELETED:
            await engine.drop_cluster(body)
        else:
            engine.put_cluster(body)
