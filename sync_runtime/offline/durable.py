"""Files and folders that appear whole or not at all, and stay after a power failure."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import BinaryIO

from sync_runtime.bucket.durable import sync_folder
from sync_runtime.errors import FormatError, LimitError, SettingsError
from sync_runtime.offline.deltafile import replacing


@contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """A new file in the path's place, on the disk before it gets its name."""
    with replacing(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def durable_folder(path: Path) -> Iterator[Path]:
    """A new folder, filled under another name. One that exists is not replaced: that cannot be done in one step."""
    if path.exists() or path.is_symlink():
        raise SettingsError(f"{path} exists already; a folder is not overwritten")
    room = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        staged = room / path.name
        staged.mkdir()
        yield staged
        for file in staged.iterdir():
            sync_file(file)
        sync_folder(staged)
        staged.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def sync_file(path: Path) -> None:
    """What was written is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def mapped(path: Path) -> memoryview:
    """A file's bytes, mapped."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size_bytes else b"")


def beside(folder: Path, name: object, what: str) -> Path:
    """A file that a document names; it must lie in the document's own folder."""
    plain = isinstance(name, str) and PurePath(name).name == name and name.isprintable()
    if not plain:
        raise FormatError(f"{what} names the file {name!r}, which is none beside it")
    path = folder / str(name)
    try:
        found = path.is_file()
    except OSError as error:  # such as a name that is too long
        raise FormatError(f"{what} names a file that cannot be: {error.strerror}") from error
    if not found:
        raise FormatError(f"{what} names the file {name!r}, which is not there")
    return path


def read_small(path: Path, limit_bytes: int) -> bytes:
    """A file that has to fit in memory; refused above the limit before it is read."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > limit_bytes:
            raise LimitError(f"{path} has {size_bytes} bytes; the limit is {limit_bytes}")
        return file.read(limit_bytes)
