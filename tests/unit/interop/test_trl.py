"""TRL's sparse safetensors: files as TRL writes them are read; everything else is refused in a sentence."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from sync_runtime.errors import DigestError, FormatError, LayoutError, LimitError, SyncError, UnknownFormatError
from sync_runtime.offline import digest, load
from sync_runtime.offline.interop.trl import decode_indices, encode_indices
from sync_runtime.tensors.bits import BitTensor
from tests.support.checkpoints import save_file
from tests.support.interop import exported, imported, saved
from tests.support.states import copied, tensor

safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed: it is the judge here")

NAMES = {"BF16": "bfloat16", "F32": "float32", "I32": "int32", "U16": "uint16", "U32": "uint32"}
BASE = {"w": tensor("BF16", (4, 3), np.arange(12, dtype=np.uint16) + 0x3F00)}
GAP = {"format": "sparse_weight_patch", "encoding": "gap_delta"}
RAW = {"format": "sparse_weight_patch", "encoding": "raw"}


def column(dtype_name: str, values: list[int]) -> BitTensor:
    """A stored list, negative numbers as two's complement."""
    return tensor(dtype_name, (len(values),), np.array(values, np.int64).astype(np.uint64))


def patch(folder: Path, tensors: Mapping[str, BitTensor], metadata: Mapping[str, str]) -> Path:
    """A file as the safetensors package would write it."""
    path = folder / "patch.safetensors"
    kept = {name: np.ascontiguousarray(bits.matrix) for name, bits in tensors.items()}  # alive while it is read
    stored = {
        name: safetensors.TensorSpec(
            dtype=NAMES[bits.dtype.name],
            shape=list(bits.shape),
            data_ptr=kept[name].ctypes.data,
            data_len=kept[name].nbytes,
        )
        for name, bits in tensors.items()
    }
    path.write_bytes(safetensors.serialize(stored, dict(metadata)))
    return path


def run(folder: Path, tensors: Mapping[str, BitTensor], metadata: Mapping[str, str]) -> str:
    """The digest of what a patch makes of the base."""
    base = save_file(folder / "base.safetensors", BASE)
    return str(
        load(imported(base, patch(folder, tensors, metadata), folder / "x.sgd", "trl-safetensors")).target.digest
    )


def expected(**changes: int) -> str:
    after = copied(BASE)
    for at, bits in changes.items():
        after["w"].matrix.reshape(-1)[int(at.removeprefix("at"))] = bits
    return str(digest(after))


@pytest.mark.parametrize(
    ("stored", "metadata"),
    [
        ({"w.idx": column("U16", [1, 9]), "w.val": column("BF16", [0x8000, 0x7FC1])}, GAP),
        ({"w.idx": column("U32", [1, 9]), "w.val": column("BF16", [0x8000, 0x7FC1])}, GAP),
        ({"w.idx": column("I32", [1, 11]), "w.val": column("BF16", [0x8000, 0x7FC1])}, RAW),
        ({"w.idx": column("I32", [1, 11]), "w.val": column("BF16", [0x8000, 0x7FC1])}, {}),
        ({"w.indices": column("I32", [1, 11]), "w.values": column("BF16", [0x8000, 0x7FC1])}, {}),
    ],
    ids=["u16 gaps", "u32 gaps", "raw", "raw without a header", "v1"],
)
def test_every_generation_is_read(tmp_path: Path, stored: dict[str, BitTensor], metadata: dict[str, str]) -> None:
    assert run(tmp_path, stored, metadata) == expected(at1=0x8000, at11=0x7FC1)


@pytest.mark.parametrize(
    ("stored", "metadata", "error", "sentence"),
    [
        ({"w.idx": column("I32", [1]), "w.val": column("BF16", [1])}, GAP, FormatError, "does not use"),
        ({"w.idx": column("U16", [1]), "w.val": column("BF16", [1])}, RAW, FormatError, "does not use"),
        (
            {"w.idx": column("I32", [1]), "w.val": column("BF16", [1])},
            {"encoding": "nvcomp_cascaded"},
            UnknownFormatError,
            "nvcomp_cascaded",
        ),
        ({"w.idx": column("I32", [2, 1]), "w.val": column("BF16", [1, 2])}, RAW, FormatError, "ascend"),
        ({"w.idx": column("I32", [2, 2]), "w.val": column("BF16", [1, 2])}, RAW, FormatError, "twice"),
        ({"w.idx": column("I32", [-1, 2]), "w.val": column("BF16", [1, 2])}, RAW, FormatError, "outside"),
        ({"w.idx": column("I32", [12]), "w.val": column("BF16", [1])}, RAW, FormatError, "outside"),
        ({"w.idx": column("U16", [12]), "w.val": column("BF16", [1])}, GAP, FormatError, "outside"),
        ({"w.idx": column("U32", [0xFFFFFFFF] * 2), "w.val": column("BF16", [1, 1])}, GAP, FormatError, "outside"),
        ({"w.idx": column("I32", list(range(13))), "w.val": column("BF16", [1] * 13)}, RAW, LimitError, "13 changes"),
        ({"w.idx": column("I32", [1]), "w.val": column("BF16", [1, 2])}, RAW, FormatError, "shape"),
        ({"w.idx": column("I32", [1]), "w.val": column("F32", [1])}, RAW, LayoutError, "nothing is cast"),
        ({"w.idx": column("I32", [1])}, RAW, FormatError, "only one of"),
        ({"w.indices": column("I32", [1]), "w.val": column("BF16", [1])}, {}, FormatError, "mixes"),
        ({"v.idx": column("I32", [1]), "v.val": column("BF16", [1])}, RAW, LayoutError, "does not have"),
        ({"w": BASE["w"]}, {}, FormatError, "dense-safetensors"),
        (
            {"w.idx": column("I32", [1]), "w.val": column("BF16", [1])},
            RAW | {"total_changed_elements": "2"},
            FormatError,
            "announces 2",
        ),
        (
            {"w.idx": column("I32", [1]), "w.val": column("BF16", [1])},
            {"format": "lora"},
            UnknownFormatError,
            "lora",
        ),
    ],
)
def test_what_is_no_patch_of_the_base_is_refused(
    tmp_path: Path, stored: dict[str, BitTensor], metadata: dict[str, str], error: type[SyncError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        run(tmp_path, stored, metadata)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.safetensors", "patch.safetensors"]


def test_names_that_look_like_suffixes_are_names(tmp_path: Path) -> None:
    before = {"a": BASE["w"], "a.idx": copied(BASE)["w"], "a.val": copied(BASE)["w"]}
    after = copied(before)
    after["a"].matrix[0, 0], after["a.idx"].matrix[1, 1], after["a.val"].matrix[2, 2] = 1, 2, 3
    case = saved(tmp_path, before, after)
    for variant in ("gap_delta", "raw", "v1"):
        foreign = exported(case, tmp_path / "foreign", "trl-safetensors", variant)
        again = load(imported(case.base, foreign, tmp_path / "again.sgd", "trl-safetensors"))
        assert bytes(again.object) == bytes(case.delta.object)


def test_the_checksum_of_the_first_generation_is_verified(tmp_path: Path) -> None:
    after = copied(BASE)
    after["w"].matrix[0, 1] = 0x8000
    right = hashlib.sha256(after["w"].matrix.tobytes()).hexdigest()
    stored = {"w.indices": column("I32", [1]), "w.values": column("BF16", [0x8000])}
    assert run(tmp_path, stored, {"checksum_sha256": right}) == expected(at1=0x8000)
    with pytest.raises(DigestError, match="base is another"):
        run(tmp_path, stored, {"checksum_sha256": "0" * 64})


def test_what_we_write_the_safetensors_package_reads(tmp_path: Path) -> None:
    after = copied(BASE)
    after["w"].matrix[3, 2] = 0x7FC1
    case = saved(tmp_path, BASE, after)
    exported(case, tmp_path / "foreign", "trl-safetensors", "gap_delta", model_version="12")
    with safetensors.safe_open(str(tmp_path / "foreign"), framework="np") as file:
        assert file.metadata()["model_version"] == "12"
        assert file.get_tensor("w.idx").tolist() == [11]
        assert str(file.get_tensor("w.idx").dtype) == "uint16"


def test_positions_above_32_bits_are_not_written_and_not_wrapped() -> None:
    with pytest.raises(LimitError, match="32 bits"):
        encode_indices(np.array([1 << 31], np.int64), "gap_delta")
    gaps = np.array([0xFFFFFFFF, 0xFFFFFFFF], np.uint32)
    assert decode_indices(gaps, gaps=True).tolist() == [0xFFFFFFFF, 0x1FFFFFFFF]
