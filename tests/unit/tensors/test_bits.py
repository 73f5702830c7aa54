"""Raw bits of tensors: views where memory allows, and the cast of an fp32 master to what is served."""

import numpy as np
import pytest

from sync_runtime.errors import LayoutError
from sync_runtime.offline import Snapshot, apply, diff, digest, layout_of
from sync_runtime.tensors.bits import BitTensor, CastTensor, bind
from sync_runtime.tensors.dtypes import wire_dtype
from sync_runtime.tensors.sparse import Bits
from tests.support.states import noise

torch = pytest.importorskip("torch", reason="torch is not installed: its cast is the reference")
TARGETS = {"BF16": torch.bfloat16, "F16": torch.float16}


def patterns() -> Bits:
    """fp32 bits: any at all, and those around every border of rounding, range and NaN."""
    heads = np.arange(0, 1 << 16, dtype=np.uint64) << np.uint64(16)
    tails = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint64)
    near = (heads[::7, None] | tails).reshape(-1)
    return np.concatenate([near, noise(50_000, 3)]).astype(np.uint32)


@pytest.mark.parametrize("dtype_name", TARGETS)
def test_the_cast_is_the_one_of_torch_save_for_nans_which_become_one(dtype_name: str) -> None:
    bits = patterns()
    wanted = torch.from_numpy(bits.view(np.float32)).to(TARGETS[dtype_name]).view(torch.int16).numpy().view(np.uint16)
    tile = CastTensor(wire_dtype(dtype_name), bits.shape, bits.reshape(1, -1)).tile(slice(None), slice(None))
    seen, is_nan = tile.reshape(-1), np.isnan(bits.view(np.float32))
    assert seen.dtype == np.uint16
    assert np.array_equal(seen[~is_nan], wanted[~is_nan])
    assert set(seen[is_nan].tolist()) == {0x7FC0 if dtype_name == "BF16" else 0x7E00}


def master_and_served() -> tuple[dict[str, object], dict[str, object]]:
    torch.manual_seed(4)
    master = {"w": torch.randn(300, 260), "b": torch.randn(7), "router": torch.randn(5)}
    served = {name: tensor.to(torch.bfloat16) for name, tensor in master.items() if name != "router"}
    return master, served | {"router": master["router"].clone()}


@pytest.mark.parametrize("codec", ["fast", "tight", "auto"])
def test_an_fp32_master_is_compared_as_it_will_be_served(codec: str) -> None:
    master, served = master_and_served()
    assert diff(served, master, codec=codec).manifest.num_changed == 0
    moved = {name: tensor * 1.001 for name, tensor in master.items()}  # type: ignore[operator]
    delta = diff(served, moved, codec=codec)
    wanted = {name: moved[name].to(served[name].dtype) for name in moved}  # type: ignore[attr-defined]
    assert delta.to_bytes() == diff(served, wanted, codec=codec).to_bytes()
    apply(served, delta)
    assert digest(served) == digest(wanted) == digest(moved, layout=delta.layout)


def test_a_snapshot_of_a_master_holds_what_is_served() -> None:
    master, served = master_and_served()
    snapshot = Snapshot(master, layout=layout_of(served))
    assert snapshot.digest == digest(served)
    assert snapshot.diff(served).manifest.num_changed == 0


def test_a_delta_is_never_applied_through_a_cast() -> None:
    master, served = master_and_served()
    with pytest.raises(LayoutError, match="the layout says BF16"):
        apply(master, diff(served, served))


def test_no_other_dtype_stands_for_another() -> None:
    layout = layout_of({"w": np.zeros(3, np.float16)})
    for array in (np.zeros(3, np.float64), np.zeros(3, np.int32), np.zeros(3, np.uint16)):
        with pytest.raises(LayoutError, match="the layout says F16"):
            bind(layout, {"w": array})


def test_a_tile_of_a_plain_tensor_is_a_view() -> None:
    matrix = noise(12, 1).astype(np.uint16).reshape(3, 4)
    tile = BitTensor(wire_dtype("BF16"), (3, 4), matrix).tile(slice(1, 3), slice(0, 2))
    assert np.shares_memory(tile, matrix)
    assert np.array_equal(tile, matrix[1:3, :2])
