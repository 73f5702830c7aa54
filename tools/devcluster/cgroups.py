"""cgroup folders of real nodes, for the level `limits`. Only root gets here.

A folder outlives the processes in it, so a janitor waits outside for the end of the cluster, however it comes, and
removes what is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from tools.errors import HostError

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS_V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
EMPTY_TIMEOUT_S = 20.0


def is_v2() -> bool:
    """Whether this host has one unified hierarchy."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """The folders under which a node's own folder is made."""
    return [ROOT] if is_v2() else [ROOT / name for name in CONTROLLERS_V1 if (ROOT / name).is_dir()]


def why_impossible() -> str | None:
    """One sentence, or None where limits can work."""
    if os.geteuid() != 0:
        return "limits need root: cgroups of an ordinary user cannot be delegated here."
    if is_v2() and not os.access(ROOT / "cgroup.subtree_control", os.W_OK):
        return "the cgroup file system is read-only here; run where it is writable."
    if not is_v2() and not (ROOT / "memory").is_dir():
        return "there is no memory controller under /sys/fs/cgroup."
    return None


def make(node: str) -> None:
    """The node's folder in every hierarchy."""
    try:
        if is_v2():
            (ROOT / "cgroup.subtree_control").write_text("+cpu +memory +pids")
        for hierarchy in hierarchies():
            folder = hierarchy / node
            folder.mkdir(exist_ok=True)
            if hierarchy.name == "cpuset":
                # A new cpuset is empty and accepts no process until it has been given CPUs and memory.
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (folder / name).write_text((hierarchy / name).read_text())
    except OSError as error:
        raise HostError(f"A cgroup for {node} could not be made: {error}.") from error


def start_janitor(nodes: Iterable[str]) -> None:
    """Leave a process behind that removes the nodes' folders as soon as this process is gone.

    Must be called before the bubble is entered: the janitor lives outside.
    """
    names = list(nodes)
    alive_r, alive_w = os.pipe()
    os.set_inheritable(alive_w, False)
    if os.fork() != 0:
        os.close(alive_r)
        return
    os.close(alive_w)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.read(alive_r, 1)  # returns when every copy of the other end is closed
    sweep(names)
    os._exit(0)


def sweep(nodes: Iterable[str]) -> None:
    """Remove the folders of `nodes`, deepest first, once their processes have gone."""
    deadline = time.monotonic() + EMPTY_TIMEOUT_S
    folders = [hierarchy / node for hierarchy in hierarchies() for node in nodes]
    while any(folder.exists() for folder in folders) and time.monotonic() < deadline:
        for folder in folders:
            for path in sorted((entry for entry in folder.rglob("*") if entry.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    path.rmdir()
            with contextlib.suppress(OSError):
                folder.rmdir()
        time.sleep(0.1)
