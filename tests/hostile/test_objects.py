"""Damaged objects behind a manifest that fits: the decoder refuses them, or they lead to the promised state."""

import tracemalloc

import pytest

from sync_runtime.codec.frame import pack_entry, pack_header, parse_object
from sync_runtime.codec.limits import HEADER_BYTES, MODE_DENSE, MODE_FAST, MODE_TIGHT
from sync_runtime.errors import SyncError
from tests.hostile.mutations import bit_flips, random_mutations, truncations
from tests.hostile.targets import CODECS, Target

MUTATIONS_PER_RUN = 9_000
RUNS = range(6)


@pytest.fixture(scope="module", params=CODECS)
def target(request: pytest.FixtureRequest) -> Target:
    return Target(request.param)


def test_the_undamaged_object_is_taken(target: Target) -> None:
    assert target.survives(target.object)


def test_every_truncation_is_refused(target: Target) -> None:
    assert not any(target.survives(damaged) for damaged in truncations(target.object))


def test_bytes_after_the_end_are_refused(target: Target) -> None:
    assert not any(target.survives(target.object + extra) for extra in (b"\0", b"\0" * 16, target.object))


@pytest.mark.timeout(30)
def test_every_flipped_bit_is_refused(target: Target) -> None:
    survivors = [at for at, damaged in enumerate(bit_flips(target.object)) if target.survives(damaged)]
    tables = range(8 * HEADER_BYTES, 8 * (HEADER_BYTES + len(parse_object(memoryview(target.object))[1])))
    assert all(at in tables for at in survivors), "only a table entry that no symbol uses may be altered unseen"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("run", RUNS)
def test_random_mutations_are_refused_or_right(target: Target, run: int) -> None:
    tried = 0
    for damaged in random_mutations(target.object, MUTATIONS_PER_RUN, 1000 * run + len(target.object)):
        target.survives(damaged)
        tried += 1
    assert tried > 0.9 * MUTATIONS_PER_RUN


@pytest.mark.parametrize("count", [2, 461, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("mode", [MODE_FAST, MODE_TIGHT, MODE_DENSE])
def test_announced_sizes_do_not_reserve_memory(mode: int, count: int) -> None:
    target = Target("fast" if mode == MODE_FAST else "tight")
    header, tables, _ = parse_object(memoryview(target.object))
    entry = pack_entry(block=0, mode=mode, parameter=0, count=count, body_bytes=64)
    damaged = pack_header(header) + bytes(tables) + entry + b"\xff" * 64
    tracemalloc.start()
    try:
        assert not target.survives(damaged)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    num_elements = target.delta.blocks.block(0).num_elements
    assert peak_bytes < 24 * num_elements + (256 << 10)


def test_blocks_that_repeat_or_go_back_are_refused(target: Target) -> None:
    _, _, records = parse_object(memoryview(target.object))
    first = next(records)
    start = HEADER_BYTES + parse_object(memoryview(target.object))[0].tables_bytes
    size = 16 + len(first.body)
    doubled = target.object[: start + size] + target.object[start : start + size] + target.object[start + size :]
    assert not target.survives(doubled)


def test_errors_are_sentences(target: Target) -> None:
    for damaged in (b"", b"SGO1", target.object[:40], b"x" * 64):
        with pytest.raises(SyncError, match=r"\w+ \w+"):
            list(parse_object(memoryview(damaged))[2])
