import pytest
import torch

pytest.importorskip("triton", reason="the device coder needs triton")

from sync_runtime.errors import FormatError
from sync_runtime.library.device_anchors import AnchorReader, anchor_chunks, write_block
from sync_runtime.offline.anchors import read_anchor
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.layout import make_layout

LAYOUT = make_layout(
    [("w", "BF16", (300, 256)), ("s", "BF16", (5, 3)), ("b", "BOOL", (3,)), ("i", "I64", ()), ("h", "BF16", (7,))]
)
BLOCKS = BlockMap(LAYOUT)
State = dict[str, torch.Tensor]


def state(seed: int) -> State:
    torch.manual_seed(seed)
    return {
        "w": torch.randn(300, 300).to(torch.bfloat16)[:, 20:276], "s": torch.randn(3, 5).to(torch.bfloat16).T,
        "b": torch.rand(3) > 0.5, "i": torch.tensor(seed << 40), "h": torch.randn(7).to(torch.bfloat16),
    }  # fmt: skip


def anchor_of(source: State, seq: int = 4) -> bytes:
    return b"".join(
        bytes(part) for part in anchor_chunks(BLOCKS, source, seq=seq, numbers=list(range(BLOCKS.num_blocks)))
    )


def test_an_anchor_reads_as_the_format_says() -> None:
    source = state(1)
    read = list(read_anchor(memoryview(anchor_of(source)), BLOCKS))
    assert [(one.block.number, one.seq) for one in read] == [(number, 4) for number in range(BLOCKS.num_blocks)]
    first = source["w"].contiguous().view(torch.int16).view(-1).numpy().view("u2")
    assert (read[0].bits == first[: read[0].bits.size]).all()


@pytest.mark.parametrize("step", [1 << 20, 1000])
def test_blocks_come_back_into_tensors_of_any_shape(step: int) -> None:
    source, target = state(1), state(2)
    reader = AnchorReader(BLOCKS, 4, lambda block, bits: write_block(BLOCKS, target, block, bits))
    data = memoryview(anchor_of(source))
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
    reader.finish()
    assert reader.num_blocks == BLOCKS.num_blocks
    for name, tensor in source.items():
        assert torch.equal(tensor, target[name]), name


def spoiled(at: int, value: int) -> bytes:
    data = bytearray(anchor_of(state(1)))
    data[at] = value
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [spoiled(0, 0), spoiled(6, 1), spoiled(9, 7), spoiled(32, 9), spoiled(36, 4), spoiled(37, 1), spoiled(40, 1),
     spoiled(44, 1), spoiled(48, 5), anchor_of(state(1))[:-8], anchor_of(state(1)) + b"\0",
     anchor_of(state(1))[:-4] + b"\1\0\0\0"],
    ids=["magic", "kind", "layout", "block", "packed", "parameter", "count", "size", "seq", "cut", "more", "end"],
)  # fmt: skip
def test_a_damaged_anchor_is_refused(data: bytes) -> None:
    taken: list[Block] = []
    reader = AnchorReader(BLOCKS, 4, lambda block, _: taken.append(block))

    def read() -> None:
        reader.feed(memoryview(data))
        reader.finish()

    with pytest.raises(FormatError):
        read()
