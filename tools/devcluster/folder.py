"""The folder a cluster lives in: claimed by one cluster at a time, and never one with a person's own files in it.

Knows files and process ids only, not what a cluster is.
"""

from __future__ import annotations

import fcntl
import re
from pathlib import Path
from typing import IO

from tools.errors import ClusterError

LOCK = "lock"
PID = "pid"
_MARKS = (LOCK, "logs/devcluster.log")
# Configuration files of other programs hold the path unquoted, and mount options end at a comma or colon.
_ODD = re.compile(r"[^\w@%+=./~-]")


def claim(directory: Path) -> IO[str]:
    """Take the folder, made if need be. It is ours while the returned file is open, here or in a child process."""
    odd = _ODD.search(str(directory))
    if odd is not None:
        raise ClusterError(
            f"The folder {str(directory)!r} has {odd[0]!r} in its name; choose a plainer one with --dir."
        )
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()) and not any((directory / mark).exists() for mark in _MARKS):
        raise ClusterError(
            f"{directory} holds files that are not a dev cluster's, and starting would remove the folders that carry "
            "the names of regions; choose an empty or a new folder with --dir."
        )
    lock = (directory / LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise ClusterError(f"{directory} already holds a dev cluster; end it with `make dev-down` first.") from error
    return lock


def runner_pid(directory: Path) -> int | None:
    """The process that runs the cluster of this folder, None where none does.

    The number in a file that a killed cluster left behind may belong to a stranger by now.
    """
    try:
        pid = int((directory / PID).read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if b"tools.devcluster.runner" in words and bytes(directory) in words else None
