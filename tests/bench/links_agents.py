"""The two ends of a measured link, each a process inside a region: `python -m tests.bench.links_agents ROLE JSON`.

`parent` listens and sends opaque payloads with pauses, tuned as a sidecar would; `child` dials and verifies. They speak
JSON lines on standard output. `plain-parent` and `plain-child` (links_plain) are what they are compared with.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sync_runtime.bucket.packer import cut_sizes
from sync_runtime.contract.plan import BucketPlan, Endpoint, LinkPlan, StreamPlan
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.tls import client_context, server_context
from sync_runtime.links.memory import LinkMemory
from sync_runtime.links.meter import LinkEnds
from sync_runtime.links.tcp_info import parse_tcp_info
from sync_runtime.session.links import TunedLink
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.dialler import Dialler
from sync_runtime.transport.events import ChildConnected, Event, PayloadDone, StreamLost, StreamSample
from sync_runtime.transport.listener import Admission, Listener
from sync_runtime.transport.loopback import MemorySource
from sync_runtime.transport.messages import Begin, Hello
from sync_runtime.tuning.controller import Decision
from tests.bench import links_plain

LINEAGE = "ab" * 16
INCARNATION = "cd" * 16
PORT = 7443
MIB = 1 << 20
ENDS = LinkEnds("hub", "us-east", "spoke", "eu-west", "rollout-0")


def bounds(config: dict[str, Any]) -> LinkPlan:
    """The plan's bounds, as wide as they go unless a study narrows them."""
    seed, least, most = config.get("bounds", (4, 1, 64))
    return LinkPlan(
        from_cluster="hub",
        from_region="us-east",
        codec="Fast",
        streams=StreamPlan(seed=seed, min=least, max=most),
        bucket_bytes=BucketPlan(seed=256 << 10, min=64 << 10, max=2 * MIB),
    )


def say(**figures: object) -> None:
    """One line for whoever started us."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


class Everyone:
    """Admits every member of the group."""

    def __init__(self, member: str, streams: int) -> None:
        self._admission = Admission(member, 1, INCARNATION, streams)

    def admit(self, identity: MemberIdentity, hello: Hello) -> Admission:
        """Always."""
        return self._admission


class OpaqueSink:
    """Verified buckets end here."""

    def put(self, *, transfer: int, key: str, index: int, offset: int, data: memoryview, sha256: bytes) -> bool:
        """Kept, as far as a benchmark is concerned."""
        return True


def begin(seq: int, size_bytes: int, buckets: int) -> Begin:
    """The announcement of payload `seq`."""
    return Begin(
        key=f"{LINEAGE}/{seq}-{seq + 1}.fast",
        base=None,
        target_seq=seq + 1,
        codec="fast",
        layout="ef" * 32,
        term=1,
        incarnation=INCARNATION,
        priority=0,
        bytes=size_bytes,
        buckets=buckets,
    )


def opaque(size_bytes: int) -> bytes:
    """Bytes that nobody compresses."""
    return os.urandom(MIB) * (size_bytes // MIB + 1)


def rss_mb() -> float:
    """The most memory this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Sender:
    """The parent's end: payloads, one after the other, to one child."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._memory = LinkMemory(Path(config["memory"]))
        self._memory.load()
        folder = Path(config["identity"])
        context = server_context(folder)
        self._listener = Listener(
            ("", PORT), lambda: context, Everyone("trainer-0", config.get("streams", 1)), self._events.put
        )
        self._samples: list[StreamSample] = []
        self._data = memoryview(opaque(config["size_bytes"]))[: config["size_bytes"]]

    def run(self) -> None:
        """All payloads; one line each."""
        self._listener.start()
        say(ready=True)
        link = self._wait(ChildConnected).link
        tuned = TunedLink(link, ENDS, bounds(self._config), self._memory)
        wanted = tuned.before_payload(len(self._data)).open_streams
        self._pause(tuned, self._config["warm_up_s"])
        say(streams=link.stats.streams, wanted=wanted, congestion_control=link.stats.congestion_control)
        for number in range(self._config["payloads"]):
            self._payload(tuned, link, number)
            self._pause(tuned, self._config["pause_s"])
        self._memory.save()
        totals = link.stats.totals
        say(rss_mb=rss_mb(), sent_bytes=totals.sent_bytes, reissued=totals.reissued_buckets, lost=totals.lost_streams)
        self._listener.close()

    @property
    def acked_bytes(self) -> int:
        """By all children so far."""
        return sum(link.stats.totals.acked_bytes for link in self._listener.children)

    def run_without_pause(self) -> None:
        """The next payload is announced before the last one has ended, as after long pauses of a trainer."""
        self._listener.start()
        say(ready=True)
        link = self._wait(ChildConnected).link
        tuned = TunedLink(link, ENDS, bounds(self._config), self._memory)
        self._pause(tuned, self._config["warm_up_s"])
        self._announce(tuned, link, 0)
        number = 1
        while True:
            self._announce(tuned, link, number)
            self._wait(PayloadDone, tuned)
            number += 1

    def _announce(self, tuned: TunedLink, link: ChildLink, number: int) -> Decision:
        decision = tuned.before_payload(len(self._data))
        source = MemorySource(self._data, cut_sizes(len(self._data), decision.bucket_bytes, decision.streams))
        transfer = link.begin(begin(number, len(self._data), len(source)), source, range(len(source)))
        link.complete(transfer, b"opaque")
        return decision

    def _payload(self, tuned: TunedLink, link: ChildLink, number: int) -> None:
        self._samples.clear()
        decision = self._announce(tuned, link, number)
        done = self._wait(PayloadDone, tuned)
        infos = [parse_tcp_info(sample.tcp_info) for sample in self._samples]
        queueing = [i.rtt_s - i.min_rtt_s for i in infos if i.rtt_s is not None and i.min_rtt_s is not None]
        say(
            payload=number,
            seconds=done.ended_s - done.started_s,
            streams=done.streams,
            bucket_bytes=decision.bucket_bytes,
            repeated_bytes=done.repeated_bytes,
            queueing_ms=1000 * sum(queueing) / len(queueing) if queueing else 0.0,
            reason=tuned.controller.decision.reason,
        )

    def _wait(self, kind: type[Any], tuned: TunedLink | None = None, timeout_s: float = 120.0) -> Any:
        """The next such event; what comes before goes to the tuning."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            event = self._next(deadline_s)
            self._take(event, tuned)
            if isinstance(event, kind):
                return event

    def _pause(self, tuned: TunedLink, pause_s: float) -> None:
        deadline_s = time.monotonic() + pause_s
        while True:
            try:
                self._take(self._next(deadline_s), tuned)
            except queue.Empty:
                return

    def _next(self, deadline_s: float) -> Event:
        return self._events.get(timeout=max(0.0, deadline_s - time.monotonic()))

    def _take(self, event: Event, tuned: TunedLink | None) -> None:
        if isinstance(event, StreamSample):
            self._samples.append(event)
        if isinstance(event, StreamLost):
            say(lost=event.stream, why=event.reason)
        if tuned:
            tuned.on_event(event)


def child(config: dict[str, Any]) -> None:
    """Dial and verify until standard input ends."""
    context = client_context(Path(config["identity"]))
    dialler = Dialler(
        [Endpoint(member="trainer-0", cluster="hub", region="us-east", host=config["host"], port=PORT)],
        tls=lambda: context,
        hello=Hello(
            protocols=[1],
            kind="control",
            group=config["group"],
            member=config["member"],
            cluster="spoke",
            region="eu-west",
            role="rollout",
            term=0,
        ),
        emit=lambda event: None,
        sink=OpaqueSink(),
    )
    dialler.start()
    sys.stdin.read()
    say(rss_mb=rss_mb())
    dialler.close()


def busy(config: dict[str, Any]) -> None:
    """Payloads without a pause, until killed; how many bytes were acknowledged when."""
    sender = Sender(config)
    threading.Thread(target=sender.run_without_pause, daemon=True).start()
    while True:
        time.sleep(0.1)
        say(at_s=time.monotonic(), acked_bytes=sender.acked_bytes)


def main() -> None:
    """Run one role."""
    from tests.bench import links_crowd  # it stands on this module

    role, config = sys.argv[1], json.loads(sys.argv[2])
    threading.stack_size(256 << 10)  # many streams, small frames
    roles: dict[str, Callable[[], None]] = {
        "parent": lambda: Sender(config).run(),
        "child": lambda: child(config),
        "busy-parent": lambda: busy(config),
        "many-parent": lambda: links_crowd.Many(config).run(),
        "many-children": lambda: links_crowd.many_children(config),
        "plain-parent": lambda: links_plain.parent(config, say),
        "plain-child": lambda: links_plain.child(config),
    }
    roles[role]()


if __name__ == "__main__":
    main()
