"""Entries of objects: read in helpings, and refused where their chain is broken. No kernel runs here."""

import pytest

from sync_runtime.codec.frame import END_RECORD
from sync_runtime.codec.gpu.entries import EntryReader, Homes
from sync_runtime.codec.limits import HEADER_BYTES
from sync_runtime.errors import FormatError, TruncatedError
from sync_runtime.tensors.device.sections import sections_of
from tests.gpu.support import Case, cpu_object, make_case

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def case() -> Case:
    tensors: list[tuple[str, str, tuple[int, ...]]] = [(name, "BF16", (90,)) for name in "abcde"]
    return make_case([*tensors, ("f", "F32", (40,)), ("g", "F32", (30,))], 0.3, block_elements=64)


def reader(case: Case, data: bytes) -> EntryReader:
    return EntryReader(Homes(case.blocks, sections_of(case.blocks, "cpu")), memoryview(data))


@pytest.mark.parametrize("first", range(9))
def test_two_helpings_are_the_whole(case: Case, first: int) -> None:
    data = cpu_object(case, 1)
    whole = reader(case, data).rest()
    parts = reader(case, data)
    begin, end = parts.take(first), parts.rest()
    for all_, one, other in zip(whole, begin, end, strict=True):
        assert list(all_.blocks) == [*one.blocks, *other.blocks]
        for field in ("mode", "parameter", "changed", "body", "body_words"):
            assert (getattr(all_, field) == getattr(one, field) + getattr(other, field)).all()
    assert sum(int((one.mode > 0).sum()) for one in whole) == case.blocks.num_blocks


@pytest.mark.parametrize("cut", [HEADER_BYTES, HEADER_BYTES + 4, -4, -16, -20])
def test_an_object_without_its_end_is_refused(case: Case, cut: int) -> None:
    with pytest.raises(TruncatedError):
        reader(case, cpu_object(case, 1)[:cut]).rest()


def test_what_follows_the_end_is_refused(case: Case) -> None:
    data = cpu_object(case, 1)
    for more in (b"\0\0\0\0", END_RECORD, b"\0" * 16):
        with pytest.raises(FormatError):
            reader(case, data + more).rest()


def test_a_second_helping_must_ascend_from_the_first(case: Case) -> None:
    data = cpu_object(case, 1)
    _, again = data[:HEADER_BYTES], data[HEADER_BYTES : -len(END_RECORD)]
    parts = reader(case, data[:HEADER_BYTES] + again + again + END_RECORD)
    parts.take(case.blocks.num_blocks)
    with pytest.raises(FormatError, match="ascend"):
        parts.rest()
