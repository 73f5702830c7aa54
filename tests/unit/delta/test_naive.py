"""The plain torch reference: every ordered pair of special patterns, every dtype, the digest."""

import pytest

pytest.importorskip("torch", reason="torch is not installed: the reference for kernels needs it")

import torch

from sync_runtime.delta import naive
from sync_runtime.offline import diff, digest
from sync_runtime.tensors.digest import tensor_keys
from sync_runtime.tensors.layout import make_layout
from tests.support.states import SPECIAL_BF16

WIRE_NAMES = {
    torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.int8: "I8", torch.uint8: "U8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.float64: "F64", torch.bool: "BOOL",
}  # fmt: skip


def special_pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Two bf16 tensors with every ordered pair of special patterns."""
    signed = torch.tensor([bits - 65536 if bits > 32767 else bits for bits in SPECIAL_BF16], dtype=torch.int16)
    old = signed.repeat_interleave(signed.numel()).view(torch.bfloat16)
    return old, signed.repeat(signed.numel()).view(torch.bfloat16)


def test_the_reference_tells_all_special_patterns_apart() -> None:
    old, new = special_pairs()
    positions, differences = naive.extract(old, new)
    assert positions.numel() == len(SPECIAL_BF16) * (len(SPECIAL_BF16) - 1)
    assert torch.equal(naive.apply(old, positions, differences).view(torch.int16), new.view(torch.int16))


def test_a_state_with_nans_does_not_differ_from_itself() -> None:
    old, _ = special_pairs()
    assert naive.extract(old, old.clone())[0].numel() == 0
    assert diff({"w": old}, {"w": old.clone()}).manifest.num_changed == 0


@pytest.mark.parametrize("dtype", WIRE_NAMES, ids=WIRE_NAMES.values())
def test_the_cpu_finds_the_same_changes_as_the_reference(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    high = 2 if dtype is torch.bool else 256
    size = 1024 * torch.empty((), dtype=dtype).element_size()
    old = torch.randint(0, high, (size,), dtype=torch.uint8, generator=generator)
    new = torch.where(torch.rand(size, generator=generator) < 0.1, high - 1 - old, old)
    old, new = old.view(dtype), new.view(dtype)
    positions, differences = naive.extract(old, new)
    delta = diff({"w": old}, {"w": new})
    reader = delta.reader()
    ((block, record),) = reader.records()
    found = reader.decode(block, record, None)
    assert found.positions.tolist() == positions.tolist()
    assert found.differences.tolist() == differences.tolist()
    assert torch.equal(naive.raw_bits(naive.apply(old, positions, differences)), naive.raw_bits(new))


def test_a_wider_master_is_cast_to_the_wire_dtype_before_it_is_compared() -> None:
    master = torch.tensor([1.0, 1.0 + 2**-9, 1.0 + 2**-8 + 2**-20, -0.0])
    snapshot = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.bfloat16)
    positions, differences = naive.extract(snapshot, master)
    assert positions.tolist() == [2, 3]
    assert differences.tolist() == [1, 0x8000]


@pytest.mark.parametrize("dtype", WIRE_NAMES, ids=WIRE_NAMES.values())
@pytest.mark.parametrize("shape", [(), (0,), (1,), (300, 260), (3, 4, 5)], ids=str)
def test_the_digests_agree(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.arange(max(1, torch.Size(shape).numel())).to(dtype)[: torch.Size(shape).numel()].reshape(shape)
    spec = make_layout([("name", WIRE_NAMES[dtype], shape)]).tensors[0]
    assert tuple(digest({"name": value})) == naive.digest(value, tensor_keys(spec))
