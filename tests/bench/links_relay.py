"""A member of a region for the tree benchmarks: receives an opaque payload, and serves it to whoever dials it.

    python -m tests.bench.links_relay JSON

Every member can be a relay. It forwards a bucket as soon as it is verified; a child that comes late or comes back says
what it has (WANT) and gets the rest. Prints when it is connected, when it has everything, and what that cost.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sync_runtime.bucket.packer import cut_sizes
from sync_runtime.contract.plan import Endpoint
from sync_runtime.identity.tls import client_context, server_context
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.dialler import Dialler
from sync_runtime.transport.events import (
    BucketKept,
    ChildGone,
    Event,
    MessageArrived,
    ParentConnected,
    ParentGone,
    PayloadDone,
)
from sync_runtime.transport.listener import Listener
from sync_runtime.transport.loopback import MemorySink, MemorySource, missing
from sync_runtime.transport.messages import Begin, Hello, ManifestEnvelope, Want
from sync_runtime.transport.parent import ParentLink
from tests.bench.links_agents import Everyone, begin, opaque, rss_mb, say


class Member:
    """One member: a dialler upwards, a listener downwards, one payload at a time in memory."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._name = config["member"]
        folder = Path(config["identity"])
        server, client = server_context(folder), client_context(folder)
        self._sink = MemorySink()
        self._listener = Listener(
            ("", config["port"]), lambda: server, Everyone(self._name, config["streams"]), self._events.put
        )
        self._dialler = Dialler(
            [Endpoint(**parent) for parent in config["parents"]],
            tls=lambda: client,
            hello=Hello(
                protocols=[1],
                kind="control",
                group=config["group"],
                member=self._name,
                cluster="spoke",
                region=config["region"],
                role="rollout",
                term=0,
            ),
            emit=self._events.put,
            sink=self._sink,
        )
        self._begin: Begin | None = None
        self._envelope: bytes | None = None
        self._kept: set[int] = set()
        self._children: dict[ChildLink, tuple[str, int, frozenset[int]]] = {}
        """By link: key, transfer, and what the child has from elsewhere."""
        self._half_said = False
        self._received_bytes = 0

    def run(self) -> None:
        """Until standard input ends."""
        self._listener.start()
        self._dialler.start()
        threading.Thread(target=self._watch_input, daemon=True).start()
        while (event := self._events.get()) is not None:
            self._take(event)
        say(member=self._name, rss_mb=rss_mb())
        self._dialler.close()
        self._listener.close()

    def _watch_input(self) -> None:
        sys.stdin.read()
        self._events.put(None)

    def _take(self, event: Event) -> None:
        match event:
            case ParentConnected(link=ParentLink() as link):
                self._ask(link)
                say(member=self._name, parent=link.name, at_s=time.monotonic())
            case ParentGone(link=ParentLink() as link):
                self._received_bytes += link.totals.kept_bytes + link.totals.repeated_bytes
                say(member=self._name, gone=link.name, why=event.reason, at_s=time.monotonic())
            case MessageArrived(message=Begin() as begin):
                self._started(begin)
            case MessageArrived(message=ManifestEnvelope(_, envelope)):
                self._envelope = envelope
                self._maybe_complete()
            case MessageArrived(link=link, message=Want() as want) if isinstance(link, ChildLink):
                self._serve(link, want)
            case BucketKept(index=index):
                self._kept_one(index)
            case ChildGone(link=link):
                self._children.pop(link, None)
            case _:
                pass

    def _ask(self, link: ParentLink) -> None:
        """Say what is here already; an empty key is never sent before the first object."""
        key = self._begin.key if self._begin and len(self._kept) != self._begin.buckets else "-"
        link.send(Want(key=key, have=self._sink.have(key)))

    def _started(self, begin: Begin) -> None:
        if self._begin is None or self._begin.key != begin.key:
            if self._begin:
                self._sink.forget(self._begin.key)
            self._begin, self._envelope, self._half_said = begin, None, False
            self._kept = set()
            for link in self._listener.children:
                self._offer(link, ())

    def _serve(self, link: ChildLink, want: Want) -> None:
        if self._begin is not None and self._children.get(link, ("",))[0] != self._begin.key:
            self._offer(link, want.have if want.key == self._begin.key else ())

    def _offer(self, link: ChildLink, have: Iterable[Sequence[int]]) -> None:
        if self._begin is None or self._begin.buckets is None:
            return
        wanted = missing(self._begin.buckets, have)
        there = [index for index in wanted if index in self._kept]
        transfer = link.begin(self._begin, self._sink.object(self._begin.key), there)
        elsewhere = frozenset(range(self._begin.buckets)) - frozenset(wanted)
        self._children[link] = (self._begin.key, transfer, elsewhere)
        if self._envelope is not None and len(self._kept) == self._begin.buckets:
            link.complete(transfer, self._envelope)

    def _kept_one(self, index: int) -> None:
        if self._begin is None or self._begin.buckets is None:
            return
        self._kept.add(index)
        for link, (_, transfer, elsewhere) in self._children.items():
            if index not in elsewhere:
                link.add_bucket(transfer, index)
        if not self._half_said and 2 * len(self._kept) >= self._begin.buckets:
            self._half_said = True
            say(member=self._name, half=self._begin.key, at_s=time.monotonic())
        if len(self._kept) == self._begin.buckets:
            self._whole()
        self._maybe_complete()

    def _whole(self) -> None:
        link = self._dialler.link
        received = self._received_bytes + (link.totals.kept_bytes + link.totals.repeated_bytes if link else 0)
        key = self._begin.key if self._begin else ""
        say(member=self._name, whole=key, at_s=time.monotonic(), parent=link.name if link else "", received=received)

    def _maybe_complete(self) -> None:
        if self._begin and self._envelope is not None and len(self._kept) == self._begin.buckets:
            for link, (_, transfer, _) in self._children.items():
                link.complete(transfer, self._envelope)


class Trainer:
    """The root: sends a payload to all its children whenever it reads a line, and the rest to whoever comes back."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        server = server_context(Path(config["identity"]))
        self._listener = Listener(
            ("", config["port"]), lambda: server, Everyone("trainer-0", config["streams"]), self._events.put
        )
        self._data = memoryview(opaque(config["size_bytes"]))[: config["size_bytes"]]
        self._source = MemorySource(self._data, cut_sizes(len(self._data), config["bucket_bytes"], config["streams"]))
        self._number = -1
        self._lock = threading.Lock()

    def run(self) -> None:
        """Until standard input ends."""
        self._listener.start()
        say(ready=True)
        threading.Thread(target=self._answer, daemon=True).start()
        for _ in sys.stdin:
            with self._lock:
                self._number += 1
                began_s = time.monotonic()
                for link in self._listener.children:
                    self._send(link, range(len(self._source)))
            say(sent=self._message().key, at_s=began_s, children=len(self._listener.children))
        say(rss_mb=rss_mb(), repeated=[link.stats.totals.repeated_bytes for link in self._listener.children])
        self._listener.close()

    def _message(self) -> Begin:
        return begin(self._number, len(self._data), len(self._source))

    def _send(self, link: ChildLink, indices: Iterable[int]) -> None:
        link.complete(link.begin(self._message(), self._source, indices), b"opaque")

    def _answer(self) -> None:
        while True:
            event = self._events.get()
            match event:
                case MessageArrived(link=ChildLink() as link, message=Want() as want):
                    with self._lock:
                        if self._number >= 0 and want.key == self._message().key:
                            self._send(link, missing(len(self._source), want.have))
                case PayloadDone(link=link):
                    say(done=link.name, at_s=event.ended_s, repeated=event.repeated_bytes)
                case _:
                    pass


if __name__ == "__main__":
    threading.stack_size(256 << 10)
    wanted = json.loads(sys.argv[1])
    Trainer(wanted).run() if wanted["member"] == "trainer-0" else Member(wanted).run()
