"""Runs a command as an ordinary user when the tests run as root, with all it needs made readable for it.

Everything happens in a mount namespace of its own: where the interpreter, the checkout or the cache lie below a closed
folder such as root's home, an open one is laid over it and the needed parts are shown again.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

UID = 61234  # nobody's: an id without an entry in /etc/passwd or /etc/subuid, so with one mapped id only
_MS_BIND, _MS_REC, _MS_PRIVATE, _NEW_MOUNT = 0x1000, 0x4000, 0x40000, 0x20000
_libc = ctypes.CDLL(None, use_errno=True)


def command(arguments: list[str], keep: list[Path]) -> list[str]:
    """The command line that runs `arguments` as the ordinary user; run it as root."""
    paths = [str(path.resolve()) for path in keep]
    return [sys.executable, __file__, str(len(paths)), *paths, *arguments]


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _closed_ancestor(path: Path) -> Path | None:
    """The highest folder above `path` that other users may not enter."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & 0o001:
            return folder
    return None


def _open_up(keep: list[Path]) -> None:
    hidden = {path: _closed_ancestor(path) for path in keep}
    handles = {path: os.open(path, os.O_PATH) for path, closed in hidden.items() if closed is not None}
    for closed in sorted({folder for folder in hidden.values() if folder is not None}):
        _mount("open", str(closed), "tmpfs", 0, "mode=755")
    for path, handle in handles.items():
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
        _mount(f"/proc/self/fd/{handle}", str(path), None, _MS_BIND | _MS_REC)
        os.close(handle)


def main() -> None:
    count = int(sys.argv[1])
    keep, arguments = [Path(text) for text in sys.argv[2 : 2 + count]], sys.argv[2 + count :]
    _check(_libc.unshare(_NEW_MOUNT), "unshare")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _open_up(keep)
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    os.execvp(arguments[0], arguments)  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
