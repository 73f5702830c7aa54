"""One private copy of a checkpoint, brought forward in place: work in proportion to what changed.

A note in the copy says which version it is. It is taken away before the first byte changes and written again when the
last one is on the disk, so a copy that a crash left half-way has none and is never believed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from sync_runtime.bucket.durable import sync_folder
from sync_runtime.delta.apply import Staging
from sync_runtime.errors import DigestError, FormatError, WrongBaseError
from sync_runtime.offline.anchors import read_anchor
from sync_runtime.offline.checkpoints import Checkpoint, MappedState, open_checkpoint
from sync_runtime.offline.companions import companions
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.durable import durable_file, read_small, sync_file
from sync_runtime.offline.interop.documents import count, field, parse_object
from sync_runtime.offline.staging import stage
from sync_runtime.offline.streams import state_digest
from sync_runtime.offline.written import write_anchor, write_staged
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest, parse_digest

NOTE = "syncgroup-version.json"
_MAX_NOTE_BYTES = 4096
_FICLONE = 0x40049409


class Held(NamedTuple):
    """The version that a copy is."""

    seq: int
    digest: Digest


def make_copy(base: Checkpoint, target: Path, held: Held) -> None:
    """Copies a checkpoint folder with everything small beside its weights; described last."""
    target.mkdir()
    for path in (*base.files, *(one for one in companions(base) if one.name != NOTE)):
        _clone(path, target / path.name)
        sync_file(target / path.name)
    write_note(target, held)


def read_note(folder: Path) -> Held | None:
    """Which version a copy is; None where nobody can say."""
    try:
        content = parse_object(read_small(folder / NOTE, _MAX_NOTE_BYTES), NOTE)
        return Held(count(content, "seq", NOTE), parse_digest(field(content, "digest", str, NOTE)))
    except (FileNotFoundError, NotADirectoryError, FormatError):
        return None


def write_note(folder: Path, held: Held) -> None:
    """The copy is whole."""
    with durable_file(folder / NOTE) as file:
        file.write(json.dumps({"seq": held.seq, "digest": str(held.digest)}).encode())


def bring_forward(folder: Path, held: Held, deltas: Sequence[Delta], threads: int | None = None) -> Held:
    """Applies deltas that follow each other: each is verified against the bits that it finds, then all are written.

    Where a delta does not fit, nothing was written. The note is away while bytes change.
    """
    checkpoint, layout = open_checkpoint(folder), deltas[0].layout
    state = MappedState(checkpoint, layout)
    staging = Staging(deltas[0].blocks, state)
    for delta in deltas:
        if delta.base.digest != held.digest or delta.layout.hash != layout.hash:
            raise WrongBaseError(
                f"the copy is version {held.seq} with digest {held.digest}, the delta starts elsewhere"
            )
        stage(delta, staging, threads)
        held = Held(delta.target.seq, delta.target.digest)
    (folder / NOTE).unlink()
    sync_folder(folder)
    write_staged(checkpoint, deltas[0].blocks, staging)
    for path in checkpoint.files:
        sync_file(path)
    write_note(folder, held)
    return held


def rewrite(folder: Path, blocks: BlockMap, anchor: memoryview, held: Held, threads: int | None = None) -> None:
    """Writes whole weights over a copy; it counts only once its full digest is the version's.

    Raises where the anchor is of another version, or does not have its digest; the copy has no note then.
    """
    checkpoint = open_checkpoint(folder)
    state = MappedState(checkpoint, blocks.layout)  # refuses a checkpoint of other tensors before a byte changes
    (folder / NOTE).unlink()
    sync_folder(folder)
    write_anchor(checkpoint, blocks, read_anchor(anchor, blocks, threads), held.seq)
    found = state_digest(blocks, state, threads)
    if found != held.digest:
        raise DigestError(f"whole weights of version {held.seq} have the digest {found}, not {held.digest}")
    for path in checkpoint.files:
        sync_file(path)
    write_note(folder, held)


class Readers(Enum):
    """Who has a file of a copy open or mapped."""

    NOBODY = "nobody"
    SOMEBODY = "somebody"
    UNKNOWN = "unknown"
    """The file system has no leases: nobody can say."""


def readers_of(folder: Path) -> Readers:
    """Whether a copy is being read.

    The kernel grants a lease for writing only to the one who has a file open alone. Other processes count, in whatever
    container they are, and so do their mappings.
    """
    found = {_readers_of(path) for path in folder.iterdir() if path.suffix == ".safetensors"}
    return next((kind for kind in (Readers.SOMEBODY, Readers.UNKNOWN) if kind in found), Readers.NOBODY)


def _readers_of(path: Path) -> Readers:
    handle = os.open(path, os.O_RDONLY)
    try:
        # Whoever opens the file right now breaks the lease, of which the kernel tells by SIGIO: that would end us.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return Readers.SOMEBODY if error.errno == errno.EAGAIN else Readers.UNKNOWN
    finally:
        os.close(handle)
    return Readers.NOBODY


def _clone(source: Path, target: Path) -> None:
    """Shares the blocks where the file system can; they part when one side is written."""
    with source.open("rb") as old, target.open("xb") as new:
        with contextlib.suppress(OSError):
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return
        try:
            while os.copy_file_range(old.fileno(), new.fileno(), 1 << 30):
                pass
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            old.seek(0)
            new.seek(0)
            shutil.copyfileobj(old, new, 16 << 20)
