"""The ring: memory that user's process and sidecar share, one half per direction, filled under credit.

The sidecar makes it (sealed: neither end can shrink it under the other; pre-faulted: no page faults in a pause), the
library maps the descriptor it is sent. No sockets here: who writes what is told by DATA and CREDIT messages, and a
message that does not fit what was told before is refused. The other end may write its half at any time, so whoever
checks bytes copies them first.
"""

from __future__ import annotations

import fcntl
import mmap
import os

from sync_runtime.errors import LocalProtocolError
from sync_runtime.local.messages import Credit, Data

DEFAULT_RING_BYTES = 32 << 20
MIN_RING_BYTES = 1 << 13
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CHUNKS = 4
"""A message covers at most this part of a half, so that one end copies while the other uses what was copied."""


def make_ring(size_bytes: int) -> int:
    """The sidecar's part: a descriptor of sealed memory."""
    descriptor = os.memfd_create("syncgroup-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Ring:
    """A mapped ring. `outgoing` is the half that this end writes, `incoming` the one it reads."""

    def __init__(self, descriptor: int, size_bytes: int, *, is_library: bool) -> None:
        if size_bytes < MIN_RING_BYTES or size_bytes % 2 or os.fstat(descriptor).st_size != size_bytes:
            raise LocalProtocolError(f"the ring does not have the {size_bytes} bytes that were announced")
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise LocalProtocolError("the ring is not sealed: the other end could take its memory away")
        self._map = mmap.mmap(descriptor, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._memory = memoryview(self._map)
        half = size_bytes // 2
        first, second = self._memory[:half], self._memory[half:]
        self.outgoing = RingWriter(first if is_library else second)
        self.incoming = RingReader(second if is_library else first)

    def close(self) -> None:
        """Unmaps it; where a view is still in use, its owner's end does that."""
        self.outgoing.release()
        self.incoming.release()
        try:
            self._memory.release()
            self._map.close()
        except BufferError:
            return


class RingWriter:
    """Fills one half. Not thread-safe."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self.size_bytes = len(memory)
        self._most = max(1, self.size_bytes // _CHUNKS)
        self._at = 0
        self._in_use = 0

    @property
    def room(self) -> int:
        """Bytes that the next `put` can take."""
        return min(self.size_bytes - self._in_use, self.size_bytes - self._at, self._most)

    def put(self, data: memoryview) -> Data:
        """Copies bytes, at most `room`; returns what the other end must be told."""
        size = len(data)
        if not 0 < size <= self.room:
            raise ValueError(f"the ring has room for {self.room} bytes, not for {size}")
        at = self._at
        self._memory[at : at + size] = data
        self._at = (at + size) % self.size_bytes
        self._in_use += size
        return Data(at, size)

    def credit(self, size: int) -> None:
        """The other end has used so many bytes."""
        if size > self._in_use:
            raise LocalProtocolError(f"the other end returns {size} bytes of the ring; it had {self._in_use}")
        self._in_use -= size

    def release(self) -> None:
        """Lets go of the memory."""
        _let_go(self._memory)


class RingReader:
    """Reads the other half. Not thread-safe."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self.size_bytes = len(memory)
        self._at = 0
        self._in_use = 0

    def take(self, data: Data) -> memoryview:
        """The bytes of a message, in place; they stay until `done`."""
        end = data.at + data.size
        if data.at != self._at or end > self.size_bytes or self._in_use + data.size > self.size_bytes:
            raise LocalProtocolError(f"the other end wrote to place {data.at} of the ring, out of turn")
        self._at = end % self.size_bytes
        self._in_use += data.size
        return self._memory[data.at : end].toreadonly()

    def done(self, size: int) -> Credit:
        """What the other end must be told when bytes were used."""
        self._in_use -= size
        return Credit(size)

    def release(self) -> None:
        """Lets go of the memory."""
        _let_go(self._memory)


def _let_go(memory: memoryview) -> None:
    try:
        memory.release()
    except BufferError:  # somebody still reads a part; it goes with the last reader
        return
