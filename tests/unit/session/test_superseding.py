"""Transfers that give way to a merged object, and links that get `tight`: the rules, and the distributor that obeys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import FAST, TIGHT, ObjectKey, VersionRef, delta_key
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.session.relay.codecs import CodecBook
from sync_runtime.session.relay.superseding import Chain, chain_to, judge, links_sum, span_bytes
from sync_runtime.session.shelf import LinkPace
from tests.unit.session.relays import A, B, House

MB = 1_000_000
SLOW = LinkPace(seconds_per_byte=1e-6, rtt_s=0.1, capacity_bytes_per_s=1e6)
"""1 MB/s."""


def at(seq: int) -> VersionRef:
    return VersionRef(A, seq)


def test_the_transfers_that_lead_to_where_a_child_will_stand_are_a_chain() -> None:
    transfers = {3: delta_key(A, 5, 6), 1: delta_key(A, 4, 5), 2: ObjectKey(A, None, None, 9, "anchor")}
    assert chain_to(at(6), transfers) == Chain(at(4), at(6), (1, 3))
    assert chain_to(at(9), transfers) is None
    assert chain_to(at(4), transfers) is None
    assert chain_to(None, transfers) is None


def test_sizes_of_a_span_are_its_own_or_its_links() -> None:
    sizes = {delta_key(A, 4, 5): 10, delta_key(A, 5, 6): 20}
    assert span_bytes(at(4), at(6), sizes.get) == 30
    assert span_bytes(at(4), at(6), (sizes | {delta_key(A, 4, 6): 12}).get) == 12
    assert links_sum(at(4), at(7), sizes.get) is None


@pytest.mark.parametrize(
    ("rest_bytes", "merged_bytes", "share", "abandons", "make"),
    [
        (60 * MB, 70 * MB, None, True, False),
        (5 * MB, 70 * MB, None, False, False),
        (60 * MB, None, 0.6, False, True),
        (60 * MB, None, 1.0, False, False),
    ],
    ids=["just begun", "nearly done", "not made yet, worth it", "not made yet, merging saves nothing"],
)
def test_what_runs_gives_way_only_to_what_is_there_and_ends_sooner(
    rest_bytes: int, merged_bytes: int | None, share: float | None, abandons: bool, make: bool
) -> None:
    sizes = {delta_key(A, 4, 5): 60 * MB, delta_key(A, 5, 6): 60 * MB}
    if merged_bytes is not None:
        sizes[delta_key(A, 4, 6)] = merged_bytes
    chain = Chain(at(4), at(5), (1,))
    verdict = judge(chain, at(6), rest_bytes=rest_bytes, size_of=sizes.get, pace=SLOW, merged_share=share)
    assert verdict is not None
    assert (verdict.abandons, verdict.make) == (abandons, make)
    assert verdict.key == delta_key(A, 4, 6)
    assert "4-6 merged ends in" in verdict.reason


@pytest.mark.parametrize("head", [at(5), at(3), VersionRef(B, 9)], ids=["nothing newer", "older", "another lineage"])
def test_where_nothing_newer_leads_on_there_is_nothing_to_judge(head: VersionRef) -> None:
    chain = Chain(at(4), at(5), (1,))
    assert judge(chain, head, rest_bytes=1, size_of=lambda _: 1, pace=SLOW, merged_share=0.1) is None


def test_a_child_that_asked_for_a_way_back_is_left_alone() -> None:
    chain = Chain(at(7), at(5), (1,))
    assert judge(chain, at(7), rest_bytes=1, size_of=lambda _: 1, pace=SLOW, merged_share=0.1) is None


def test_two_deltas_in_a_queue_give_way_to_one_merged_object() -> None:
    sizes = {delta_key(A, 4, 6): 70 * MB}
    chain = Chain(at(4), at(6), (1, 2))
    verdict = judge(chain, at(6), rest_bytes=115 * MB, size_of=sizes.get, pace=SLOW, merged_share=None)
    assert verdict is not None
    assert verdict.abandons
    single = Chain(at(4), at(6), (1,))
    assert judge(single, at(6), rest_bytes=115 * MB, size_of=sizes.get, pace=SLOW, merged_share=None) is None


@given(st.integers(0, 200 * MB), st.integers(1, 200 * MB), st.integers(1, 200 * MB))
def test_a_link_of_which_nothing_is_known_abandons_nothing(rest: int, following: int, merged: int) -> None:
    sizes = {delta_key(A, 5, 6): following, delta_key(A, 4, 6): merged}
    chain = Chain(at(4), at(5), (1,))
    verdict = judge(chain, at(6), rest_bytes=rest, size_of=sizes.get, pace=LinkPace(), merged_share=0.1)
    assert verdict is not None
    assert not verdict.abandons
    assert not verdict.make


def store(house: House, base: int, target: int, size_bytes: int, codec: str = FAST) -> None:
    """An object in the spool, as far as the distributor looks at it."""
    key = delta_key(A, base, target, codec)
    version = SimpleNamespace(seq=base, digest="0" * 32)
    facts = SimpleNamespace(base=version, layout_hash="c" * 64)
    found = SimpleNamespace(key=key, size_bytes=size_bytes, num_buckets=1, envelope=b"m", facts=facts)
    house.stored[key] = cast(StoredObject, found)


def test_a_transfer_gives_way_once_the_merged_object_is_there() -> None:
    house = House(makes=True, pace=SLOW)
    link = house.child(4)
    store(house, 4, 5, 60 * MB)
    house.publish(5)
    assert link.heard("begin") == [("begin", 1, delta_key(A, 4, 5).text)]
    house.distributor.acked(link, 1, 1 * MB)
    store(house, 5, 6, 60 * MB)
    store(house, 4, 6, 70 * MB)
    house.publish(6)
    assert link.heard("abort") == [("abort", 1, "Superseded")]
    assert link.heard("begin")[-1] == ("begin", 2, delta_key(A, 4, 6).text)
    assert len(house.superseded) == 1
    (view,) = house.distributor.children
    assert (view.holds, list(view.transfers), view.superseded) == (at(6), [2], 1)


def test_a_transfer_that_is_nearly_done_goes_on() -> None:
    house = House(makes=True, pace=SLOW)
    link = house.child(4)
    store(house, 4, 5, 60 * MB)
    house.publish(5)
    house.distributor.acked(link, 1, 55 * MB)
    store(house, 5, 6, 60 * MB)
    store(house, 4, 6, 70 * MB)
    house.publish(6)
    assert link.heard("abort") == []
    assert link.heard("begin")[-1] == ("begin", 2, delta_key(A, 5, 6).text)


@pytest.mark.parametrize("makes", [True, False], ids=["a trainer", "a relay"])
def test_what_may_pay_is_made_by_a_trainer_and_by_nobody_else(makes: bool) -> None:
    house = House(makes=makes, pace=SLOW)
    for base in range(5):
        store(house, base, base + 1, 60 * MB)
    store(house, 0, 4, 100 * MB)
    house.distributor.made(delta_key(A, 0, 4))  # so much merging saves
    link = house.child(4)
    house.publish(5)
    house.distributor.acked(link, 1, 1 * MB)
    store(house, 5, 6, 60 * MB)
    house.publish(6)
    assert house.asked == ([(delta_key(A, 4, 6).text, None)] if makes else [])
    assert link.heard("abort") == []


def coded(fast_bytes: int, tight_bytes: int, *, tight_s: float) -> CodecBook:
    book = CodecBook()
    book.begun(delta_key(A, 4, 5), 0.0)
    book.completed(delta_key(A, 4, 5), fast_bytes, 0.5)
    book.begun(delta_key(A, 4, 5, TIGHT), 1.0)
    book.completed(delta_key(A, 4, 5, TIGHT), tight_bytes, 1.0 + tight_s)
    return book


def test_tight_is_for_slow_links_and_obeys_the_plan_until_something_is_known() -> None:
    book = coded(100 * MB, 60 * MB, tight_s=1.0)
    assert book.verdict(1e6, in_use=False).pays
    assert not book.verdict(1e9, in_use=True).pays
    assert "does not pay" in book.verdict(1e9, in_use=True).reason
    assert book.verdict(0.0, in_use=True).pays
    assert CodecBook().verdict(1e9, in_use=True).pays


def test_a_child_on_a_fast_link_gets_fast_though_its_plan_allows_tight() -> None:
    house = House(makes=True)
    house.child(4, codecs=(TIGHT, FAST))
    for codec, size in ((FAST, 100 * MB), (TIGHT, 60 * MB)):
        house.shelve(delta_key(A, 4, 5, codec), buckets=1)
        store(house, 4, 5, size, codec)
        house.distributor.completed(delta_key(A, 4, 5, codec), b"m")
    assert house.distributor.wants_codec(TIGHT)
    house.pace = LinkPace(capacity_bytes_per_s=1e15)
    assert not house.distributor.wants_codec(TIGHT)
    (view,) = house.distributor.children
    assert "does not pay" in view.codec_reason
    house.pace = LinkPace(capacity_bytes_per_s=1e3)
    assert house.distributor.wants_codec(TIGHT)
