"""A Unix socket to listen at, whose file may be left from a process that died."""

from __future__ import annotations

import socket
from pathlib import Path

from sync_runtime.errors import LocalError


def bind(listener: socket.socket, path: str, who: str) -> None:
    """Binds to a path; a socket file that a dead `who` left is replaced, a living one's is not."""
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
