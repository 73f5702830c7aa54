from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.contract.plan import BucketPlan
from sync_runtime.contract.sync import BUCKET_STEP_BYTES
from sync_runtime.tuning.buckets import bucket_bytes, shared_bucket_bytes
from sync_runtime.tuning.codec import CodedObject, coded, tight_pays, time_to_member_s
from sync_runtime.tuning.supersede import predict

KIB, MIB = 2**10, 2**20
MBIT = 125_000.0
BOUNDS = BucketPlan(seed=MIB, min=256 * KIB, max=8 * MIB)
anything = st.floats(allow_nan=False, min_value=-1e18, max_value=1e18)


@pytest.mark.parametrize(
    ("payload_bytes", "rate", "streams", "expected"),
    [
        (20e6, 100 * MBIT, 4, 256 * KIB),  # 0.22 MB is the optimum, below the bound
        (200e6, 1000 * MBIT, 8, 2 * MIB),
        (2e9, 10_000 * MBIT, 16, 8 * MIB),
        (10e6, 10_000 * MBIT, 8, 256 * KIB),  # four buckets for every stream
        (2e9, 10 * MBIT, 1, 512 * KIB),  # half a second of a stream
        (0, 0, 4, MIB),  # nothing known: the plan's seed
    ],
)
def test_the_bucket_follows_payload_rate_and_streams(
    payload_bytes: float, rate: float, streams: int, expected: int
) -> None:
    assert bucket_bytes(payload_bytes, rate, streams, BOUNDS) == expected


@given(payload=anything, rate=anything, streams=st.integers(-5, 1000))
def test_any_figures_give_a_bucket_inside_the_bounds(payload: float, rate: float, streams: int) -> None:
    size = bucket_bytes(payload, rate, streams, BOUNDS)
    assert BOUNDS.min <= size <= BOUNDS.max
    assert size % BUCKET_STEP_BYTES == 0


@given(payload=st.floats(1e5, 1e10), rate=st.floats(1e5, 1e10), streams=st.integers(1, 63), more=st.floats(1, 100))
def test_buckets_grow_with_payload_and_rate_and_shrink_with_streams(
    payload: float, rate: float, streams: int, more: float
) -> None:
    size = bucket_bytes(payload, rate, streams, BOUNDS)
    assert bucket_bytes(payload * more, rate, streams, BOUNDS) >= size
    assert bucket_bytes(payload, rate * more, streams, BOUNDS) >= size
    assert bucket_bytes(payload, rate, streams + 1, BOUNDS) <= size


def test_an_object_for_several_links_is_cut_as_the_finest_of_them_wants() -> None:
    assert shared_bucket_bytes([4 * MIB, 512 * KIB, MIB], BOUNDS) == 512 * KIB
    assert shared_bucket_bytes([], BOUNDS) == BOUNDS.seed
    assert shared_bucket_bytes([64 * KIB], BOUNDS) == BOUNDS.min


FAST = coded(70e6, 140e6, encode_per_s=50e9, decode_per_s=50e9)
TIGHT = coded(70e6, 70e6, encode_per_s=100e6, decode_per_s=100e6)


def test_tight_pays_on_a_slow_link_and_not_on_a_fast_one() -> None:
    assert tight_pays(FAST, TIGHT, 100 * MBIT)
    assert not tight_pays(FAST, TIGHT, 10_000 * MBIT)


def test_tight_never_pays_where_nothing_is_known_or_it_never_ends() -> None:
    assert not tight_pays(FAST, TIGHT, 0.0)
    assert not tight_pays(FAST, TIGHT, math.nan)
    assert not tight_pays(FAST, coded(70e6, 70e6, encode_per_s=0, decode_per_s=1e9), 100 * MBIT)


def test_a_gain_too_small_to_change_for_is_enough_to_stay() -> None:
    almost = CodedObject(0.95 * FAST.size_bytes, 0.0, 0.0)
    assert not tight_pays(FAST, almost, 100 * MBIT, in_use="Fast")
    assert tight_pays(FAST, almost, 100 * MBIT, in_use="Tight")


def test_stages_overlap_only_where_buckets_leave_early() -> None:
    streamed, whole = (CodedObject(1e6, 2.0, 3.0, streamed=streamed) for streamed in (True, False))
    assert time_to_member_s(streamed, 1e6) == 3.0
    assert time_to_member_s(whole, 1e6) == 6.0


@given(rate=st.floats(1e3, 1e12), less=st.floats(0.01, 1))
def test_what_pays_on_a_link_pays_on_any_slower_one(rate: float, less: float) -> None:
    if tight_pays(FAST, TIGHT, rate):
        assert tight_pays(FAST, TIGHT, rate * less)


# 60 MB deltas over 20 MB/s and 0.1 s.
def abandon(rest: float, merged: float, following: float = 60e6, **known: float) -> bool:
    arguments = {"seconds_per_byte": 1 / 20e6, "rtt_s": 0.1, **known}
    return predict(rest_bytes=rest, next_bytes=following, merged_bytes=merged, **arguments).abandons


def test_a_transfer_just_begun_gives_way_to_the_merged_object() -> None:
    assert abandon(rest=60e6, merged=75e6)


def test_a_transfer_nearly_done_goes_on() -> None:
    assert not abandon(rest=5e6, merged=75e6)


def test_a_gain_below_ten_percent_is_no_gain() -> None:
    assert not abandon(rest=20e6, merged=73e6)
    assert abandon(rest=20e6, merged=71e6)


def test_a_gain_below_one_round_trip_is_no_gain() -> None:
    assert abandon(rest=2e6, following=2e6, merged=1e6, rtt_s=0.1)
    assert not abandon(rest=2e6, following=2e6, merged=1e6, rtt_s=0.2)


def test_bytes_in_flight_and_the_time_to_merge_count_against_the_merged_object() -> None:
    assert abandon(rest=60e6, merged=75e6, in_flight_bytes=10e6)
    assert not abandon(rest=60e6, merged=75e6, in_flight_bytes=40e6)
    assert not abandon(rest=60e6, merged=75e6, merge_s=2.0)


def test_nothing_is_abandoned_on_a_link_of_which_nothing_is_known() -> None:
    assert not abandon(rest=60e6, merged=1.0, seconds_per_byte=0.0)
    assert not abandon(rest=60e6, merged=1.0, seconds_per_byte=math.nan)


@given(rest=st.floats(0, 1e9), following=st.floats(0, 1e9), merged=st.floats(0, 1e9), more=st.floats(0, 1e9))
def test_a_larger_merged_object_is_never_more_attractive(
    rest: float, following: float, merged: float, more: float
) -> None:
    if abandon(rest, merged + more, following):
        assert abandon(rest, merged, following)
