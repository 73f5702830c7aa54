"""Files that survive: every rule about fsync, rename, full disks and links that lead elsewhere, in one place.

A `Folder` is held open by descriptor and all names are taken relative to it, so nothing in it is reached through a
symbolic link. What must be whole is written beside its name, synced, renamed, and the folder is synced after it. Knows
nothing of what the files hold.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sync_runtime.errors import SpoolCorruptError, SpoolError, SpoolFullError

TEMPORARY_PREFIX = ".new-"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in our folder must not hang us
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Translates the errors of the disk; the message says what was being done."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SpoolFullError(f"no room left while {what}: free some, or give the spool more") from error
        raise SpoolError(f"{what} failed: {os.strerror(error.errno or 0)}") from error


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable; raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_at(handle: int, data: bytes | memoryview, offset: int) -> None:
    """Writes all of the bytes at an offset; raises OSError."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(handle, rest, offset)
        rest, offset = rest[written:], offset + written


class Folder:
    """A folder held open. Thread-safe: it has no state but the descriptor."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        weakref.finalize(self, os.close, handle)  # lives as long as anything that lies in it is used

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Opens the user's folder; makes it, with its parents, where it does not exist."""
        with disk_errors(f"opening the folder {path}"):
            path.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            return cls(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def below(self, name: str) -> Folder:
        """Opens or makes a folder in this one; refuses a link."""
        try:
            os.mkdir(name, _FOLDER_MODE, dir_fd=self._handle)
            self.sync()
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno in _FULL:
                raise SpoolFullError(f"no room left to make the folder {self.path / name}") from error
            raise SpoolError(f"cannot make the folder {self.path / name}: {error.strerror}") from error
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
            return Folder(self.path / name, os.open(name, flags, dir_fd=self._handle))
        except OSError as error:
            raise SpoolCorruptError(
                f"{self.path / name} is not a folder of this spool but something else: take it away"
            ) from error

    def names(self) -> list[str]:
        """Everything in it, sorted."""
        with disk_errors(f"listing {self.path}"):
            return sorted(os.listdir(self._handle))

    def is_plain_file(self, name: str) -> bool:
        """Whether the name is a regular file itself, not a link to one."""
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def create(self, name: str) -> int:
        """A new, empty file for reading and writing; what lay there must be gone. Returns the descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with disk_errors(f"creating {self.path / name}"):
            return os.open(name, flags, _FILE_MODE, dir_fd=self._handle)

    def reopen(self, name: str, *, writable: bool = False) -> int:
        """An existing plain file; raises SpoolCorruptError for anything else. Returns the descriptor."""
        try:
            flags = _READ | os.O_RDWR if writable else _READ
            handle = os.open(name, flags, dir_fd=self._handle)
        except OSError as error:
            raise SpoolCorruptError(f"{self.path / name} cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise SpoolCorruptError(f"{self.path / name} is not a plain file")
        return handle

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """A small file whole; None where there is none. Raises SpoolCorruptError above the limit."""
        if name not in self:
            return None
        handle = self.reopen(name)
        with os.fdopen(handle, "rb") as file, disk_errors(f"reading {self.path / name}"):
            data = file.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise SpoolCorruptError(f"{self.path / name} has more than {limit_bytes} bytes")
        return data

    def __contains__(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file so that after any crash it is the old one or the new one; durable on return."""
        temporary = TEMPORARY_PREFIX + name
        self.remove(temporary)
        handle = self.create(temporary)
        try:
            with disk_errors(f"writing {self.path / name}"):
                write_at(handle, data, 0)
                os.fsync(handle)
                os.rename(temporary, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
                os.fsync(self._handle)
        except SpoolError:
            self.remove(temporary)
            raise
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        """Unlinks a file, or the link itself; nothing happens where there is none. Not durable before `sync`."""
        with disk_errors(f"removing {self.path / name}"):
            try:
                os.unlink(name, dir_fd=self._handle)
            except FileNotFoundError:
                return

    def rename(self, name: str, onto: str) -> None:
        """Gives a file another name, in place of what has that. Not durable before `sync`."""
        with disk_errors(f"renaming {self.path / name}"):
            os.rename(name, onto, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def modified_unix_ns(self, name: str) -> int:
        """When a file was written last."""
        with disk_errors(f"looking at {self.path / name}"):
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_mtime_ns

    def sync(self) -> None:
        """Makes what was created, renamed and removed here durable."""
        with disk_errors(f"syncing {self.path}"):
            os.fsync(self._handle)
