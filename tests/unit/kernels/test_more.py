"""Casts, ranks, snapshots and deltas of files, through the interpreter."""

from collections.abc import Callable

import pytest
import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.errors import FormatError, LayoutError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import make_layout
from tests.gpu.checks import bases_of
from tests.gpu.more_checks import check_device_diff, check_masters, check_ranks, check_snapshot
from tests.gpu.staging_checks import chain_of
from tests.gpu.support import Case, cpu_object, extractors, make_case

pytestmark = pytest.mark.timeout(120)
MIXED = [("n", "BF16", (300,)), ("e", "F8_E4M3", (40,)), ("i", "I64", (5,)), ("z", "BF16", (0,)), ("s", "F16", ())]


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_masters_round_as_the_cast_does(dtype: str) -> None:
    check_masters("cpu", dtype, {"n": (400,)})


def test_two_ranks_write_the_records_of_one_under_summed_histograms() -> None:
    tensors: list[tuple[str, str, tuple[int, ...]]] = [(name, "BF16", (90,)) for name in "abcde"]
    tensors += [("f", "F32", (40,)), ("g", "F32", (30,))]
    case = make_case(tensors, 0.2, block_elements=64)  # a block per tensor
    numbers = range(case.blocks.num_blocks)
    check_ranks(case, "cpu", [numbers[::2], numbers[1::2]])


def test_histograms_from_elsewhere_need_a_count_of_ones_own() -> None:
    case = make_case([("n", "BF16", (40,))], 0.2)
    one = extractors(case, "cpu")[0]
    parts = [Part(one.snapshot, one.live, one.changes)]
    other = DeltaEncoder(case.blocks, parts, 2).count()
    with pytest.raises(LayoutError, match="counted"):
        DeltaEncoder(case.blocks, parts, 2).encode(other)


def test_a_snapshot_advances_by_what_was_extracted() -> None:
    case = make_case([("n", "BF16", (200,)), ("f", "F32", (30,)), ("u", "U8", (30,))], 0.1)
    check_snapshot(case, "cpu", chain_of(case, 2, 0.1, seed=1), pinned=False)


def test_a_delta_of_files_is_the_cpus() -> None:
    check_device_diff(make_case(MIXED, 0.2), "cpu")


def test_a_delta_of_empty_tensors_is_the_cpus() -> None:
    layout = make_layout([("z", "BF16", (0, 3))])
    assert BlockMap(layout).num_blocks == 0
    state = {"z": torch.zeros((0, 3), dtype=torch.bfloat16)}
    check_device_diff(Case(layout, state, state), "cpu")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data[:32], id="nothing but a header"),
        pytest.param(lambda data: data[:-4], id="cut inside the end"),
        pytest.param(lambda data: data[:-16], id="no end"),
        pytest.param(lambda data: data + bytes(4), id="a word after the end"),
        pytest.param(lambda data: data + data[-16:], id="two ends"),
        pytest.param(lambda data: data[:-16] + data[32:], id="blocks named twice"),
    ],
)
def test_a_broken_chain_of_entries_is_refused(change: Callable[[bytes], bytes]) -> None:
    tensors: list[tuple[str, str, tuple[int, ...]]] = [(name, "BF16", (90,)) for name in "abc"]
    case = make_case(tensors, 0.3, block_elements=64)
    decoder = DeltaDecoder(case.blocks, bases_of(case, "cpu", case.old))
    data = cpu_object(case, 1)
    assert sum(int((one.mode > 0).sum()) for one in decoder.parse(memoryview(data))[0]) == 3
    with pytest.raises(FormatError):
        decoder.parse(memoryview(change(data)))
