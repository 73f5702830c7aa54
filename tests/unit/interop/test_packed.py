"""XOR under zstd, as slime, miles, SkyRL and ModelExpress write it: read, written, and refused where it must be."""

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sync_runtime.errors import DigestError, FormatError, LayoutError, LimitError, SyncError, UnknownFormatError
from sync_runtime.offline import digest, load
from sync_runtime.offline.interop.checksums import BY_NAME
from sync_runtime.offline.interop.packed import overwritten
from tests.support.checkpoints import save_file
from tests.support.interop import exported, imported, read_state, saved
from tests.support.states import copied, tensor

zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed: these deltas are packed with it")

BEFORE = {
    "a": tensor("BF16", (40, 3), np.arange(120, dtype=np.uint16) + 0x3F00),
    "b": tensor("F32", (), np.array([1], np.uint32)),
}
AFTER = copied(BEFORE)
AFTER["a"].matrix[7, 1] ^= 0x8001
AFTER["b"].matrix[0, 0] = 0x7FC00001
RAW = {name: (BEFORE[name].matrix.tobytes(), AFTER[name].matrix.tobytes()) for name in BEFORE}


def xor(name: str) -> bytes:
    old, new = (np.frombuffer(raw, np.uint8) for raw in RAW[name])
    return bytes((old ^ new).tobytes())


def overwrite(name: str) -> bytes:
    old, new = (np.frombuffer(raw, np.uint8) for raw in RAW[name])
    at = np.flatnonzero(old != new).astype("<u4")
    return bytes(at.size.to_bytes(4, "little") + at.tobytes() + new[old != new].tobytes())


def shard(path: Path, stored: dict[str, bytes], metadata: dict[str, str]) -> None:
    """A safetensors file by hand."""
    header: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for name, data in stored.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"".join(stored.values()))


def slime(folder: Path, encoding: str = "xor", algorithm: str = "xxh3-128", **meta: object) -> Path:
    """A version folder as slime lays it out."""
    out = folder / "weight_v000001"
    out.mkdir()
    payload = {
        name: zstandard.ZstdCompressor(level=1).compress((xor if encoding == "xor" else overwrite)(name))
        for name in RAW
    }
    sums = {name: BY_NAME[algorithm](np.frombuffer(raw[1], np.uint8)) for name, raw in RAW.items()}
    shard(out / "model-00000-of-00001.safetensors", payload, sums)
    metadata = {
        "version": "000001", "base_version": "000000", "delta_encoding": encoding, "compression_format": "zstd",
        "checksum_format": algorithm,
    }  # fmt: skip
    index = {"metadata": metadata | meta, "weight_map": dict.fromkeys(payload, "model-00000-of-00001.safetensors")}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))
    return out


def take(folder: Path, foreign: Path) -> str:
    base = save_file(folder / "base.safetensors", BEFORE)
    return str(load(imported(base, foreign, folder / "x.sgd", "xor-zstd")).target.digest)


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("algorithm", ["xxh3-128", "blake3", "adler32"])
def test_what_slime_lays_out_is_read(tmp_path: Path, encoding: str, algorithm: str) -> None:
    assert take(tmp_path, slime(tmp_path, encoding, algorithm)) == str(digest(AFTER))


def test_what_modelexpress_wrote_leads_to_its_state(tmp_path: Path) -> None:
    golden = Path(__file__).with_name("golden") / "modelexpress"
    again = load(imported(golden / "base.safetensors", golden / "v1", tmp_path / "x.sgd", "xor-zstd"))
    assert again.target.digest == digest(read_state(golden / "new.safetensors"))
    assert again.manifest.label == "version 1 after base"


def edited(folder: Path, change: Any) -> Path:
    """A version folder whose index was altered."""
    out = slime(folder)
    path = out / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    return out


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (lambda index: index["metadata"].update(delta_encoding="arc2"), UnknownFormatError, "arc2"),
        (lambda index: index["metadata"].update(compression_format="lz4"), UnknownFormatError, "lz4"),
        (lambda index: index["metadata"].update(checksum_format="md5"), UnknownFormatError, "md5"),
        (lambda index: index["metadata"].update(checksum_format="adler32"), DigestError, "adler32"),
        (lambda index: index["metadata"].pop("delta_encoding"), FormatError, "dense-safetensors"),
        (lambda index: index["weight_map"].update(a="../base.safetensors"), FormatError, "beside"),
        (lambda index: index["weight_map"].update(a="/etc/passwd"), FormatError, "beside"),
        (lambda index: index["weight_map"].update(a=7), FormatError, "beside"),
        (lambda index: index["weight_map"].pop("a"), FormatError, "does not know"),
        (lambda index: index["weight_map"].update(c="model-00000-of-00001.safetensors"), FormatError, "has no tensor"),
        (lambda index: index.pop("weight_map"), FormatError, "weight_map"),
    ],
    ids=[
        "encoding",
        "packing",
        "checksum",
        "another checksum",
        "checkpoint",
        "up",
        "absolute",
        "number",
        "fewer",
        "more",
        "no map",
    ],
)
def test_an_index_that_is_not_as_described_is_refused(
    tmp_path: Path, change: Any, error: type[SyncError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        take(tmp_path, edited(tmp_path, change))
    assert not (tmp_path / "x.sgd").exists()


def test_a_change_without_a_checksum_is_refused(tmp_path: Path) -> None:
    out = slime(tmp_path)
    shard(out / "model-00000-of-00001.safetensors", {name: zstandard.compress(xor(name)) for name in RAW}, {"a": "0"})
    with pytest.raises(FormatError, match="no checksum for 'b'"):
        take(tmp_path, out)


def test_a_delta_applied_twice_is_refused(tmp_path: Path) -> None:
    base = save_file(tmp_path / "after.safetensors", AFTER)
    with pytest.raises(DigestError, match="base is another"):
        imported(base, slime(tmp_path), tmp_path / "x.sgd", "xor-zstd")


def test_a_tensor_of_another_size_is_refused(tmp_path: Path) -> None:
    other = {**BEFORE, "a": tensor("BF16", (3, 3), np.zeros(9, np.uint16))}
    with pytest.raises(LimitError, match="240 bytes where 18"):
        imported(save_file(tmp_path / "o.safetensors", other), slime(tmp_path), tmp_path / "x.sgd", "xor-zstd")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x01\0\0\0" + b"\x09\0\0\0" + b"x", "outside"),
        (b"\x02\0\0\0" + b"\x01\0\0\0" * 2 + b"xy", "twice"),
        (b"\x02\0\0\0" + b"\x02\0\0\0\x01\0\0\0" + b"xy", "ascend"),
        (b"\xff\xff\xff\xff" + b"\x01\0\0\0" + b"x", "announces"),
        (b"\x01\0\0", "no count"),
        (b"\0" * 100, "more than its tensor"),
    ],
    ids=["outside", "twice", "unsorted", "count", "short", "long"],
)
def test_positions_that_do_not_fit_the_tensor_are_refused(content: bytes, sentence: str) -> None:
    with pytest.raises(FormatError, match=sentence):
        overwritten(memoryview(zstandard.compress(content)), np.zeros(8, np.uint8), "the change")


def test_a_tensor_above_what_32_bits_address_is_refused_before_it_is_touched() -> None:
    huge = np.broadcast_to(np.zeros(1, np.uint8), ((1 << 32) + 1,))
    with pytest.raises(LayoutError, match="32-bit positions"):
        overwritten(memoryview(zstandard.compress(b"\0\0\0\0")), huge, "the change")


def test_what_we_write_is_what_slime_s_receiver_expects(tmp_path: Path) -> None:
    case = saved(tmp_path, BEFORE, AFTER)
    out = exported(case, tmp_path / "weight_v000005", "xor-zstd", "slime")
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {
        "version": "000005", "base_version": "000004", "delta_encoding": "xor", "compression_format": "zstd",
        "checksum_format": "xxh3-128",
    }  # fmt: skip
    for name, file in index["weight_map"].items():
        raw = (out / file).read_bytes()
        size = int.from_bytes(raw[:8], "little")
        begin, end = json.loads(raw[8 : 8 + size])[name]["data_offsets"]
        assert zstandard.decompress(raw[8 + size + begin : 8 + size + end]) == xor(name)


def test_modelexpress_gets_its_own_index_and_checksum(tmp_path: Path) -> None:
    case = saved(tmp_path, BEFORE, AFTER)
    out = exported(case, tmp_path / "v5", "xor-zstd", "modelexpress", base_version="base-a")
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert (index["metadata"]["version"], index["metadata"]["base_version"]) == (5, "base-a")
    raw = (out / "model-00000-of-00001.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["__metadata__"] == {name: f"{zlib.adler32(pair[1]):08x}" for name, pair in RAW.items()}


def skyrl(folder: Path, change: Any = lambda manifest: None) -> Path:
    """A delta folder of ours under an altered manifest."""
    out = exported(saved(folder, BEFORE, AFTER), folder / "delta-00000005", "xor-zstd", "skyrl")
    manifest = json.loads((out / "manifest.json").read_text())
    change(manifest)
    (out / "manifest.json").write_text(json.dumps(manifest))
    return out


def test_a_skyrl_folder_says_what_its_receiver_checks(tmp_path: Path) -> None:
    manifest = json.loads((skyrl(tmp_path) / "manifest.json").read_text())
    record = manifest["tensors"][0]
    assert (manifest["version"], manifest["base_version"]) == (5, 4)
    assert (record["dtype"], record["shape"], record["uncompressed_num_bytes"]) == ("bfloat16", [40, 3], 240)
    assert record["checksum"] == BY_NAME["xxh3-128"](np.frombuffer(RAW["a"][1], np.uint8))


def test_the_first_releases_of_skyrl_used_sha256(tmp_path: Path) -> None:
    def older(manifest: dict[str, Any]) -> None:
        for record in manifest["tensors"]:
            del record["checksum"], record["checksum_algorithm"]
            record["sha256"] = hashlib.sha256(RAW[record["name"]][1]).hexdigest()

    assert take(tmp_path, skyrl(tmp_path, older)) == str(digest(AFTER))


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (lambda m: m["tensors"][0].update(dtype="float16"), LayoutError, "float16"),
        (lambda m: m["tensors"][0].update(shape=[120]), LayoutError, "120"),
        (lambda m: m["tensors"][0].update(uncompressed_num_bytes=241), FormatError, "another size"),
        (lambda m: m["tensors"][0].update(compressed_num_bytes=1), FormatError, "another number"),
        (lambda m: m["tensors"][0].update(checksum="0" * 32), DigestError, "promises"),
        (lambda m: m["tensors"][0].update(checksum_algorithm="crc32"), UnknownFormatError, "crc32"),
        (lambda m: m["tensors"][0].update(payload_file="../x"), FormatError, "does not list"),
        (lambda m: m["tensors"].append(dict(m["tensors"][0])), FormatError, "twice"),
        (lambda m: m["tensors"].pop(), FormatError, "does not know"),
        (lambda m: m.update(payload_files=["../x"]), FormatError, "beside"),
        (lambda m: m.update(version=-1), FormatError, "no size"),
    ],
    ids=["dtype", "shape", "size", "packed", "checksum", "algorithm", "escape", "twice", "fewer", "files", "version"],
)
def test_a_manifest_that_is_not_as_described_is_refused(
    tmp_path: Path, change: Any, error: type[SyncError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        take(tmp_path, skyrl(tmp_path, change))


def test_a_folder_of_neither_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="either"):
        take(tmp_path, tmp_path)


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    case = saved(tmp_path, BEFORE, AFTER)
    (tmp_path / "out").mkdir()
    with pytest.raises(SyncError, match="not overwritten"):
        exported(case, tmp_path / "out", "xor-zstd", "slime")
    assert list((tmp_path / "out").iterdir()) == []
