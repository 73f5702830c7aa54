"""Waiting for a member to be where the trainer is."""

from __future__ import annotations

from sync_runtime import Subscriber
from sync_runtime.library.version import Version
from tests.support.groups import Group, wait_for


def follow(subscriber: Subscriber, seq: int, timeout_s: float = 30.0) -> None:
    """Activates until a version is live."""

    def there() -> bool:
        subscriber.wait(timeout=0.5)
        subscriber.activate()
        return subscriber.version is not None and subscriber.version.seq >= seq

    wait_for(there, timeout_s, what=f"version {seq}")


def heard_of(group: Group, name: str, seq: int) -> None:
    """Waits until a member's sidecar knows that this version is the newest: a publish does not wait for that."""
    wait_for(lambda: (group.ask(name, "/v1/status")["head"] or {}).get("seq") == seq, what=f"{name} of version {seq}")


def activated(subscriber: Subscriber) -> Version | None:
    """Takes what is staged, if anything is, and tells where it is then."""
    subscriber.wait(timeout=0.5)
    subscriber.activate()
    return subscriber.version
