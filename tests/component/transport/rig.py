"""Parents and children in one process, over real sockets and real TLS, with everything they tell recorded."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from sync_runtime.contract.plan import Endpoint
from sync_runtime.errors import RefusedError
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.watch import CertificateWatch
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.dialler import Dialler
from sync_runtime.transport.events import ChildConnected, Event, ParentConnected
from sync_runtime.transport.listener import Admission, Limits, Listener
from sync_runtime.transport.loopback import MemorySink, MemorySource
from sync_runtime.transport.messages import Begin, Hello
from sync_runtime.transport.parent import ParentLink
from tests.support.identities import Group

LINEAGE = "ab" * 16
INCARNATION = "cd" * 16
_Event = TypeVar("_Event")


class Recorder:
    """An `emit` that keeps everything, in order."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._more = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._more:
            self._events.append(event)
            self._more.notify_all()

    def everything(self) -> list[Event]:
        with self._more:
            return list(self._events)

    def all(self, kind: type[_Event]) -> list[_Event]:
        with self._more:
            return [event for event in self._events if isinstance(event, kind)]

    def wait(
        self, kind: type[_Event], which: Callable[[_Event], bool] = lambda _: True, timeout_s: float = 8.0
    ) -> _Event:
        """The first such event, past ones too."""
        with self._more:
            found: list[_Event] = []

            def there() -> bool:
                found[:] = [event for event in self._events if isinstance(event, kind) and which(event)]
                return bool(found)

            assert self._more.wait_for(there, timeout_s), f"no {kind.__name__}; there are {self._events}"
            return found[0]


class OpenDoor:
    """Admits every member of the group but those it is told to refuse."""

    def __init__(self, member: str = "trainer-0", streams: int = 4, heartbeat_ms: int = 1000) -> None:
        self.admission = Admission(member, 3, INCARNATION, streams, heartbeat_ms)
        self.refusal: RefusedError | None = None

    def admit(self, identity: MemberIdentity, hello: Hello) -> Admission:
        if self.refusal:
            raise self.refusal
        return self.admission


class Parent:
    """A listening member."""

    def __init__(
        self,
        group: Group,
        member: str = "trainer-0",
        *,
        streams: int = 4,
        limits: Limits | None = None,
        port: int = 0,
        heartbeat_ms: int = 1000,
    ) -> None:
        self.member = member
        self.region = "us-east" if member.startswith("trainer") else "eu-west"
        self.folder = group.trainer(member) if member.startswith("trainer") else group.member(member)
        self.watch = CertificateWatch(self.folder)
        self.door = OpenDoor(member, streams, heartbeat_ms)
        self.events = Recorder()
        self.listener = Listener(
            ("127.0.0.1", port), lambda: self.watch.current().server, self.door, self.events, limits
        )
        self.listener.start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(
            member=self.member, cluster="hub", region=self.region, host="127.0.0.1", port=self.listener.port
        )

    def link(self, timeout_s: float = 8.0) -> ChildLink:
        """The first child's link that still lives."""
        self.events.wait(ChildConnected, timeout_s=timeout_s)
        wait_until(lambda: bool(self.listener.children), timeout_s)
        return self.listener.children[0]

    def close(self) -> None:
        self.listener.close()


class Child:
    """A dialling member."""

    def __init__(
        self, group: Group, parents: Sequence[Endpoint], member: str = "rollout-0", sink: MemorySink | None = None
    ) -> None:
        self.folder: Path = group.member(member)
        self.watch = CertificateWatch(self.folder)
        self.events = Recorder()
        self.sink = sink or MemorySink()
        self.dialler = Dialler(
            parents,
            tls=lambda: self.watch.current().client,
            hello=hello(group, member),
            emit=self.events,
            sink=self.sink,
        )
        self.dialler.start()

    def link(self, timeout_s: float = 8.0) -> ParentLink:
        self.events.wait(ParentConnected, timeout_s=timeout_s)
        wait_until(lambda: self.dialler.link is not None, timeout_s)
        link = self.dialler.link
        assert link is not None
        return link

    def close(self) -> None:
        self.dialler.close()


def hello(group: Group, member: str = "rollout-0") -> Hello:
    return Hello(
        protocols=[1],
        kind="control",
        group=group.group_uid,
        member=member,
        cluster="spoke",
        region="eu-west",
        role="rollout",
        term=0,
        token=None,
    )


def begin(
    seq: int = 1, *, priority: int = 0, source: MemorySource | None = None, size_bytes: int | None = None
) -> Begin:
    return Begin(
        key=f"{LINEAGE}/{seq - 1}-{seq}.fast",
        base=None,
        target_seq=seq,
        codec="fast",
        layout="ef" * 32,
        term=3,
        incarnation=INCARNATION,
        priority=priority,
        bytes=size_bytes,
        buckets=len(source) if source else None,
    )


def payload(num_buckets: int, bucket_bytes: int = 64 << 10) -> tuple[bytes, MemorySource]:
    data = os.urandom(num_buckets * bucket_bytes)
    return data, MemorySource(data, [bucket_bytes] * num_buckets)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def wait_until(condition: Callable[[], bool], timeout_s: float = 8.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.005)
