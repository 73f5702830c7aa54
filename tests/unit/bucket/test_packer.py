"""Cutting: nothing is lost, sizes stay within the limits and shrink toward the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.limits import MAX_BUCKET_BYTES, MIN_BUCKET_BYTES
from sync_runtime.bucket.packer import Packer, cut_sizes, tail_bytes
from sync_runtime.errors import LimitError
from tests.unit.bucket.samples import payload

MIB = 1 << 20
BUCKETS = st.integers(1, 256).map(lambda steps: steps * MIN_BUCKET_BYTES)


@given(st.integers(0, 1 << 32), BUCKETS, st.integers(1, 64))
def test_sizes_add_up_and_keep_the_limits(total: int, bucket_bytes: int, streams: int) -> None:
    sizes = cut_sizes(total, bucket_bytes, streams)
    assert sum(sizes) == total
    assert all(0 < size <= max(bucket_bytes, MIN_BUCKET_BYTES * 3 // 2) for size in sizes)
    assert all(size >= MIN_BUCKET_BYTES for size in sizes[:-1])


@given(st.integers(0, 1 << 30), BUCKETS, st.integers(1, 64))
def test_sizes_never_grow_but_for_the_last_which_takes_the_crumbs(total: int, bucket_bytes: int, streams: int) -> None:
    sizes = cut_sizes(total, bucket_bytes, streams)[:-1]
    assert sizes == sorted(sizes, reverse=True)


def test_the_last_buckets_of_all_streams_are_small() -> None:
    sizes = cut_sizes(60 * MIB, 4 * MIB, 4)
    assert sizes[0] == 4 * MIB
    assert max(sizes[-4:]) < MIB // 2


def test_what_one_bucket_holds_is_one_bucket() -> None:
    assert cut_sizes(10, MIB, 8) == [10]
    assert cut_sizes(MIN_BUCKET_BYTES + 10, MIB, 8) == [MIN_BUCKET_BYTES + 10]


@pytest.mark.parametrize("bucket_bytes", [0, MIN_BUCKET_BYTES - 1, MAX_BUCKET_BYTES + 1])
def test_other_bucket_sizes_are_refused(bucket_bytes: int) -> None:
    with pytest.raises(LimitError):
        cut_sizes(1, bucket_bytes, 1)
    with pytest.raises(LimitError):
        Packer(bucket_bytes)


def test_too_many_buckets_are_refused() -> None:
    with pytest.raises(LimitError, match="larger"):
        cut_sizes((1 << 20) * MIN_BUCKET_BYTES + (1 << 30), MIN_BUCKET_BYTES, 1)


@given(st.lists(st.integers(0, 300_000), max_size=8), st.integers(1, 8))
def test_a_stream_comes_out_as_it_went_in_whatever_the_writes(writes: list[int], streams: int) -> None:
    data = payload(sum(writes))
    packer = Packer(MIN_BUCKET_BYTES, tail_bytes(MIN_BUCKET_BYTES, streams))
    out: list[bytes | memoryview] = []
    at = 0
    for size in writes:
        out += packer.add(memoryview(data)[at : at + size])
        at += size
    assert {len(bucket) for bucket in out} <= {MIN_BUCKET_BYTES}
    out += packer.finish(streams)
    assert b"".join(out) == data
    assert packer.waiting_bytes == 0


def test_buckets_leave_before_the_stream_ends_and_little_waits() -> None:
    packer = Packer(MIN_BUCKET_BYTES, tail_bytes(MIN_BUCKET_BYTES, 2))
    for _ in range(10):
        list(packer.add(payload(MIN_BUCKET_BYTES)))
        assert packer.waiting_bytes <= 5 * MIN_BUCKET_BYTES
    assert len(list(packer.add(payload(3 * MIN_BUCKET_BYTES)))) == 3
