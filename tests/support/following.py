"""Waiting for a member to be where the trainer is."""

from __future__ import annotations

from sync_runtime import Subscriber
from sync_runtime.library.version import Version
from tests.support.groups import wait_for


def follow(subscriber: Subscriber, seq: int, timeout_s: float = 30.0) -> None:
    """Activates until a version is live."""

    def there() -> bool:
        subscriber.wait(timeout=0.5)
        subscriber.activate()
        return subscriber.version is not None and subscriber.version.seq >= seq

    wait_for(there, timeout_s, what=f"version {seq}")


def activated(subscriber: Subscriber) -> Version | None:
    """Takes what is staged, if anything is, and tells where it is then."""
    subscriber.wait(timeout=0.5)
    subscriber.activate()
    return subscriber.version
