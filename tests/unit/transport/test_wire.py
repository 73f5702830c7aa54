"""Frames: what is packed is parsed, however it is cut; what breaks a rule is refused before its body is there."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import FrameError
from sync_runtime.transport import wire
from sync_runtime.transport.wire import (
    FROM_CHILD,
    FROM_PARENT,
    FROM_WORKER,
    LIMITS,
    ON_DATA,
    TO_WORKER,
    BucketHead,
    FrameReader,
    FrameType,
)

ALL = frozenset(FrameType)
HEAD = BucketHead(transfer=7, index=3, offset=1 << 40, sha256=bytes(range(32)), size_bytes=5)


def header(kind: int, length: int, flags: int = 0, zero: int = 0) -> bytes:
    return struct.pack("<BBHI", kind, flags, zero, length)


@given(
    st.lists(st.tuples(st.sampled_from([FrameType.ACK, FrameType.STATUS, FrameType.PING]), st.binary(max_size=8))),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    frames: list[tuple[FrameType, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(wire.pack_frame(kind, body) for kind, body in frames)
    reader = FrameReader(ALL)
    found = []
    at = turn = 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += list(reader.feed(stream[at : at + step]))
        at, turn = at + step, turn + 1
    assert found == frames
    assert not reader.in_frame


@pytest.mark.parametrize("kind", list(FrameType))
def test_a_frame_one_byte_above_its_limit_is_refused_by_its_header_alone(kind: FrameType) -> None:
    assert wire.parse_header(header(kind, LIMITS[kind]), ALL) == (kind, LIMITS[kind])
    with pytest.raises(FrameError, match="at most"):
        list(FrameReader(ALL).feed(header(kind, LIMITS[kind] + 1)))


@pytest.mark.parametrize("kind", sorted(set(range(256)) - set(FrameType)))
def test_an_unknown_type_is_refused(kind: int) -> None:
    with pytest.raises(FrameError, match="unknown type"):
        wire.parse_header(header(kind, 0), ALL)


@pytest.mark.parametrize(("flags", "zero"), [(1, 0), (0x80, 0), (0, 1), (0, 0x8000)])
def test_flags_are_refused(flags: int, zero: int) -> None:
    with pytest.raises(FrameError, match="flags"):
        wire.parse_header(header(FrameType.PING, 8, flags, zero), ALL)


def test_every_type_belongs_to_one_side_or_to_both() -> None:
    greeting = {FrameType.HELLO, FrameType.WELCOME}
    both = {FrameType.REFUSE, FrameType.PING, FrameType.PONG}
    assert FROM_CHILD | FROM_PARENT | ON_DATA | FROM_WORKER | TO_WORKER | greeting == ALL
    assert FROM_CHILD & FROM_PARENT == both
    assert FROM_WORKER & TO_WORKER == both
    assert (FROM_WORKER | TO_WORKER) & (FROM_CHILD | FROM_PARENT) == both


def test_a_frame_of_the_other_side_is_refused() -> None:
    with pytest.raises(FrameError, match="no business"):
        wire.parse_header(header(FrameType.BEGIN, 2), FROM_CHILD)


def test_memory_follows_the_bytes_that_came_not_those_announced() -> None:
    reader = FrameReader(ALL)
    assert list(reader.feed(header(FrameType.LAYOUT, 64 << 20))) == []
    assert reader.missing_bytes == 64 << 20
    assert len(reader._buffer) == 0


def test_a_bucket_head_survives_the_way() -> None:
    packed = wire.pack_bucket_head(HEAD)
    kind, length = wire.parse_header(packed, ALL)
    assert kind is FrameType.BUCKET
    assert wire.parse_bucket_head(packed[wire.HEADER_BYTES :], length) == HEAD


@pytest.mark.parametrize("size_bytes", [0, wire.MAX_BUCKET_BYTES + 1])
def test_a_bucket_of_impossible_size_is_never_sent(size_bytes: int) -> None:
    with pytest.raises(FrameError):
        wire.pack_bucket_head(BucketHead(0, 0, 0, bytes(32), size_bytes))


def test_a_bucket_without_bytes_or_beyond_any_object_is_refused() -> None:
    body = struct.pack("<IIQ32s", 0, 0, 0, bytes(32))
    with pytest.raises(FrameError, match="without bytes"):
        wire.parse_bucket_head(body, len(body))
    with pytest.raises(FrameError, match="at most"):
        wire.parse_bucket_head(struct.pack("<IIQ32s", 0, wire.MAX_BUCKETS, 0, bytes(32)), len(body) + 1)
    with pytest.raises(FrameError, match="beyond"):
        wire.parse_bucket_head(struct.pack("<IIQ32s", 0, 0, (1 << 63) - 1, bytes(32)), len(body) + 1)


def test_many_acknowledgements_become_several_frames_within_the_limit() -> None:
    indices = tuple(range(3 * wire.MAX_ACKED + 1))
    frames = [frame for chunk in wire.pack_acks(5, indices) for frame in FrameReader(ALL).feed(chunk)]
    assert len(frames) == 4
    assert all(len(body) <= LIMITS[FrameType.ACK] for _, body in frames)
    assert tuple(index for _, body in frames for index in wire.parse_ack(body)[1]) == indices


@pytest.mark.parametrize("body", [b"", bytes(7), struct.pack("<II", 0, 0), struct.pack("<III", 0, 2, 1), bytes(9)])
def test_an_ack_that_does_not_add_up_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        wire.parse_ack(body)


@given(st.binary(max_size=64))
def test_no_body_whatsoever_raises_anything_but_a_frame_error(body: bytes) -> None:
    for parse in (wire.parse_ack, wire.parse_nack, wire.parse_manifest, wire.parse_ping):
        try:
            parse(body)
        except FrameError:
            continue
