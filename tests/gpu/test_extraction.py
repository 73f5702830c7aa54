import pytest
import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.delta.kernels import scrub as digests
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.errors import LayoutError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import bind
from sync_runtime.tensors.device.sections import sections_of
from sync_runtime.tensors.layout import make_layout
from tests.gpu.checks import check_extraction
from tests.gpu.more_checks import check_masters, check_ranks, check_snapshot
from tests.gpu.staging_checks import chain_of
from tests.gpu.support import bound_pair, cpu_object, make_case, on

pytestmark = pytest.mark.timeout(300)
POISON = 0xA5A5A5A5 - (1 << 32)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_masters_are_compared_as_the_devices_cast_rounds_them(dtype: str) -> None:
    check_masters("cuda", dtype, {"a": (70, 1024), "n": (300,)})


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_every_fp32_pattern_rounds_as_the_devices_cast_does(dtype: str) -> None:
    layout = make_layout([("w", dtype, (1 << 14, 1 << 14))])
    section = sections_of(BlockMap(layout), "cuda")[0]
    masters = torch.arange(1 << 28, dtype=torch.int32, device="cuda").view(1 << 14, 1 << 14)
    wire = torch.empty_like(masters, dtype=torch.bfloat16 if dtype == "BF16" else torch.float16)
    live = bind(layout, section, {"w": masters.view(torch.float32)}, masters=True)
    extractor = Extractor(live, bind(layout, section, {"w": wire}), density=1e-6)
    for _ in range(16):
        wire.copy_(masters.view(torch.float32))
        assert extractor.run() == 0
        masters += 1 << 28


@pytest.mark.parametrize("pinned", [False, True])
def test_a_snapshot_advances_by_what_was_extracted(pinned: bool) -> None:
    case = make_case(
        [("a", "BF16", (300, 1024)), ("n", "BF16", (300,)), ("f", "F32", (30, 77)), ("t", "BF16", (77, 999))], 0.02
    )
    check_snapshot(case, "cuda", chain_of(case, 3, 0.02, seed=1), pinned=pinned)


@pytest.mark.parametrize("codec", [1, 2])
def test_more_changes_than_there_is_room_for_still_give_the_cpus_bytes(codec: int) -> None:
    case = make_case([("a", "BF16", (700, 1024)), ("n", "BF16", (300,))], 0.05)
    section = sections_of(case.blocks, "cuda")[0]
    old, new = bound_pair(case, section, "cuda")
    extractor = Extractor(new, old, density=0.001)
    assert extractor.run() > 30_000
    encoder = DeltaEncoder(case.blocks, [Part(old, new, extractor.changes, extractor.scratch)], codec)
    assert encoder.encode().to_bytes(case.layout.hash) == cpu_object(case, codec)


def test_two_ranks_write_the_records_of_one_under_summed_histograms() -> None:
    tensors = [("a.0", "BF16", (700, 1024)), ("a.1", "BF16", (700, 1024)), ("n", "BF16", (300,)), ("f", "F32", (400,))]
    case = make_case(tensors, 0.01)
    numbers = range(case.blocks.num_blocks)
    check_ranks(case, "cuda", [numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]])
    check_ranks(case, "cuda", [numbers[::3], numbers[1::3], numbers[2::3]])


def test_a_list_that_is_too_short_grows_and_stays_exact() -> None:
    case = make_case([("a", "BF16", (700, 1024))], 0.3)
    section = sections_of(case.blocks, "cuda")[0]
    old, new = bound_pair(case, section, "cuda")
    extractor = Extractor(new, old, density=0.001)
    extractor.run()
    check_extraction(case, "cuda", [extractor])


def test_nothing_of_poisoned_buffers_reaches_the_output() -> None:
    case = make_case([("a", "BF16", (700, 1024)), ("n", "BF16", (999,))], 0.01, block_elements=1 << 18)
    section = sections_of(case.blocks, "cuda")[0]
    old, new = bound_pair(case, section, "cuda")
    extractor = Extractor(new, old)
    encoder = DeltaEncoder(case.blocks, [Part(old, new, extractor.changes, extractor.scratch)], 2)
    for _ in range(2):
        for buffer in (extractor.changes.where, extractor.changes.value, extractor.counts):
            buffer.fill_(POISON if buffer.element_size() == 4 else POISON >> 16)
        extractor.scratch._bytes.fill_(0xA5)
        encoder._memory._bytes.fill_(0xA5)
        extractor.run()
        assert encoder.encode().to_bytes(case.layout.hash) == cpu_object(case, 2)
    decoder = DeltaDecoder(case.blocks, [old])
    first = decoder.decode(cpu_object(case, 2))[0]
    kept = first.where.clone(), first.value.clone()
    for buffer in (first.where, decoder.reads[0]._mask, decoder.reads[0]._counts):
        buffer.fill_(POISON)
    again = decoder.decode(cpu_object(case, 2))[0]
    assert torch.equal(again.where, kept[0])
    assert torch.equal(again.value, kept[1])


def test_the_second_step_takes_no_memory_from_the_device() -> None:
    case = make_case([("a", "BF16", (700, 1024))], 0.01)
    section = sections_of(case.blocks, "cuda")[0]
    old, new = bound_pair(case, section, "cuda")
    extractor = Extractor(new, old, density=0.02)
    encoder = DeltaEncoder(case.blocks, [Part(old, new, extractor.changes, extractor.scratch)], 2)
    held = []
    for _ in range(4):
        extractor.run()
        encoder.encode()
        held.append(torch.cuda.memory_reserved())
    assert held[1] == held[3]


def test_views_are_read_and_written_through_their_strides() -> None:
    case = make_case([("a", "BF16", (300, 320)), ("t", "BF16", (256, 300))], 0.05)
    wide = torch.zeros((300, 700), dtype=torch.bfloat16, device="cuda")
    live = {"a": wide[:, 37:357], "t": torch.zeros((300, 256), dtype=torch.bfloat16, device="cuda").T}
    for name, tensor in case.new.items():
        live[name].copy_(tensor)
    section = sections_of(case.blocks, "cuda")[0]
    extractor = Extractor(bind(case.layout, section, live), bind(case.layout, section, on("cuda", case.old)))
    extractor.run()
    check_extraction(case, "cuda", [extractor])


def test_rows_that_do_not_lie_evenly_are_refused() -> None:
    layout = make_layout([("a", "BF16", (4, 300, 64))])
    section = sections_of(BlockMap(layout), "cuda")[0]
    uneven = torch.zeros((4, 310, 64), dtype=torch.bfloat16, device="cuda")[:, :300]
    with pytest.raises(LayoutError, match="make it contiguous"):
        bind(layout, section, {"a": uneven})


def test_more_than_two_to_the_31_elements_in_one_tensor() -> None:
    rows, cols = (1 << 19) + 33, 4096
    layout = make_layout([("w", "BF16", (rows, cols))])
    blocks = BlockMap(layout)
    section = sections_of(blocks, "cuda")[0]
    old = torch.randint(-3000, 3000, (rows, cols), dtype=torch.int16, device="cuda").view(torch.bfloat16)
    new = old.clone()
    places = torch.tensor([0, 1, (1 << 31) - 1, 1 << 31, (1 << 31) + 5, rows * cols - 1], device="cuda")
    new.view(torch.int16).view(-1)[places] += torch.tensor([1, -1, 2, -300, 1, 7], dtype=torch.int16, device="cuda")
    live, base = bind(layout, section, {"w": new}), bind(layout, section, {"w": old})
    extractor = Extractor(live, base, density=1e-5)
    assert extractor.run() == places.numel()
    for codec in (1, 2):
        data = DeltaEncoder(blocks, [Part(base, live, extractor.changes)], codec).encode().to_bytes(layout.hash)
        changes = DeltaDecoder(blocks, [base]).decode(data)[0]
        assert torch.equal(changes.where[: places.numel()], extractor.changes.where[: places.numel()] & 0xFFFFFF)
    sums = torch.zeros((section.num_pieces, 2), dtype=torch.int64, device="cuda")
    digests.commit(changes, base, sums)
    assert torch.equal(old.view(torch.int16), new.view(torch.int16))
