import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import LocalProtocolError
from sync_runtime.library.folding import BitList, NewBits, folded, max_list_bytes, parse_list, scatter
from sync_runtime.tensors.layout import Layout, make_layout

LAYOUT = make_layout([("a", "BF16", (4, 6)), ("b", "F64", (3,)), ("c", "BOOL", ()), ("d", "F32", (0, 5))])
HEAD = struct.Struct("<IIQ")


def nothing() -> None:
    """Nobody is kept waiting in these tests."""


def record(tensor: int, positions: list[int], bits: bytes, zero: int = 0) -> bytes:
    body = np.array(positions, "<u8").tobytes() + bits
    return HEAD.pack(tensor, zero, len(positions)) + body + bytes(-len(body) % 8)


def parsed(data: bytes, layout: Layout = LAYOUT) -> BitList:
    return parse_list(np.frombuffer(bytearray(data), np.uint8), layout, nothing)


def entries(new: BitList) -> dict[int, dict[int, int]]:
    return {
        tensor: dict(zip(one.positions.tolist(), one.bits.tolist(), strict=True)) for tensor, one in new.tensors.items()
    }


def test_a_list_says_what_elements_become() -> None:
    data = record(0, [1, 23], b"\1\2\3\4") + record(1, [0, 5], bytes(range(8))) + record(2, [0], b"\1")
    assert entries(parsed(data)) == {0: {1: 0x0201, 23: 0x0403}, 1: {0: 0x03020100, 5: 0x07060504}, 2: {0: 1}}
    assert parsed(data).num_elements == 5
    assert parsed(b"").num_elements == 0
    assert len(data) <= max_list_bytes(LAYOUT)


@pytest.mark.parametrize(
    "data",
    [
        record(0, [1], b"ab")[:-1], record(0, [1], b"ab")[:10], record(4, [0], b"ab"), record(3, [0], b"abcd"),
        record(0, [1], b"ab") + record(0, [2], b"ab"), record(1, [0], b"abcd") + record(0, [2], b"ab"),
        record(0, [24], b"ab"), record(0, [2, 1], b"abcd"), record(0, [1, 1], b"abcd"), record(0, [], b""),
        record(0, [1], b"ab", zero=1), record(0, [(1 << 64) - 1], b"ab"), HEAD.pack(0, 0, 1 << 60) + bytes(64),
        record(0, [1], b"ab")[:-1] + b"\1",
    ],
    ids=["cut", "head", "tensor", "empty tensor", "twice", "order", "outside", "descending", "equal", "none", "zero",
         "negative", "huge", "padding"],
)  # fmt: skip
def test_a_malformed_list_is_refused(data: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        parsed(data)


def random_list(rng: np.random.Generator) -> BitList:
    made = {}
    for tensor in np.flatnonzero(rng.random(3) < 0.7).tolist():
        positions = np.flatnonzero(rng.random(24) < rng.random())
        if positions.size:
            made[tensor] = NewBits(positions, rng.integers(0, 1 << 16, positions.size).astype("<u2"))
    return BitList(made)


@given(st.integers(0, 2**32))
def test_of_two_lists_the_later_bits_win_and_positions_ascend(seed: int) -> None:
    rng = np.random.default_rng(seed)
    earlier, later = random_list(rng), random_list(rng)
    found = folded(earlier, later, nothing)
    wanted = {
        tensor: entries(earlier).get(tensor, {}) | entries(later).get(tensor, {})
        for tensor in earlier.tensors.keys() | later.tensors.keys()
    }
    assert entries(found) == wanted
    assert all((np.diff(one.positions) > 0).all() for one in found.tensors.values())


@pytest.mark.parametrize("view", ["plain", "transposed", "sliced"])
def test_a_scatter_writes_these_elements_and_no_others(view: str) -> None:
    home = torch.zeros(6, 4, dtype=torch.bfloat16).T if view == "transposed" else torch.zeros(4, 9).to(torch.bfloat16)
    live = {"a": home[:, 2:8] if view == "sliced" else home[:, :6], "b": torch.zeros(6, dtype=torch.float64)[::2]}
    live["c"], live["d"] = torch.tensor(False), torch.zeros(0, 5)
    data = (
        record(0, [1, 23], b"\x80\x3f\x00\x40") + record(1, [3, 5], b"\0\0\xf0\x3f\0\0\0\x40") + record(2, [0], b"\1")
    )
    for _ in range(2):  # one that was interrupted is done again
        scatter(LAYOUT, live, parsed(data))
    wanted = torch.zeros(4, 6)
    wanted[0, 1], wanted[3, 5] = 1.0, 2.0
    assert torch.equal(live["a"].float(), wanted)
    assert live["b"].tolist() == [0.0, 1.0, 2.0]
    assert bool(live["c"])
    assert home.float().sum() == 3.0
