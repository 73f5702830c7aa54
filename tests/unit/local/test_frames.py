from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import LocalProtocolError
from sync_runtime.local.frames import FrameBuffer, pack_frame, pack_json, parse_json


def limit(_: int) -> int:
    return 100


def frames_of(buffer: FrameBuffer, data: bytes) -> list[tuple[int, bytes]]:
    return list(buffer.feed(data))


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=100)), max_size=8), st.integers(1, 30))
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[tuple[int, bytes]], step: int) -> None:
    data = b"".join(pack_frame(kind, body) for kind, body in frames)
    buffer = FrameBuffer(limit)
    found = [frame for at in range(0, len(data), step) for frame in frames_of(buffer, data[at : at + step])]
    assert found == frames
    assert not buffer.has_part


def test_a_length_above_the_limit_is_refused_before_the_body_comes() -> None:
    with pytest.raises(LocalProtocolError, match="the limit is 100"):
        frames_of(FrameBuffer(limit), pack_frame(1, bytes(101))[:8])


@pytest.mark.parametrize("spoil", [lambda head: head[:1] + b"\1" + head[2:], lambda head: head[:3] + b"\1" + head[4:]])
def test_bits_that_must_be_zero_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(LocalProtocolError, match="must be zero"):
        frames_of(FrameBuffer(limit), spoil(pack_frame(1, b"{}")))


def test_frames_before_a_bad_one_are_given() -> None:
    found = FrameBuffer(limit).feed(pack_frame(1, b"a") + pack_frame(2, bytes(101)))
    assert next(found) == (1, b"a")
    with pytest.raises(LocalProtocolError):
        next(found)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b'{"a":1,"a":1}', b'{"a":1.0}', b'{"a":1e3}', b'{"a":NaN}', b'{"a":Infinity}', b"\xff",
     b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}"],
    ids=["empty", "cut", "list", "number", "twice", "float", "exponent", "nan", "infinity", "not text", "deep", "long"],
)  # fmt: skip
def test_a_body_with_more_than_one_reading_is_refused(body: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        parse_json(body)


def test_what_is_packed_parses() -> None:
    assert parse_json(pack_json({"a": [1, "ü", None, True]})) == {"a": [1, "ü", None, True]}
