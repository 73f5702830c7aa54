"""Answers of the sidecar, handed from the thread that receives to the threads that asked."""

from __future__ import annotations

import threading
import time
from typing import TypeVar

from sync_runtime.errors import SidecarLostError, SyncError
from sync_runtime.local.faults import to_error
from sync_runtime.local.messages import (
    Activate,
    Close,
    Closed,
    Error,
    Go,
    Histograms,
    Message,
    Open,
    Opened,
    Publish,
    Published,
    Recode,
    Scrub,
    Scrubbed,
    Share,
    Tables,
    name_of,
)

T = TypeVar("T", Opened, Published, Go, Scrubbed, Closed, Tables)
ANSWERS: dict[type[Message], type[Message]] = {
    Open: Opened,
    Publish: Published,
    Histograms: Tables,
    Activate: Go,
    Scrub: Scrubbed,
    Close: Closed,
}
"""What each request is answered by."""
LATE = (Error, *ANSWERS.values())
"""What is thrown away where nobody waits for it: whoever asked has given up."""
_REQUEST_OF = {answer: name_of(request) for request, answer in ANSWERS.items()}


class Replies:
    """One place for the answer to each kind of request; a kind is asked by one thread at a time."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """Notified whenever anything arrives; owners of other news share it."""
        self.share: str | None = None
        """What this rank adds to the digest of the version that was answered last; None: it is the only rank."""
        self.recode = False
        """Whether the version that is being published is wanted in another codec too; whoever publishes clears it."""
        self._expected: set[str] = set()
        self._found: dict[str, Message | SyncError] = {}

    def expect(self, request: type[Message]) -> None:
        """Before a request is sent: forgets an answer that came too late for the last one."""
        with self.changed:
            self._expected.add(name_of(request))
            self._found.pop(name_of(request), None)

    def arrived(self, message: Message) -> bool:
        """Keeps an answer; False where the message is none, or nobody waits for it."""
        name = message.request if isinstance(message, Error) else _REQUEST_OF.get(type(message))
        with self.changed:
            if isinstance(message, Share):
                self.share = message.digest
                return True
            if isinstance(message, Recode):
                self.recode = True
                return True
            if name is None or name not in self._expected:
                return False
            self._expected.discard(name)
            self._found[name] = to_error(message) if isinstance(message, Error) else message
            self.changed.notify_all()
            return True

    def error_of(self, request: type[Message]) -> SyncError | None:
        """The error that answered a request already."""
        with self.changed:
            found = self._found.get(name_of(request))
            return found if isinstance(found, SyncError) else None

    def is_answered(self, request: type[Message]) -> bool:
        """Whether `take` would not wait."""
        with self.changed:
            return name_of(request) in self._found

    def take(self, answer: type[T], timeout_s: float) -> T:
        """Waits for an answer; raises the error that came instead, or SidecarLostError where none came in time."""
        name = _REQUEST_OF[answer]
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while name not in self._found:
                rest_s = deadline - time.monotonic()
                if rest_s <= 0 or not self.changed.wait(rest_s):
                    self._expected.discard(name)
                    raise SidecarLostError(f"the sidecar did not answer {name} within {timeout_s:.3g} s: try again")
            found = self._found.pop(name)
        if isinstance(found, SyncError):
            raise found
        if not isinstance(found, answer):
            raise SidecarLostError(f"the sidecar gave another answer to {name}")
        return found

    def fail_all(self, error: SyncError) -> None:
        """The sidecar is gone: everyone who waits hears it."""
        with self.changed:
            for name in self._expected:
                self._found[name] = error
            self._expected.clear()
            self.changed.notify_all()
