"""Says in one sentence why a level is impossible on this machine, and what to change. Leaves nothing behind.

Each probe runs in a child that may enter namespaces and is thrown away.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.devcluster import bubble, cgroups, hostpackages
from tools.devcluster.config import Level
from tools.errors import HostError

PROGRAMS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "util-linux (mount)",
    "umount": "util-linux (mount)",
    "sh": "a shell",
}
SEARCH = hostpackages.SEARCH
MIN_OPEN_FILES = 4096
PROBE_TIMEOUT_S = 60


@dataclass(frozen=True)
class Finding:
    """One fact about this machine."""

    what: str
    problem: str | None
    """None where all is well."""
    fatal: bool = True


def why_impossible(level: Level) -> str | None:
    """One sentence that names the first obstacle, or None."""
    for finding in findings(level):
        if finding.problem is not None and finding.fatal:
            return f"The level `{level.value}` is impossible here: {finding.problem}"
    return None


def findings(level: Level) -> Iterator[Finding]:
    """Every fact that matters to a level, in the order in which one would mend them."""
    yield _platform()
    yield _open_files()
    if level is Level.PLANES:
        return
    yield from _programs()
    yield _nft()
    if level is Level.LIMITS:
        problem = cgroups.why_impossible()
        yield Finding("cgroups", problem)
        if problem is not None:
            return
    yield _namespaces(level)


def _platform() -> Finding:
    problem = None if sys.platform == "linux" else "it needs Linux; on other systems use a Linux VM."
    return Finding("Linux", problem)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= MIN_OPEN_FILES
    problem = None if enough else f"only {hard} open files are allowed; raise `ulimit -n` to {MIN_OPEN_FILES}."
    if enough and soft < MIN_OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 65536 and hard > 0 else 65536, hard))
    return Finding("open files", problem)


def _programs() -> Iterator[Finding]:
    for program, package in PROGRAMS.items():
        found = shutil.which(program, path=SEARCH)
        problem = None if found else f"the program `{program}` is missing; install {package}."
        yield Finding(f"program {program}", problem)


def _nft() -> Finding:
    try:
        hostpackages.nft()
    except HostError as error:
        return Finding("program nft", str(error))
    return Finding("program nft", None)


def _namespaces(level: Level) -> Finding:
    """Try it for real, in a child: enter, mount, make a bridge and a veth pair."""
    kind = bubble.IdMap.NONE if level is Level.LIMITS else bubble.choose_id_map()
    with tempfile.TemporaryDirectory(prefix="bubble-probe-") as folder:
        command = [sys.executable, "-m", "tools.devcluster.hostcheck", kind.value, folder]
        repository = Path(__file__).resolve().parents[2]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S, cwd=repository
            )
        except subprocess.TimeoutExpired:
            return Finding(
                "namespaces", f"a probe of the namespaces hung for {PROBE_TIMEOUT_S} s; restart the machine."
            )
    if done.returncode == 0:
        return Finding("namespaces", None)
    words = (done.stderr.strip().splitlines() or ["the probe gave no reason"])[-1]
    return Finding("namespaces", explain(words))


def explain(words: str) -> str:
    """The probe's last words as a sentence that says what to change."""
    if f"[Errno {errno.ENOSPC}]" in words:
        return "the kernel allows no further namespaces; raise the sysctl user.max_user_namespaces."
    if f"[Errno {errno.EINVAL}]" in words and "unshare" in words:
        return "the kernel was built without user namespaces (CONFIG_USER_NS); use another kernel, or root."
    if f"[Errno {errno.EPERM}]" in words and "unshare" in words:
        if _seccomp_filtered():
            return "a seccomp filter forbids namespaces (a container?); run the container with --privileged."
        return "unprivileged user namespaces are off; set the sysctl kernel.unprivileged_userns_clone=1, or use root."
    if "id map" in words or "uid_map" in words:
        return (
            "the id map of a user namespace may not be written; on Ubuntu set the sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0, or use root."
        )
    if "mount" in words:
        return f"a fresh /proc or tmpfs may not be mounted ({words}); in a container use --privileged."
    return f"a probe of the namespaces failed ({words})."


def _seccomp_filtered() -> bool:
    return "Seccomp:\t2" in Path("/proc/self/status").read_text()


def _probe(kind: bubble.IdMap, folder: Path) -> None:
    """Runs in its own process: the shortest way through everything the bubble does."""

    def inside() -> int:
        for command in (
            "mount -t tmpfs probe /run/lock",
            "ip link add probe0 type bridge",
            "ip link add probe1 type veth peer name probe2",
            "ip netns add probe",
            "ip link set probe2 netns probe",
        ):
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.stderr.write(f"`{command}`: {done.stderr.strip()}\n")
                return 1
        return 0

    bubble.enter([folder], kind, inside)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{SEARCH}"
    try:
        _probe(bubble.IdMap(sys.argv[1]), Path(sys.argv[2]))
    except HostError as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(1)
