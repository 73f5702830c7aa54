"""A trainer's region and several of rollouts, whose links share the trainer's uplink; and plain streams to all at once.

Every region has its own link to the trainer with the round trip alone; the rate is the uplink's, for all together.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.links_lab import MAX_LATE_P99_US, end, lab_of, lines_of, start
from tests.support.identities import Group
from tools.linkemu import Lab, LinkShape

RTT_S = 0.1
TRAINER_REGION = "a"
BUCKET_BYTES = 256 << 10
_PORT = 7600
_WARM_UP_S = 2.0
_SLACK = 20


@dataclass(frozen=True)
class Wan:
    """The regions, and the group whose certificates the plain streams use."""

    lab: Lab
    group: Group
    folder: Path
    rate_bps: int

    @property
    def rollout_regions(self) -> tuple[str, ...]:
        """All but the trainer's."""
        return tuple(region for region in self.lab.regions if region != TRAINER_REGION)


@dataclass(frozen=True)
class Account:
    """The emulator's, of one run."""

    late_p99_us: int
    own_drops: int
    sent_bytes: int
    """Of IP, from the trainer's region to all others."""
    load: float

    @property
    def believable(self) -> bool:
        """A late emulator measures the machine, not the program."""
        return self.late_p99_us <= MAX_LATE_P99_US and not self.own_drops


@dataclass(frozen=True)
class Transfers:
    """Payloads to all regions at once: seconds by payload and region."""

    seconds: list[list[float]]
    account: Account


@contextmanager
def wan_of(regions: int, rate_bps: int) -> Iterator[Wan]:
    """The trainer's region `a` and so many others, with one bandwidth-delay product of queue in the uplink."""
    with lab_of(regions + 1) as (lab, group, folder):
        wan = Wan(lab, group, folder, rate_bps)
        for region in wan.rollout_regions:
            lab.emulator.set_link(TRAINER_REGION, region, LinkShape(delay_us=round(RTT_S * 1e6 / 2)))
        lab.emulator.set_uplink(TRAINER_REGION, rate_bps, round(rate_bps / 8 * RTT_S))
        yield wan


def account_of(wan: Wan) -> Account:
    """What the emulator has to say since its last reset."""
    stats = wan.lab.emulator.stats()
    sent_bytes = sum(stats.pair(TRAINER_REGION, region).out_bytes for region in wan.rollout_regions)
    return Account(stats.late.p99_us, stats.own_drops, sent_bytes, os.getloadavg()[0])


def plain_transfers(wan: Wan, streams: int, size_bytes: int, payloads: int) -> Transfers:
    """Plain warm streams, so many to each region; every payload leaves for all regions at the same moment."""
    bound_s = size_bytes * len(wan.rollout_regions) * 8 / wan.rate_bps
    parents: list[subprocess.Popen[str]] = []
    children: list[subprocess.Popen[str]] = []
    wan.lab.emulator.reset()
    try:
        for number, region in enumerate(wan.rollout_regions):
            shared = {"port": _PORT + number, "streams": streams}
            sends = shared | {
                "identity": str(wan.group.trainer(f"trainer-{number}")),
                "paced": True,
                "size_bytes": size_bytes,
                "bucket_bytes": BUCKET_BYTES,
                "payloads": payloads,
                "pause_s": 0.0,
                "warm_up_s": _WARM_UP_S,
                "patience_s": 60 + _SLACK * bound_s,
            }
            parents.append(start(wan.lab, TRAINER_REGION, "plain-parent", sends))
            next(lines_of(parents[-1]))
            takes = shared | {
                "identity": str(wan.group.member(f"rollout-{number}")),
                "host": wan.lab.address(TRAINER_REGION),
            }
            children.append(start(wan.lab, region, "plain-child", takes))
        seconds = [_one_payload(parents) for _ in range(payloads)]
    finally:
        for process in parents:
            process.kill()
            process.wait()
            close_pipes(process)
        for process in children:
            end(process)
    return Transfers(seconds, account_of(wan))


def close_pipes(process: subprocess.Popen[str]) -> None:
    """Of a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # a line that it did not live to read
                pipe.close()


def _one_payload(parents: list[subprocess.Popen[str]]) -> list[float]:
    for process in parents:
        if process.stdin is None:
            raise RuntimeError("started without a pipe")
        process.stdin.write("\n")
        process.stdin.flush()
    lines: list[dict[str, Any]] = []
    for process in parents:
        line = next(lines_of(process), None)
        if line is None:
            raise RuntimeError(f"a sender of plain streams ended with status {process.wait(10)}")
        lines.append(line)
    return [line["seconds"] for line in lines]
