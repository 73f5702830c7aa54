"""May a lab run here? One sentence says why not, and what to change.

Only what a lab needs (programs, user and network namespaces); the dev cluster has its own, longer check.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.errors import HostError

_PROGRAMS = {
    "ip": "iproute2",
    "nice": "coreutils",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
_SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")  # where ip lives, and not always on an ordinary user's PATH
_PROBE_TIMEOUT_S = 20


def search_path() -> str:
    """The PATH with the system folders at its end."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS))


def check_programs() -> None:
    """Raise if a program is missing."""
    missing = {name: package for name, package in _PROGRAMS.items() if not shutil.which(name, path=search_path())}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise HostError(f"the lab needs {', '.join(missing)}: install the package {packages}")


def unshare_command() -> list[str]:
    """The prefix that makes a lab's namespaces; root does without a user namespace where those are forbidden."""
    check_programs()
    attempts = [["unshare", "--user", "--map-root-user"]]
    if os.geteuid() == 0:
        attempts.append(["unshare"])
    complaint = ""
    for attempt in attempts:
        command = [*attempt, "--net", "--pid", "--fork", "--kill-child"]
        probe = subprocess.run(
            [*command, "true"],
            env={**os.environ, "PATH": search_path()},
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
        if probe.returncode == 0:
            return command
        complaint = complaint or probe.stderr.strip()
    raise HostError(f"this machine forbids a lab's namespaces ({complaint}): {_remedy()}")


def _remedy() -> str:
    """The likeliest reason, most specific first."""
    if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "run as root, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
    if _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return "run as root, or set the sysctl kernel.unprivileged_userns_clone to 1"
    if _read("/proc/sys/user/max_user_namespaces") == "0":
        return "set the sysctl user.max_user_namespaces above 0"
    if "Seccomp:\t2" in (_read("/proc/self/status") or ""):
        return "a seccomp filter blocks them; run the container with --privileged or --security-opt seccomp=unconfined"
    return "run as root, or on a kernel with user and network namespaces"


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
