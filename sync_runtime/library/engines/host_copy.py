"""One copy of the weights in host memory for several processes: the first writes it, the others map it and read.

The memory has no name in any folder: it is gone when the last process that maps it is, however that ended. Others find
it through the first one's open file, which needs one pod and one user. Knows no framework and no sidecar.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import time
import warnings
from collections.abc import Callable, Mapping
from math import prod

import torch

from sync_runtime.errors import LocalError
from sync_runtime.library.engines.mapped import Content

_HEADER = struct.Struct("<QQ")
_KIND = struct.Struct("<32s")
_KIND_AT = 64
_BEGIN, _ALIGN = 4096, 64
_WHOLE, _FAILED = 1, 2
_LOOK_S = 0.02

Place = tuple[int, tuple[int, ...], torch.dtype]
"""Where a tensor lies, and what it is."""


class HostCopy:
    """The first process's end: it has the memory, and says when a round's weights are in it."""

    def __init__(self, content: Content) -> None:
        self._places, size = _places(content)
        self._file = os.memfd_create("syncgroup-weights", os.MFD_CLOEXEC)
        os.ftruncate(self._file, size)  # nothing is taken before it is written
        self._map = mmap.mmap(self._file, size)
        _KIND.pack_into(self._map, _KIND_AT, _kind(self._places))

    @property
    def path(self) -> str:
        """Where others find it, as long as this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    @property
    def is_closed(self) -> bool:
        """Whether nobody can find it any more."""
        return self._file < 0

    def tensors(self) -> dict[str, torch.Tensor]:
        """The memory."""
        return {name: _view(self._map, place) for name, place in self._places.items()}

    def say(self, number: int, *, whole: bool) -> None:
        """The round's weights are here, or will not be."""
        _HEADER.pack_into(self._map, 0, number, _WHOLE if whole else _FAILED)

    def close(self) -> None:
        """Nobody can find it any more; memory that is mapped stays until it is not."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class HostView:
    """Another process's end."""

    def __init__(self, content: Content, path: str) -> None:
        self.path = path
        self._places, size = _places(content)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LocalError(f"the weights of the first worker at this sidecar cannot be read: {error}") from error
        try:
            is_alike = os.fstat(file).st_size == size
            self._map = mmap.mmap(file, size if is_alike else mmap.PAGESIZE, prot=mmap.PROT_READ)
        finally:
            os.close(file)
        if not is_alike or _KIND.unpack_from(self._map, _KIND_AT) != (_kind(self._places),):
            raise LocalError("the first worker at this sidecar has other tensors: say one `checkpoint` to all workers")

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The memory, which must not be written: the process would end."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it cannot be written
            return {name: _view(self._map, place) for name, place in self._places.items()}

    def wait(self, number: int, wait_s: float, check: Callable[[], None]) -> None:
        """Returns when the round's weights are here; raises LocalError where they will not be."""
        deadline = time.monotonic() + wait_s
        while (found := _HEADER.unpack_from(self._map, 0)) != (number, _WHOLE):
            check()
            if found == (number, _FAILED) or not os.path.exists(self.path):
                raise LocalError("the first worker at this sidecar has not got the version; its log says why")
            if time.monotonic() >= deadline:
                raise LocalError(f"the first worker at this sidecar did not get the version within {wait_s:.3g} s")
            time.sleep(_LOOK_S)


def _places(content: Content) -> tuple[dict[str, Place], int]:
    """Where tensors lie, and the size of it all: the same in all processes of one content."""
    at, found = _BEGIN, {}
    for name, (shape, dtype) in content.wanted.items():
        found[name] = (at, shape, dtype)
        at += -(-prod(shape) * dtype.itemsize // _ALIGN) * _ALIGN
    return found, at


def _kind(places: Mapping[str, Place]) -> bytes:
    return hashlib.sha256(repr(list(places.items())).encode()).digest()


def _view(memory: mmap.mmap, place: Place) -> torch.Tensor:
    at, shape, dtype = place
    if not prod(shape):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=prod(shape), offset=at).view(shape)
