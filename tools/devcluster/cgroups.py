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
CONTROLLERS_V2 = ("cpu", "cpuset", "memory", "pids", "hugetlb")
"""What the kubelet insists on in its folder, as far as the kernel has it."""
EMPTY_TIMEOUT_S = 20.0


def is_v2() -> bool:
    """Whether this host has one unified hierarchy."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """The folders under which a node's own folder is made: kubelet and runc write to every one that is mounted."""
    if is_v2():
        return [ROOT]
    # Two controllers of one hierarchy are one folder and links to it.
    return sorted({path.parent.resolve() for path in ROOT.glob("*/cgroup.procs")})


def why_impossible() -> str | None:
    """One sentence, or None where limits can work."""
    if os.geteuid() != 0:
        return "limits need root: cgroups of an ordinary user cannot be delegated here."
    if not is_v2() and not (ROOT / "memory").is_dir():
        return f"there is no memory controller under {ROOT}; boot with the cgroups of the first or second version."
    if not os.access(ROOT / ("cgroup.subtree_control" if is_v2() else "memory"), os.W_OK):
        return "the cgroup file system is read-only here; run where it is writable."
    return None


def make(name: str) -> None:
    """The folder `name` in every hierarchy."""
    try:
        if is_v2():
            present = (ROOT / "cgroup.controllers").read_text().split()
            wanted = " ".join(f"+{controller}" for controller in CONTROLLERS_V2 if controller in present)
            (ROOT / "cgroup.subtree_control").write_text(wanted)
        for hierarchy in hierarchies():
            folder = hierarchy / name
            folder.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                # In the first version a new cpuset is empty and accepts no process until it has CPUs and memory.
                if not is_v2() and (hierarchy / file).exists():
                    (folder / file).write_text((hierarchy / file).read_text())
    except OSError as error:
        raise HostError(f"A cgroup for {name} could not be made: {error}.") from error


def start_janitor(names: Iterable[str]) -> None:
    """Leave a process behind that removes the folders `names` as soon as this process and its bubble are gone.

    Must be called before the bubble is entered: the janitor lives outside. It is nobody's child, so that the bubble
    stays this process's only one, and holds nothing open but the pipe: a port or a lock would outlive the cluster.
    """
    folders = list(names)
    alive_r, _ = os.pipe()  # the other end stays open here and in the bubble's first processes until they end
    starter = os.fork()
    if starter != 0:
        os.close(alive_r)
        os.waitpid(starter, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _wait_and_sweep(alive_r, folders)
    finally:
        os._exit(0)


def _wait_and_sweep(alive_r: int, names: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(alive_r, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.read(0, 1)  # returns when every copy of the other end is closed
    sweep(names)


def sweep(names: Iterable[str], timeout_s: float = EMPTY_TIMEOUT_S) -> None:
    """Remove the folders `names`, deepest first, once their processes have gone."""
    deadline = time.monotonic() + timeout_s
    folders = [hierarchy / name for hierarchy in hierarchies() for name in names]
    while any(folder.exists() for folder in folders) and time.monotonic() < deadline:
        for folder in folders:
            for path, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        time.sleep(0.1)
