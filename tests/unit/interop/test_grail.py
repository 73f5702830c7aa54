"""grail's patches: bytes put together by hand from the description are read, and every field that lies is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sync_runtime.errors import FormatError, LayoutError, LimitError, SyncError, TruncatedError, UnknownFormatError
from sync_runtime.offline import digest, load
from sync_runtime.offline.interop.grail import decode_positions, encode_positions
from tests.support.checkpoints import save_file
from tests.support.interop import exported, imported, saved
from tests.support.states import copied, tensor

zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed: these patches are packed with it")

BEFORE = {
    "m": tensor("BF16", (3, 400), np.arange(1200, dtype=np.uint16)),
    "v": tensor("F16", (5,), np.arange(5, dtype=np.uint16)),
}
AFTER = copied(BEFORE)
AFTER["m"].matrix[0, 3], AFTER["m"].matrix[0, 300], AFTER["m"].matrix[2, 7] = 0x8000, 0x7FC1, 0x0001
AFTER["v"].matrix[0, 4] = 0x8000
HEADER: dict[str, Any] = {
    "version": 31,
    "tensors": [
        {
            "name": "m", "shape": [3, 400], "num_nonzero": 3, "value_dtype": "bfloat16", "row_dtype": "uint8",
            "col_dtype": "uint16", "indices_offset": 0, "indices_size": 9, "rows_size": 3, "cols_size": 6,
            "values_offset": 9, "values_size": 6,
        },
        {
            "name": "v", "shape": [5], "num_nonzero": 1, "value_dtype": "float16", "row_dtype": "uint8",
            "col_dtype": "uint16", "indices_offset": 15, "indices_size": 3, "rows_size": 1, "cols_size": 2,
            "values_offset": 18, "values_size": 2,
        },
    ],
}  # fmt: skip
BODY = bytes.fromhex("00 00 02  0300 2901 0700  0080 c17f 0100   04 0000 0080")


def packed(header: object, body: bytes = BODY) -> bytes:
    raw = json.dumps(header, separators=(",", ":")).encode()
    frame: bytes = zstandard.ZstdCompressor(level=1).compress(len(raw).to_bytes(4, "little") + raw + body)
    return frame


def altered(at: int, **changes: object) -> dict[str, Any]:
    tensors = [dict(entry) for entry in HEADER["tensors"]]
    tensors[at] |= changes
    return {**HEADER, "tensors": tensors}


def take(folder: Path, data: bytes) -> str:
    base = save_file(folder / "base.safetensors", BEFORE)
    (folder / "patch").write_bytes(data)
    return str(load(imported(base, folder / "patch", folder / "x.sgd", "pulse")).target.digest)


def test_a_patch_put_together_by_hand_is_read(tmp_path: Path) -> None:
    assert take(tmp_path, packed(HEADER)) == str(digest(AFTER))


def test_what_we_write_has_these_bytes(tmp_path: Path) -> None:
    patch = exported(saved(tmp_path, BEFORE, AFTER), tmp_path / "patch", "pulse", "grail-v3.1").read_bytes()
    content = zstandard.decompress(patch)
    size = int.from_bytes(content[:4], "little")
    assert json.loads(content[4 : 4 + size]) == HEADER
    assert content[4 + size :] == BODY


@pytest.mark.parametrize(
    ("data", "error", "sentence"),
    [
        (packed({**HEADER, "version": 1}), UnknownFormatError, "version 1"),
        (packed({**HEADER, "tensors": {}}), FormatError, "tensors"),
        (packed(altered(0, value_dtype="int8")), UnknownFormatError, "int8"),
        (packed(altered(0, row_dtype="int64")), UnknownFormatError, "int64"),
        (packed(altered(0, num_nonzero=1201)), LimitError, "1201"),
        (packed(altered(0, num_nonzero=2)), FormatError, "its changes make it"),
        (packed(altered(1, indices_offset=0)), FormatError, "indices_offset"),
        (packed(altered(1, values_size=4)), FormatError, "values_size"),
        (packed(altered(1, name="m")), FormatError, "ascend"),
        (packed(altered(1, name="x")), LayoutError, "'x'"),
        (packed(altered(0, shape=[400, 3])), LayoutError, "shape"),
        (packed(altered(1, value_dtype="bfloat16")), LayoutError, "nothing is cast"),
        (packed(HEADER, BODY[:-1]), TruncatedError, "less than"),
        (packed(HEADER, BODY + b"\0"), FormatError, "more than"),
        (packed(HEADER, BODY.replace(b"\x29\x01", b"\x90\x01")), FormatError, "outside"),
        (packed(HEADER, BODY.replace(b"\x29\x01", b"\0\0")), FormatError, "twice"),
        (packed(HEADER, b"\x00\x00\x03" + BODY[3:]), FormatError, "outside"),
        (zstandard.compress(b"\xff\xff\xff\x7f"), LimitError, "limit"),
        (zstandard.compress(b"\xff"), TruncatedError, "less than"),
    ],
)
def test_a_patch_that_is_not_as_described_is_refused(
    tmp_path: Path, data: bytes, error: type[SyncError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        take(tmp_path, data)
    assert not (tmp_path / "x.sgd").exists()


@pytest.mark.parametrize("version", [2, 3])
def test_positions_beyond_32_bits_are_kept_by_the_lists(version: int) -> None:
    positions = np.array([0, 5, (1 << 33) + 1, (1 << 33) + 2], np.int64)
    shape = (1 << 18, 1 << 17)
    assert decode_positions(encode_positions(positions, shape, version), shape, "w").tolist() == positions.tolist()


@pytest.mark.parametrize(
    "lists",
    [([5, -1],), ([1, 0],), ([0, 0], [3, -1]), ([-1, 1], [0, 0]), ([0, 1], [0, -1])],
    ids=["back", "again", "column back", "row below", "column below, position inside"],
)
def test_lists_that_go_back_are_refused(lists: tuple[list[int], ...]) -> None:
    with pytest.raises(FormatError):
        decode_positions(tuple(np.array(part, np.int64) for part in lists), (4, 4), "w")


def test_a_column_outside_is_refused_even_where_the_position_would_be_inside() -> None:
    with pytest.raises(FormatError, match="columns"):
        decode_positions((np.array([0], np.int64), np.array([4], np.int64)), (4, 4), "w")
