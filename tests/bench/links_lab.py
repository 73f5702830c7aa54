"""Regions with a shaped link for the link benchmarks, the processes in them, and whether a run is to be believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.identities import Group
from tools.linkemu import EmulatorOptions, Lab, LinkShape

BUFFERS = f"4096 131072 {64 << 20}"
PAYLOAD_SHARE = 0.965
"""Of the link's rate, what is payload at an MTU of 1500 bytes."""
MAX_LATE_P99_US = 5_000
RING_FRAMES = 32_768
"""A stream that fills a long link at 1 Gbit/s hands over a whole window at once: 12 MB, 8000 packets, per region."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """What the processes of one run said, and whether the emulator did its part."""

    lines: list[dict[str, Any]]
    late_p99_us: int
    own_drops: int
    load: float

    @property
    def believable(self) -> bool:
        """A late emulator measures the machine, not the program."""
        return self.late_p99_us <= MAX_LATE_P99_US and not self.own_drops

    @property
    def payloads(self) -> list[dict[str, Any]]:
        """The lines about payloads."""
        return [line for line in self.lines if "payload" in line]


@contextmanager
def lab_of(num_regions: int) -> Iterator[tuple[Lab, Group, Path]]:
    """A lab with the buffers that long links need, a group's certificates, and a folder."""
    options = EmulatorOptions(ring_frames=RING_FRAMES)
    with tempfile.TemporaryDirectory(prefix="bench-links-") as folder, Lab.start(num_regions, options=options) as lab:
        for region in lab.regions:
            for name, value in (
                ("net.ipv4.tcp_rmem", BUFFERS),
                ("net.ipv4.tcp_wmem", BUFFERS),
                ("net.ipv4.tcp_slow_start_after_idle", "0"),
            ):
                lab.set_sysctl(region, name, value)
        yield lab, Group(Path(folder)), Path(folder)


def start(lab: Lab, region: str, role: str, config: dict[str, Any]) -> subprocess.Popen[str]:
    """A process of links_agents in a region."""
    return lab.popen(
        region,
        [sys.executable, "-m", "tests.bench.links_agents", role, json.dumps(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What it says, as it says it."""
    if process.stdout is None:
        raise RuntimeError("started without a pipe")
    for line in process.stdout:
        yield json.loads(line)


def end(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Close its standard input, which ends it; what it said last."""
    rest, _ = process.communicate(timeout=30)
    return [json.loads(line) for line in rest.splitlines()]


def run_pair(
    lab: Lab, roles: tuple[str, str], parent: dict[str, Any], child: dict[str, Any], regions: str = "ab"
) -> Run:
    """A parent in one region and a child in another, until the parent has sent everything."""
    lab.emulator.reset()
    sender = start(lab, regions[0], roles[0], parent)
    said = lines_of(sender)
    lines = [next(said)]
    receiver = start(lab, regions[1], roles[1], child)
    try:
        lines += list(said)
        sender.wait(30)
        if sender.returncode:
            raise RuntimeError(f"the sender ended with status {sender.returncode}")
    finally:
        sender.kill()
        lines += end(receiver)
    stats = lab.emulator.stats()
    return Run(lines, stats.late.p99_us, stats.own_drops, os.getloadavg()[0])


def bound_s(shape: LinkShape, size_bytes: int) -> float:
    """Payload at the link's payload rate, and one round trip."""
    return size_bytes * 8 / (shape.rate_bps * PAYLOAD_SHARE) + 2 * shape.delay_us / 1e6
