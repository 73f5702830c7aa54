"""A trainer and regions of members over the emulator: time to the last member, bytes into a region, a killed relay."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from tests.bench.links_lab import MAX_LATE_P99_US, ROOT, bound_s, lab_of
from tests.bench.report import Report
from tests.support.identities import Group
from tools.linkemu import Lab, parse_link

LINK = "100ms/200M/0%"
SIZE_BYTES = 60_000_000
MEMBERS = 4
STREAMS = 4
BUCKET_BYTES = 256 << 10
PORT = 7500
_PATIENCE_S = 90.0


@dataclass
class Tree:
    """The processes of one tree, and everything they said."""

    lab: Lab
    processes: dict[str, subprocess.Popen[str]]
    said: queue.SimpleQueue[dict[str, Any]]
    lines: list[dict[str, Any]]

    def wait(self, count: int, **wanted: object) -> list[dict[str, Any]]:
        """The first `count` lines with these fields, past ones too."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            found = [line for line in self.lines if wanted.items() <= line.items()]
            if len(found) >= count:
                return found[:count]
            self.lines.append(self.said.get(timeout=max(0.01, deadline_s - time.monotonic())))

    def settled(self, members: int) -> None:
        """Wait until everyone has a parent."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while len({line["member"] for line in self.lines if "parent" in line and "whole" not in line}) < members:
            self.lines.append(self.said.get(timeout=max(0.01, deadline_s - time.monotonic())))

    def send(self) -> dict[str, Any]:
        """One payload from the trainer; when it began."""
        before = sum("sent" in line for line in self.lines)
        stdin = self.processes["trainer-0"].stdin
        if stdin is None:
            raise RuntimeError("the trainer has no standard input")
        stdin.write("\n")
        stdin.flush()
        while sum("sent" in line for line in self.lines) == before:
            self.lines.append(self.said.get(timeout=_PATIENCE_S))
        return [line for line in self.lines if "sent" in line][-1]

    def close(self) -> None:
        """End everything."""
        for process in self.processes.values():
            if process.stdin:
                process.stdin.close()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def grow(lab: Lab, group: Group) -> Tree:
    """Trainer in region a; in each other region four members: the relay, its standby, two more."""
    tree = Tree(lab, {}, queue.SimpleQueue(), [])
    trainer = {"member": "trainer-0", "cluster": "hub", "region": "us-east", "host": lab.address("a"), "port": PORT}
    start(
        tree, "a", trainer | {"identity": str(group.trainer()), "size_bytes": SIZE_BYTES, "bucket_bytes": BUCKET_BYTES}
    )
    tree.wait(1, ready=True)
    for region in lab.regions[1:]:
        places = [
            {"member": f"{region}-{n}", "cluster": "spoke", "region": "eu-west", "host": "127.0.0.1", "port": PORT + n}
            for n in range(MEMBERS)
        ]
        for number, place in enumerate(places):
            # The relay dials the trainer; its standby the relay; the others both, in this order; all the trainer last.
            parents = [*places[: min(number, 2)], trainer]
            identity = str(group.member(str(place["member"])))
            start(tree, region, place | {"identity": identity, "group": group.group_uid, "parents": parents})
            if number < 2:  # those that others dial are there first
                tree.wait(1, member=place["member"], parent=parents[0]["member"])
    tree.settled(MEMBERS * (len(lab.regions) - 1))
    time.sleep(1)
    return tree


def start(tree: Tree, region: str, config: dict[str, Any]) -> None:
    """One member's process, and a thread that listens to it."""
    config = {"streams": STREAMS} | config
    process = tree.lab.popen(
        region,
        [sys.executable, "-m", "tests.bench.links_relay", json.dumps(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    tree.processes[config["member"]] = process

    def listen() -> None:
        for line in process.stdout or ():
            tree.said.put(json.loads(line))

    threading.Thread(target=listen, daemon=True).start()


def measure(report: Report, payloads: int = 4) -> None:
    """The whole tree, then with a relay killed at half of a payload."""
    shape = parse_link(LINK)
    with lab_of(4) as (lab, group, _):
        for region in "bcd":
            lab.emulator.set_link("a", region, shape)
        tree = grow(lab, group)
        try:
            usual = _measure_whole(report, tree, bound_s(shape, SIZE_BYTES), payloads)
            _measure_killed(report, tree, *usual)
        finally:
            tree.close()


def _measure_whole(report: Report, tree: Tree, bound: float, payloads: int) -> tuple[float, float]:
    case = f"tree 3x{MEMBERS} {LINK}"
    took: list[float] = []
    shares: list[float] = []
    ip_shares: list[float] = []
    for _ in range(payloads):
        tree.lab.emulator.reset()
        received = _received_by_relays(tree)
        sent = tree.send()
        whole = tree.wait(3 * MEMBERS, whole=sent["sent"])
        took.append(max(line["at_s"] for line in whole) - sent["at_s"])
        now = _received_by_relays(tree)
        shares.append(max((now[r] - received.get(r, 0)) / SIZE_BYTES for r in now))
        stats = tree.lab.emulator.stats()
        ip_shares.append(max(stats.pair("a", r).out_bytes for r in "bcd") / SIZE_BYTES)
        if stats.late.p99_us > MAX_LATE_P99_US or stats.own_drops:
            report.figure(case, "rejected_emulator_late", stats.late.p99_us, "us")
        time.sleep(2)
    warm = sorted(took[1:])
    usual_s = warm[len(warm) // 2]
    report.figure(case, "first_payload", round(took[0], 3), "s", baseline=round(bound, 3))
    report.figure(case, "time_to_last_member", round(usual_s, 3), "s", baseline=round(bound, 3), at_most=1.15 * bound)
    report.figure(case, "bytes_into_region", round(max(shares), 4), "x payload", at_most=1.05)
    report.figure(case, "ip_bytes_into_region", round(max(ip_shares), 4), "x payload")
    report.figure(case, "load", round(os.getloadavg()[0], 2), "processes")
    return usual_s, ip_shares[-1]


def _measure_killed(report: Report, tree: Tree, usual_s: float, usual_share: float) -> None:
    case = f"relay killed at half, {LINK}"
    tree.lab.emulator.reset()
    sent = tree.send()
    tree.wait(1, half=sent["sent"], member="b-0")
    process = tree.processes["b-0"]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    survivors = [f"b-{n}" for n in range(1, MEMBERS)]
    ends = [tree.wait(1, whole=sent["sent"], member=member)[0] for member in survivors]
    took_s = max(line["at_s"] for line in ends) - sent["at_s"]
    time.sleep(1)
    entered = tree.lab.emulator.stats().pair("a", "b").out_bytes / SIZE_BYTES
    report.figure(case, "lost_time", round(took_s - usual_s, 3), "s", at_most=3.0)
    # What entered the region beyond a usual payload: what the dead relay had and its standby had to ask for again.
    report.figure(case, "repeated_bytes", round(entered - usual_share, 4), "x payload", at_most=0.05)


def _received(tree: Tree, member: str) -> int:
    values = [line["received"] for line in tree.lines if line.get("member") == member and "received" in line]
    return int(values[-1]) if values else 0


def _received_by_relays(tree: Tree) -> dict[str, int]:
    return {region: _received(tree, f"{region}-0") for region in "bcd"}
