"""What a process and everything below it amount to: ids and memory, read from /proc."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path


def descendants(root: int) -> list[int]:
    """Every process below `root`, grandchildren too."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(text) for text in task.read_text().split()]
                found += children
                waiting += children
    return found


def resident_bytes(root: int) -> int:
    """Resident memory of `root` and all below it, shared pages counted once per process."""
    total = 0
    for pid in (root, *descendants(root)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
    return total


def hear_interrupts() -> None:
    """For a child, before it begins: what a shell runs in its background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
