"""Checkpoints on disk: found, read, and not believed before they are checked."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sync_runtime.errors import FormatError, LayoutError, LimitError
from sync_runtime.library.engines import checkpoint_files
from tests.support.loaders import bits

STATE = {
    "a": torch.arange(6.0).reshape(2, 3).to(torch.bfloat16), "b": torch.tensor(3), "c": torch.zeros(0, 4),
    "d": torch.tensor([-0.0, float("nan")]).to(torch.float8_e4m3fn),
}  # fmt: skip


def written(folder: Path, header: object, data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def test_all_tensors_are_found_with_their_bits(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = checkpoint_files.stored_in(tmp_path)
    assert found.keys() == STATE.keys()
    for name, tensor in STATE.items():
        read = checkpoint_files.read(found[name])
        assert (read.shape, read.dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(bits(read), bits(tensor))


def test_an_index_says_which_files_count(tmp_path: Path) -> None:
    save_file({"a": STATE["a"]}, tmp_path / "model-1.safetensors")
    save_file({"a": STATE["a"] + 1}, tmp_path / "consolidated.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = checkpoint_files.stored_in(tmp_path)
    assert found["a"].file.name == "model-1.safetensors"


def test_a_folder_without_files_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="layout"):
        checkpoint_files.stored_in(tmp_path)


def place(shape: object, begin: int, end: int) -> object:
    return {"a": {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}}


@pytest.mark.parametrize(
    "header",
    [[], {"a": {}}, place([2], 0, 4), place([1], -4, 0), place(1, 0, 4)],
    ids=["a list", "nothing said", "wrong size", "before the data", "no list"],
)
def test_a_broken_header_is_refused(tmp_path: Path, header: object) -> None:
    with pytest.raises(FormatError):
        checkpoint_files.stored_in(written(tmp_path, header, bytes(4)))


def test_a_header_of_impossible_length_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60))
    with pytest.raises(LimitError):
        checkpoint_files.stored_in(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    with pytest.raises(FormatError, match="too short"):
        checkpoint_files.stored_in(tmp_path)


def test_a_file_that_ends_inside_a_tensor_is_refused(tmp_path: Path) -> None:
    header = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    found = checkpoint_files.stored_in(written(tmp_path, header, bytes(4)))
    with pytest.raises(FormatError, match="ends inside"):
        checkpoint_files.read(found["a"])


def test_a_dtype_that_engines_do_not_load_is_named(tmp_path: Path) -> None:
    header = {"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}
    with pytest.raises(LayoutError, match="F4"):
        checkpoint_files.stored_in(written(tmp_path, header, bytes(1)))
