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
from tests.gpu.support import Case, bound_pair, cpu_object, make_case, on

pytestmark = pytest.mark.timeout(300)
POISON = 0xA5A5A5A5 - (1 << 32)


def masters_case(device: str) -> tuple[Case, dict[str, torch.Tensor]]:
    """fp32 masters with every awkward value, and what the device's own cast makes of them."""
    case = make_case([("a", "BF16", (70, 1024)), ("n", "BF16", (300,))], 0.0)
    bits = torch.randint(-(1 << 31), (1 << 31) - 1, (300,), dtype=torch.int64).to(torch.int32)
    awkward = torch.tensor(
        [0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0x7F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x00000001,
         0x00007FFF, 0x00008000, 0x00018000, 0x007FFFFF],
        dtype=torch.int64,
    )  # fmt: skip
    both = torch.cat([awkward, awkward - (1 << 31)]).to(torch.int32)
    bits[: both.numel()] = both
    masters = on(device, {"a": case.old["a"].float() * 1.001, "n": bits.view(torch.float32)})
    case.new = {name: tensor.to(torch.bfloat16).cpu() for name, tensor in masters.items()}
    return case, masters


def test_masters_are_compared_as_the_devices_cast_rounds_them() -> None:
    case, masters = masters_case("cuda")
    section = sections_of(case.blocks, "cuda")[0]
    old = bind(case.layout, section, on("cuda", case.old))
    extractor = Extractor(bind(case.layout, section, masters, masters=True), old)
    extractor.run()
    check_extraction(case, "cuda", [extractor])


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
    encoder = DeltaEncoder(case.blocks, [Part(old, new, extractor.changes)], 2)
    for _ in range(2):
        for buffer in (extractor.changes.where, extractor._masks, extractor.counts, encoder._out):
            buffer.fill_(POISON)
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
    encoder = DeltaEncoder(case.blocks, [Part(old, new, extractor.changes)], 2)
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
