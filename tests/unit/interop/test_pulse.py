"""PULSE patches: the published golden vector in all three formats of PULSEPT1, and the index streams at their edges."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.errors import DigestError, FormatError, LayoutError, SyncError, UnknownFormatError, WrongBaseError
from sync_runtime.offline import digest, load
from sync_runtime.offline.interop.checksums import xxh3_128
from sync_runtime.offline.interop.positions import (
    decode_classes,
    decode_rice,
    decode_u16,
    encode_classes,
    encode_rice,
    encode_u16,
)
from sync_runtime.offline.interop.pulsept1 import decode_values, encode_values
from sync_runtime.tensors.bits import BitTensor
from tests.support.checkpoints import save_file
from tests.support.interop import bf16_next, bf16_state, exported, imported, saved
from tests.support.states import SPECIAL_BF16, tensor

zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed: PULSE patches are packed with it")

STATE_BEFORE = "b6153b9125b43d9bb92650a8fe215590"
STATE_AFTER = "3f430f4c1db44059e638cdd7755b3078"
PATCHES = {
    "pulsept1-v1": ("724a8a96", "eeee8", "01000000a03f02000000e040"),
    "pulsept1-v2": ("44e3c717", "cff6de", "0001000000bf400001000000dfffc081"),
    "pulsept1-v3": ("5f90fe6d", "ebff9c", None),
}
"""Begin and end of the SHA-256 of the published patches, and what they unpack to."""
LISTS = [
    [0],
    [1 << 31],
    [(1 << 32) - 2],
    [0, 1, 2],
    [0, 0xFFFE],
    [0, 0xFFFF],
    [0, 0x10000],
    [5, 5 + 0xFFFF + (0xFFFF << 16)],
    [7, 7 + 255, 7 + 512],
    [*range(200), 199 + (1 << 20)],
]


def golden() -> tuple[dict[str, BitTensor], dict[str, BitTensor]]:
    """The two small tensors of the published vector."""

    def bf16(shape: tuple[int, ...], *values: float) -> BitTensor:
        return tensor("BF16", shape, (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16))

    before = {"w.a": bf16((2, 2), 0, 1, 2, 3), "w.b": bf16((3,), 1.5, -2.5, 0)}
    return before, {"w.a": bf16((2, 2), 0, 1.25, 2, 3), "w.b": bf16((3,), 1.5, -2.5, 7)}


def golden_patch(folder: Path, variant: str) -> bytes:
    case = saved(folder, *golden())
    meta = {"model": "test@deadbeef", "step": "1", "baseStep": "0"}
    return exported(case, folder / "patch", "pulse", variant, **meta).read_bytes()


def parts(patch: bytes) -> tuple[dict[str, object], bytes]:
    """Header and unpacked payload of an envelope."""
    size = int.from_bytes(patch[8:12], "little")
    header: dict[str, object] = json.loads(patch[12 : 12 + size])
    return header, zstandard.ZstdDecompressor().decompress(patch[12 + size :], max_output_size=1 << 20)


def retold(patch: bytes, changes: dict[str, object], without: str = "") -> bytes:
    """The same envelope under an altered header."""
    size = int.from_bytes(patch[8:12], "little")
    content = json.loads(patch[12 : 12 + size]) | changes
    content.pop(without, None)
    header = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return patch[:8] + len(header).to_bytes(4, "little") + header + patch[12 + size :]


@pytest.mark.parametrize("variant", PATCHES)
def test_the_published_vector_is_written_as_published(tmp_path: Path, variant: str) -> None:
    begin, end, payload = PATCHES[variant]
    patch = golden_patch(tmp_path, variant)
    header, unpacked = parts(patch)
    assert (header["baseStateDigest"], header["stateDigest"]) == (f"xxh3_128:{STATE_BEFORE}", f"xxh3_128:{STATE_AFTER}")
    assert payload is None or unpacked.hex() == payload
    if zstandard.ZSTD_VERSION[:2] != (1, 5):
        pytest.skip("another generation of zstd packs the same payload into other bytes")
    assert hashlib.sha256(patch).hexdigest().startswith(begin)
    assert hashlib.sha256(patch).hexdigest().endswith(end)


@pytest.mark.parametrize("variant", PATCHES)
def test_the_published_vector_leads_to_its_state(tmp_path: Path, variant: str) -> None:
    golden_patch(tmp_path, variant)
    again = load(imported(tmp_path / "base.safetensors", tmp_path / "patch", tmp_path / "again.sgd", "pulse"))
    assert again.target.digest == digest(golden()[1])
    assert (again.base.seq, again.target.seq, again.manifest.label) == (0, 1, "PULSE step 1 after 0")


def test_the_digests_are_the_published_ones() -> None:
    before, _ = golden()
    digests = [xxh3_128(bits.matrix.reshape(-1).view(np.uint8)) for bits in before.values()]
    assert digests[0].hex() == "2f0c4c6cbbee19409010d09bac39a377"
    assert xxh3_128(np.frombuffer(b"".join(digests), np.uint8)).hex() == STATE_BEFORE


@pytest.mark.parametrize("variant", PATCHES)
def test_another_base_is_refused(tmp_path: Path, variant: str) -> None:
    before, other = bf16_state(), bf16_state(30)
    case = saved(tmp_path, before, bf16_next(before))
    foreign = exported(case, tmp_path / "patch", "pulse", variant)
    with pytest.raises(SyncError):
        imported(save_file(tmp_path / "o.safetensors", other), foreign, tmp_path / "again.sgd", "pulse")
    assert not (tmp_path / "again.sgd").exists()


@pytest.mark.parametrize("names_base", [True, False])
def test_a_base_with_one_other_bit_where_nothing_changed_is_refused(tmp_path: Path, names_base: bool) -> None:
    patch = golden_patch(tmp_path, "pulsept1-v1")
    before, _ = golden()
    before["w.a"].matrix[1, 1] ^= 1
    (tmp_path / "patch").write_bytes(patch if names_base else retold(patch, {}, without="baseStateDigest"))
    with pytest.raises(WrongBaseError if names_base else DigestError, match="another"):
        imported(save_file(tmp_path / "o.safetensors", before), tmp_path / "patch", tmp_path / "x.sgd", "pulse")


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"formatVersion": 4}, UnknownFormatError, "format 4"),
        ({"formatVersion": 2}, UnknownFormatError, "format 2 does not know"),
        ({"tensors": []}, DigestError, "add up"),
        ({"stateDigest": "xxh3_128:00"}, FormatError, "not a digest"),
        ({"step": -1}, FormatError, "no size"),
        ({"step": True}, FormatError, "step"),
    ],
    ids=["unknown", "retagged", "no tensors", "no digest", "negative", "no number"],
)
def test_a_header_that_is_not_as_described_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    patch = golden_patch(tmp_path, "pulsept1-v1")
    (tmp_path / "patch").write_bytes(retold(patch, changes))
    with pytest.raises(error, match=sentence):
        imported(tmp_path / "base.safetensors", tmp_path / "patch", tmp_path / "x.sgd", "pulse")


def test_a_patch_that_leaves_a_tensor_of_the_base_out_is_refused(tmp_path: Path) -> None:
    patch = golden_patch(tmp_path, "pulsept1-v1")
    before, _ = golden()
    before["w.c"] = before["w.b"]
    (tmp_path / "patch").write_bytes(patch)
    with pytest.raises(LayoutError, match=r"w\.c"):
        imported(save_file(tmp_path / "o.safetensors", before), tmp_path / "patch", tmp_path / "x.sgd", "pulse")


@pytest.mark.parametrize("positions", LISTS, ids=str)
def test_index_streams_keep_every_list(positions: list[int]) -> None:
    wanted, count = np.array(positions, np.int64), (1 << 33)
    assert decode_u16(memoryview(encode_u16(wanted)), wanted.size, count, "w").tolist() == positions
    assert decode_rice(memoryview(encode_rice(wanted)), wanted.size, count, "w").tolist() == positions


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=200), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_index_streams_keep_any_list(chosen: set[int], seed: int) -> None:
    wanted = np.array(sorted(chosen), np.int64)
    old = ((np.arange(5001, dtype=np.uint16) * 7919 + seed) % 5 + 118 << 7).astype(np.uint16)
    assert decode_u16(memoryview(encode_u16(wanted)), wanted.size, 5001, "w").tolist() == wanted.tolist()
    assert decode_rice(memoryview(encode_rice(wanted)), wanted.size, 5001, "w").tolist() == wanted.tolist()
    assert decode_classes(memoryview(encode_classes(wanted, old)), wanted.size, old, "w").tolist() == wanted.tolist()


def test_every_truncation_and_one_byte_more_is_refused() -> None:
    wanted = np.array([*range(0, 600, 7), 600 + (1 << 20)], np.int64)
    old = (np.arange((1 << 20) + 601, dtype=np.int64) % 3 + 118 << 7).astype(np.uint16)
    streams: list[tuple[bytes, Callable[[memoryview], object]]] = [
        (encode_u16(wanted), lambda data: decode_u16(data, wanted.size, old.size, "w")),
        (encode_rice(wanted), lambda data: decode_rice(data, wanted.size, old.size, "w")),
        (encode_classes(wanted, old), lambda data: decode_classes(data, wanted.size, old, "w")),
    ]
    for data, decode in streams:
        for damaged in (*(data[:cut] for cut in range(0, len(data), 3)), data[:-1], data + b"\0"):
            with pytest.raises(FormatError):
                decode(memoryview(damaged))


@pytest.mark.parametrize(
    "stream",
    [bytes([32, 1, 0, 0, 0, 0]), bytes([0, 1, 0, 0, 0, 0xFF]), bytes([0, 5, 0, 0, 0]) + b"\xff\xff\xff\xff\x7f"],
    ids=["parameter", "no end", "escape without a quotient"],
)
def test_codes_that_nobody_writes_are_refused(stream: bytes) -> None:
    with pytest.raises(FormatError):
        decode_rice(memoryview(stream), 1, 1000, "w")


@pytest.mark.parametrize(
    "stream",
    ["05000000 0000", "05000000 ffff 0500 0000", "05000000 ffff 0500", "05000000 5f00", "05000000"],
    ids=["twice", "needless escape", "cut escape", "outside", "fewer"],
)
def test_gaps_that_nobody_writes_are_refused(stream: str) -> None:
    with pytest.raises(FormatError):
        decode_u16(memoryview(bytes.fromhex(stream)), 2, 100, "w")


@pytest.mark.parametrize(
    ("stream", "changed"),
    [
        ("00 01000000 1e", 3),
        ("00 02000000 1fff", 3),
        ("01 01000000 7f 40", 1),
        ("03 01000000 7f e0", 1),
        ("00 01000000 1f", 2),
        ("00 01000000 1f 00000000", 3),
    ],
    ids=["zero in the padding", "a byte of padding", "padded remainder", "outside", "more codes", "escape too many"],
)
def test_codes_with_something_too_much_are_refused(stream: str, changed: int) -> None:
    assert decode_rice(memoryview(bytes.fromhex("00010000001f")), 3, 7, "w").tolist() == [0, 1, 2]
    with pytest.raises(FormatError):
        decode_rice(memoryview(bytes.fromhex(stream)), changed, 7, "w")


def test_an_escape_that_was_not_needed_is_refused() -> None:
    stream = bytes([0, 5, 0, 0, 0]) + b"\xff\xff\xff\xff\x7f"
    assert decode_rice(memoryview(stream + (40).to_bytes(4, "little")), 1, 1000, "w").tolist() == [40]
    with pytest.raises(FormatError):
        decode_rice(memoryview(stream + (31).to_bytes(4, "little")), 1, 1000, "w")


def test_values_of_all_pairs_of_special_patterns_survive() -> None:
    patterns = np.array(SPECIAL_BF16, np.uint16)
    old, new = np.repeat(patterns, patterns.size), np.tile(patterns, patterns.size)
    differ = old != new
    data = encode_values(old[differ], new[differ])
    assert np.array_equal(decode_values(memoryview(data), old[differ], "w"), new[differ])
    with pytest.raises(FormatError):
        decode_values(memoryview(b"\0" + data[1:]), old[differ], "w")
