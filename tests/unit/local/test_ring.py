import fcntl
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import LocalProtocolError
from sync_runtime.local.messages import Data
from sync_runtime.local.ring import MIN_RING_BYTES, Ring, RingReader, RingWriter, make_ring


@pytest.fixture
def pair() -> Iterator[tuple[Ring, Ring]]:
    """(the library's end, the sidecar's end) of the smallest ring."""
    descriptor = make_ring(MIN_RING_BYTES)
    library = Ring(descriptor, MIN_RING_BYTES, is_library=True)
    sidecar = Ring(descriptor, MIN_RING_BYTES, is_library=False)
    os.close(descriptor)
    yield library, sidecar
    library.close()
    sidecar.close()


def carry(writer: RingWriter, reader: RingReader, data: bytes) -> bytes:
    """Everything through the ring, as the two ends would."""
    found, rest = b"", memoryview(data)
    while rest:
        size = min(writer.room, len(rest))
        told = writer.put(rest[:size])
        with reader.take(told) as part:
            found += bytes(part)
        writer.credit(reader.done(size).size)
        rest = rest[size:]
    return found


def test_bytes_cross_in_both_directions(pair: tuple[Ring, Ring]) -> None:
    library, sidecar = pair
    there, back = os.urandom(3 * MIN_RING_BYTES + 7), os.urandom(2 * MIN_RING_BYTES + 1)
    assert carry(library.outgoing, sidecar.incoming, there) == there
    assert carry(sidecar.outgoing, library.incoming, back) == back


@given(st.lists(st.integers(1, 40), max_size=60))
def test_any_sizes_cross_unharmed(sizes: list[int]) -> None:
    memory = memoryview(bytearray(29))
    writer, reader = RingWriter(memory), RingReader(memory)
    for number, size in enumerate(sizes):
        data = bytes([number % 251]) * size
        assert carry(writer, reader, data) == data


def test_a_full_ring_has_no_room_until_credit_comes(pair: tuple[Ring, Ring]) -> None:
    writer, reader = pair[0].outgoing, pair[1].incoming
    told = []
    while writer.room:
        told.append(writer.put(memoryview(bytes(writer.room))))
    assert sum(data.size for data in told) == MIN_RING_BYTES // 2
    assert len(told) == 4
    with pytest.raises(ValueError, match="room for 0 bytes"):
        writer.put(memoryview(b"x"))
    reader.take(told[0]).release()
    writer.credit(reader.done(told[0].size).size)
    assert writer.room == told[0].size


def test_credit_for_more_than_was_written_is_refused(pair: tuple[Ring, Ring]) -> None:
    pair[0].outgoing.put(memoryview(b"abc"))
    with pytest.raises(LocalProtocolError, match="returns 4 bytes"):
        pair[0].outgoing.credit(4)


@pytest.mark.parametrize("data", [Data(1, 4), Data(0, MIN_RING_BYTES), Data(MIN_RING_BYTES // 2, 1)])
def test_a_place_out_of_turn_is_refused(data: Data, pair: tuple[Ring, Ring]) -> None:
    with pytest.raises(LocalProtocolError, match="out of turn"):
        pair[1].incoming.take(data)


def test_more_than_the_reader_gave_back_is_refused(pair: tuple[Ring, Ring]) -> None:
    reader, half = pair[1].incoming, MIN_RING_BYTES // 2
    reader.take(Data(0, half)).release()
    with pytest.raises(LocalProtocolError, match="out of turn"):
        reader.take(Data(0, 1))


def test_nobody_can_take_the_memory_away() -> None:
    descriptor = make_ring(MIN_RING_BYTES)
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
        with pytest.raises(PermissionError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    finally:
        os.close(descriptor)


def test_memory_that_is_not_sealed_is_not_used() -> None:
    descriptor = os.memfd_create("unsealed")
    try:
        os.ftruncate(descriptor, MIN_RING_BYTES)
        with pytest.raises(LocalProtocolError, match="sealed"):
            Ring(descriptor, MIN_RING_BYTES, is_library=True)
    except OSError as error:
        pytest.fail(str(error))
    finally:
        os.close(descriptor)


def test_a_size_other_than_the_announced_one_is_refused() -> None:
    descriptor = make_ring(MIN_RING_BYTES)
    try:
        with pytest.raises(LocalProtocolError, match="announced"):
            Ring(descriptor, 2 * MIN_RING_BYTES, is_library=True)
    finally:
        os.close(descriptor)


def test_the_receiver_cannot_write_what_it_reads(pair: tuple[Ring, Ring]) -> None:
    told = pair[0].outgoing.put(memoryview(b"abc"))
    with pair[1].incoming.take(told) as part, pytest.raises(TypeError):
        part[0] = 1


def test_closing_while_a_part_is_read_leaves_the_part_readable(pair: tuple[Ring, Ring]) -> None:
    told = pair[0].outgoing.put(memoryview(b"abc"))
    part = pair[1].incoming.take(told)
    pair[1].close()
    assert bytes(part) == b"abc"
    part.release()
