"""The coder `library`: weights are on a GPU and are extracted, encoded, decoded and written there. Needs triton."""

from __future__ import annotations

from collections.abc import Callable

from sync_runtime.library.coders import PublishCoder
from sync_runtime.library.device_idle import IdlePublisher
from sync_runtime.library.device_publish import DevicePublisher
from sync_runtime.library.device_stage import DeviceSubscriber
from sync_runtime.library.weights import Weights


def make_publisher(weights: Weights, *, host_snapshot: bool = False) -> PublishCoder:
    """For one publisher; one of several ranks may have nothing to publish."""
    if weights.is_part and not weights.holding.counted:
        return IdlePublisher(weights)
    return DevicePublisher(weights, pinned=host_snapshot)


def make_subscriber(weights: Weights, between: Callable[[], None]) -> DeviceSubscriber:
    """For one subscriber; its work is short enough not to be interrupted."""
    del between
    return DeviceSubscriber(weights)
