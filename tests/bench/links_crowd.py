"""Roles of links_agents beyond one pair: a parent that never pauses, one with many children, and the many."""

from __future__ import annotations

import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sync_runtime.bucket.packer import cut_sizes
from sync_runtime.contract.plan import Endpoint
from sync_runtime.identity.tls import client_context, server_context
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.dialler import Dialler
from sync_runtime.transport.events import ChildGone, Event, PayloadDone
from sync_runtime.transport.listener import Listener
from sync_runtime.transport.loopback import MemorySource
from sync_runtime.transport.messages import Hello
from tests.bench.links_agents import PORT, Everyone, begin, opaque, rss_mb, say

_PATIENCE_S = 120.0


class CountingSink:
    """Counts what arrives."""

    def __init__(self) -> None:
        self.received = 0

    def put(self, *, transfer: int, key: str, index: int, offset: int, data: memoryview, sha256: bytes) -> bool:
        """Kept, as far as a benchmark is concerned."""
        self.received += len(data)
        return True


class Many:
    """One payload to many children at a time."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        context = server_context(Path(config["identity"]))
        self._listener = Listener(("", PORT), lambda: context, Everyone("trainer-0", 1), self._events.put)
        data = memoryview(opaque(config["size_bytes"]))[: config["size_bytes"]]
        self._source = MemorySource(data, cut_sizes(len(data), 512 << 10, 1))

    def run(self) -> None:
        """All rounds; one line each."""
        self._listener.start()
        say(ready=True)
        wanted = self._config["children"]
        deadline_s = time.monotonic() + _PATIENCE_S
        while sum(link.stats.streams for link in self._listener.children) < wanted and time.monotonic() < deadline_s:
            time.sleep(0.1)
        for number in range(self._config["rounds"]):
            began_s = time.monotonic()
            links = self._listener.children
            for link in links:
                self._send(link, number)
            self._wait(len(links))
            say(round=number, seconds=time.monotonic() - began_s, children=len(links), rss_mb=rss_mb())
        self._listener.close()

    def _send(self, link: ChildLink, number: int) -> None:
        message = begin(number, self._config["size_bytes"], len(self._source))
        link.complete(link.begin(message, self._source, range(len(self._source))), b"opaque")

    def _wait(self, count: int) -> None:
        done = 0
        while done < count:
            event = self._events.get(timeout=_PATIENCE_S)
            match event:
                case ChildGone():
                    raise RuntimeError(f"{event.link.name} left: {event.message}")
                case PayloadDone():
                    done += 1
                case _:
                    pass


def many_children(config: dict[str, Any]) -> None:
    """A crowd in one process, until standard input ends."""
    sinks = []
    diallers = []
    for member in config["members"]:
        context = client_context(Path(member["identity"]))
        sink = CountingSink()
        dialler = Dialler(
            [Endpoint(member="trainer-0", cluster="hub", region="us-east", host=config["host"], port=PORT)],
            tls=lambda context=context: context,  # type: ignore[misc]
            hello=Hello(
                protocols=[1],
                kind="control",
                group=config["group"],
                member=member["member"],
                cluster="spoke",
                region="eu-west",
                role="rollout",
                term=0,
            ),
            emit=lambda event: None,
            sink=sink,
        )
        dialler.start()
        sinks.append(sink)
        diallers.append(dialler)
    sys.stdin.read()
    for sink in sinks:
        say(received=sink.received)
    threads = [threading.Thread(target=dialler.close) for dialler in diallers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
