"""A Unix socket to listen at, whose file may be left from a process that died."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from sync_runtime.errors import LocalError

MAX_PATH_BYTES = 107
"""Of a Unix socket's name in Linux."""


def bind(listener: socket.socket, path: str, who: str) -> None:
    """Binds to a path; a socket file that a dead `who` left is replaced, a living one's is not."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise LocalError(
            f"the name {path} is longer than the {MAX_PATH_BYTES} bytes that a Unix socket's may have: choose a "
            "shorter folder, for example by `state` in group.toml"
        )
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except OSError:
                place.unlink(missing_ok=True)
            else:
                raise LocalError(f"another {who} listens at {path}: stop it, or give this one another socket")
    listener.bind(path)
    place.chmod(0o666)  # whoever dials is judged by SO_PEERCRED; the folder's mode may be tighter
