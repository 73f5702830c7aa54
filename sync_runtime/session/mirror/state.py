"""A mirror: one state in one mapped file, filled from a stream, read and compared block by block.

The stream is PROTOCOL.md's (section 6): tensors of the layout in order, row-major, no gaps. In the file each tensor
starts on a boundary that compiled loops can read from. The file's room is taken before the first byte, so a full disk
is an error and never a fault in the middle of a write. A mirror does not say which version it is: its digest does.
"""

from __future__ import annotations

import os
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from sync_runtime.bucket.durable import disk_errors
from sync_runtime.bucket.objects import DataFile
from sync_runtime.delta.cpu import block_digest
from sync_runtime.errors import ChainError, LocalProtocolError, SpoolCorruptError, SpoolError
from sync_runtime.offline.anchors import read_anchor, write_block
from sync_runtime.offline.pool import ordered_map
from sync_runtime.offline.staging import state_digests
from sync_runtime.tensors.bits import BitTensor, from_buffer, gather
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import Digest, total
from sync_runtime.tensors.layout import Layout, TensorSpec

_ALIGNMENT_BYTES = 64
_PREFIX = "state-"


class Mirror:
    """A state in a file. One thread appends; others may wait for tensors and read them as they come."""

    def __init__(self, path: Path, layout: Layout, file: DataFile, *, received_bytes: int) -> None:
        """Use `create` or `reopen`."""
        self.path = path
        self.layout = layout
        self.blocks = BlockMap(layout)
        sizes = [_size_bytes(tensor) for tensor in layout.tensors]
        self._stream_ends = list(accumulate(sizes))
        self._places = _places(sizes)
        self.size_bytes = sum(sizes)
        self._received_bytes = received_bytes
        self._given_up: str | None = None
        self._changed = threading.Condition()
        self._file = file
        view = memoryview(file.memory(_file_bytes(sizes)))
        self._bound = {
            at: _bits(view[place : place + size], tensor)
            for at, (tensor, place, size) in enumerate(zip(layout.tensors, self._places, sizes, strict=True))
        }

    @classmethod
    def create(cls, folder: Path, layout: Layout) -> Mirror:
        """An empty mirror in a new file of the folder; raises SpoolFullError where there is no room for all of it."""
        with disk_errors(f"making a mirror in {folder}"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(prefix=_PREFIX, dir=folder)
        file = DataFile(handle)
        try:
            file.reserve(_file_bytes([_size_bytes(tensor) for tensor in layout.tensors]))
            return cls(Path(name), layout, file, received_bytes=0)
        except SpoolError:
            Path(name).unlink()
            raise

    @classmethod
    def reopen(cls, path: Path, layout: Layout) -> Mirror:
        """A mirror that another process filled, perhaps in the middle of a commit: only `prove` tells what it is."""
        try:
            file = DataFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
        except OSError as error:
            raise SpoolCorruptError(f"the mirror {path} cannot be opened: {error.strerror}") from error
        sizes = [_size_bytes(tensor) for tensor in layout.tensors]
        if file.size_bytes != _file_bytes(sizes):
            raise SpoolCorruptError(f"the mirror {path} is not of this layout")
        return cls(path, layout, file, received_bytes=sum(sizes))

    # ------------------------------------------------------------------------------------------------------- filling it

    def append(self, data: bytes | memoryview) -> None:
        """The next bytes of the stream."""
        rest = memoryview(data)
        if self._received_bytes + len(rest) > self.size_bytes:
            raise LocalProtocolError("the state is longer than its layout")
        while rest:
            tensor = self._tensor_at(self._received_bytes)
            room = self._stream_ends[tensor] - self._received_bytes
            piece, rest = rest[:room], rest[room:]
            inside = _size_bytes(self.layout.tensors[tensor]) - room
            self._file.write(piece, self._places[tensor] + inside)
            with self._changed:
                self._received_bytes += len(piece)
                self._changed.notify_all()

    @property
    def received_bytes(self) -> int:
        """How much of the stream has come."""
        return self._received_bytes

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come."""
        return self._received_bytes == self.size_bytes

    def wait_for(self, tensor: int) -> None:
        """Returns when a tensor is there; raises SpoolError where it will not come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._given_up or self._received_bytes >= self._stream_ends[tensor])
            if self._received_bytes < self._stream_ends[tensor]:
                raise SpoolError(f"the state will not become complete: {self._given_up}")

    def give_up(self, reason: str) -> None:
        """No more will come; whoever waits is woken."""
        with self._changed:
            self._given_up = reason
            self._changed.notify_all()

    def load_anchor(self, data: memoryview, seq: int, threads: int | None = None) -> list[int]:
        """Writes the blocks of an anchor in place, all of one version; returns their numbers. Prove it afterwards."""
        written = []
        for anchor in read_anchor(data, self.blocks, threads):
            if anchor.seq != seq:
                raise ChainError(f"block {anchor.block.number} is of version {anchor.seq}, not {seq}")
            write_block(anchor, self._bound)
            written.append(anchor.block.number)
        with self._changed:
            if len(written) == len(self.blocks):
                self._received_bytes = self.size_bytes
                self._changed.notify_all()
        return written

    # ------------------------------------------------------------------------------------------------------- reading it

    def bound(self) -> Mapping[int, BitTensor]:
        """The tensors by the layout's numbers; they are the file's memory."""
        return self._bound

    def tensor_digests(self, threads: int | None = None) -> tuple[Digest, ...]:
        """The full digest of every tensor."""
        self._check_complete()
        return state_digests(self.blocks, self._bound, threads)

    def digest(self, threads: int | None = None) -> Digest:
        """The full digest."""
        return total(self.tensor_digests(threads))

    def prove(self, known: Iterable[Digest], threads: int | None = None) -> Digest | None:
        """Which of the known digests it has; None: it is no known state, and nothing may be built on it."""
        found = self.digest(threads)
        return found if found in set(known) else None

    def block_digests(self, threads: int | None = None) -> tuple[Digest, ...]:
        """The digest of every block: finds where two states differ without bringing them together."""
        self._check_complete()
        parts = ordered_map(
            lambda block: total(block_digest(block, self._bound, self.layout).values()), self.blocks, threads
        )
        return tuple(parts)

    def blocks_unlike(self, digests: Sequence[Digest], threads: int | None = None) -> list[int]:
        """The blocks whose digests are others than these."""
        if len(digests) != len(self.blocks):
            raise LocalProtocolError(f"{len(digests)} digests were given for {len(self.blocks)} blocks")
        own = self.block_digests(threads)
        return [number for number, (mine, theirs) in enumerate(zip(own, digests, strict=True)) if mine != theirs]

    def differing_blocks(self, other: Mirror, threads: int | None = None) -> list[int]:
        """The blocks in which two mirrors of one layout differ, bit by bit."""
        if self.layout.hash != other.layout.hash:
            raise LocalProtocolError("states of different layouts cannot be compared")
        self._check_complete()
        other._check_complete()

        def differs(block: Block) -> bool:
            return not np.array_equal(gather(block, self._bound), gather(block, other._bound))

        found = ordered_map(differs, self.blocks, threads)
        return [number for number, is_other in enumerate(found) if is_other]

    def remove(self) -> None:
        """Forgets the file; its memory stays for as long as someone reads it. Safe to repeat."""
        with disk_errors(f"removing {self.path}"):
            self.path.unlink(missing_ok=True)

    def _check_complete(self) -> None:
        if not self.is_complete:
            raise LocalProtocolError(
                f"the state has {self.size_bytes} bytes and only {self._received_bytes} of them came"
            )

    def _tensor_at(self, position: int) -> int:
        """The tensor that holds a byte of the stream; empty ones hold none."""
        return bisect_right(self._stream_ends, position)


def sweep(folder: Path, keep: Path | None = None) -> int:
    """Removes the mirrors of a process that died, but one; returns how many. Only for the folder's owner."""
    found = [path for path in _files(folder) if path != keep]
    with disk_errors(f"sweeping {folder}"):
        for path in found:
            path.unlink(missing_ok=True)
    return len(found)


def adopt(folder: Path, layout: Layout, digest: Digest, threads: int | None = None) -> Mirror | None:
    """The mirror of a process that died which holds this state, if there is one; takes a full digest of each."""
    for path in _files(folder):
        try:
            mirror = Mirror.reopen(path, layout)
        except SpoolCorruptError:
            continue  # of another layout, or half made
        if mirror.prove((digest,), threads) is not None:
            return mirror
    return None


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"{_PREFIX}*") if path.is_file() and not path.is_symlink())


def _size_bytes(tensor: TensorSpec) -> int:
    return tensor.numel * tensor.dtype.width_bits // 8


def _places(sizes: Sequence[int]) -> list[int]:
    """Where each tensor starts in the file."""
    return [0, *accumulate(-(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes)][: len(sizes)]


def _file_bytes(sizes: Sequence[int]) -> int:
    """Never nothing: an empty file cannot be mapped."""
    return max(_ALIGNMENT_BYTES, sum(-(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes))


def _bits(memory: memoryview, tensor: TensorSpec) -> BitTensor:
    if not len(memory):
        return BitTensor(tensor.dtype, tensor.shape, np.zeros((tensor.rows, tensor.cols), tensor.dtype.bits_dtype))
    return from_buffer(memory, tensor.dtype.name, tensor.shape)
