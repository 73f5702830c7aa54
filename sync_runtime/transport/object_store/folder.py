"""A store that is a folder: on this machine, or one that all members mount. Durable, and with true conditions.

The library's own folder store knows neither fsync nor conditional replacement (docs/decisions), hence these lines. A
lock on one file stands around every conditional put; it works between processes, and over network file systems that
keep locks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sync_runtime.bucket.durable import sync_folder
from sync_runtime.transport.object_store.errors import (
    StoreConflictError,
    StoreDamagedError,
    StoreDeniedError,
    StoreError,
    StoreMissingError,
)
from sync_runtime.transport.object_store.names import temporary_path
from sync_runtime.transport.object_store.ports import Fetched

_LOCK_FILE: Final = ".lock"
_PART: Final = re.compile(r"[-A-Za-z0-9_+][-A-Za-z0-9_+.]*")


class FolderStore:
    """A folder as a store. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root
        with _disk_errors(root):
            root.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, limit_bytes: int) -> Fetched:
        """Reads a file."""
        path = self._path(key)
        with _disk_errors(path), path.open("rb") as file:
            data = file.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise StoreDamagedError(f"{path} has more than the {limit_bytes} bytes that it may have")
        return Fetched(data, _tag(data))

    def get_if_changed(self, key: str, tag: str | None, limit_bytes: int) -> Fetched | None:
        """Reads a file; None where it has this tag."""
        found = self.get(key, limit_bytes)
        return None if found.tag == tag else found

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Writes beside, syncs, renames."""
        path = self._path(key)
        temporary = self._path(temporary_path(key, secrets.token_hex(8)))
        try:
            self._write(path, temporary, data)
        except StoreMissingError as error:
            raise StoreError(f"a folder on the way to {path} was removed meanwhile: try again") from error

    def _write(self, path: Path, temporary: Path, data: bytes | memoryview) -> None:
        with _disk_errors(path):
            for folder in (path.parent, temporary.parent):
                folder.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.rename(path)
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(path.parent)

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        """Writes under the lock, where what is there has the tag."""
        path = self._path(key)
        with self._locked():
            with _disk_errors(path):
                there = _tag(path.read_bytes()) if path.exists() else None
            if there != tag:
                raise StoreConflictError(f"{path} is not what it was when it was read")
            self.put(key, data)
        return _tag(data)

    def remove(self, keys: Iterable[str]) -> None:
        """Unlinks, and folders that are empty then."""
        for key in keys:
            path = self._path(key)
            with _disk_errors(path):
                path.unlink(missing_ok=True)
            _prune(path.parent, self._root)

    def list(self, prefix: str) -> Iterator[str]:
        """All files below a folder."""
        below = self._root / prefix
        with _disk_errors(below):
            for folder, _, names in os.walk(below):
                for name in sorted(names):
                    yield (Path(folder) / name).relative_to(self._root).as_posix()

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(_PART.fullmatch(part) for part in parts):
            raise StoreError(f"{key!r:.200} is no key of a store")
        return self._root.joinpath(*parts)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self._root / _LOCK_FILE
        with _disk_errors(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _disk_errors(path):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreMissingError(f"there is no {path}") from error
    except PermissionError as error:
        raise StoreDeniedError(f"{path} may not be used by this user: {error.strerror}") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be used: {error.strerror}") from error


def _tag(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _prune(folder: Path, root: Path) -> None:
    """Removes folders that are empty, up to the root; one that somebody fills meanwhile stays."""
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
