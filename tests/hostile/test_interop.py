"""Damaged deltas of other tools: truncations, flipped bits, mutations, bombs; our errors only, and nothing left."""

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest

from sync_runtime.errors import FormatError, LimitError, SyncError, TruncatedError
from sync_runtime.offline.interop.zstd import FrameReader, check_frame, decompress
from tests.hostile.interop_targets import SINGLE, ForeignTarget
from tests.hostile.mutations import bit_flips, random_mutations, truncations
from tests.support.interop import compile_interop_loops

zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed: most of these formats use it")
compile_interop_loops()

ONE_FILE = [(name, variant) for name, variants in SINGLE.items() for variant in variants]
IN_FOLDERS = [
    ("slime", "model.safetensors.index.json"),
    ("slime", "model-00000-of-00001.safetensors"),
    ("skyrl", "manifest.json"),
    ("skyrl", "delta-rank00000-file000000.safetensors"),
]
MUTATIONS = 2000


@pytest.mark.parametrize(("name", "variant"), ONE_FILE)
@pytest.mark.timeout(60)
def test_a_cut_off_file_is_refused(tmp_path: Path, name: str, variant: str) -> None:
    target = ForeignTarget(tmp_path, name, variant)
    assert target.is_taken(target.good)
    step = max(1, len(target.good) // 150)
    assert not any(target.is_taken(damaged) for damaged in itertools.islice(truncations(target.good), 0, None, step))
    assert not target.is_taken(target.good[:-1])
    assert not target.is_taken(target.good + b"\0")


@pytest.mark.parametrize(("name", "variant"), ONE_FILE)
@pytest.mark.timeout(60)
def test_a_mutated_file_is_refused_or_says_something_sound(tmp_path: Path, name: str, variant: str) -> None:
    target = ForeignTarget(tmp_path, name, variant)
    for damaged in random_mutations(target.good, MUTATIONS, 11):
        target.is_taken(damaged)


@pytest.mark.parametrize(("name", "variant"), [("pulse", "pulsept1-v3"), ("pulse", "grail-v3.1")])
@pytest.mark.timeout(60)
def test_flipped_bits_of_the_payload_are_survived(tmp_path: Path, name: str, variant: str) -> None:
    target = ForeignTarget(tmp_path, name, variant)
    payload = itertools.islice(bit_flips(target.good), 8 * (len(target.good) * 2 // 3), None, 5)
    for damaged in itertools.islice(payload, 300):
        target.is_taken(damaged)


@pytest.mark.parametrize(("variant", "file"), IN_FOLDERS)
@pytest.mark.timeout(60)
def test_files_of_a_folder_are_refused_where_damaged(tmp_path: Path, variant: str, file: str) -> None:
    target = ForeignTarget(tmp_path, "xor-zstd", variant, file)
    assert target.is_taken(target.good)
    step = max(1, len(target.good) // 100)
    assert not any(target.is_taken(damaged) for damaged in itertools.islice(truncations(target.good), 0, None, step))
    for damaged in random_mutations(target.good, MUTATIONS, 3):
        target.is_taken(damaged)


def test_a_bomb_is_refused_before_it_unpacks() -> None:
    bomb = memoryview(zstandard.ZstdCompressor(level=3).compress(bytes(64 << 20)))
    unsaid = zstandard.ZstdCompressor(level=3, write_content_size=False).compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        for packed in (bomb, memoryview(unsaid)):
            with pytest.raises(FormatError):
                decompress(packed, 1000, "a bomb")
            reader = FrameReader(packed, "a bomb")
            assert reader.take(10) == bytes(10)
            with pytest.raises(FormatError, match="more than"):
                reader.end()
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_with_a_huge_window_is_refused() -> None:
    wide = bytearray(zstandard.ZstdCompressor(level=3, write_content_size=False).compress(b"x" * 100))
    wide[5] = 31 << 3  # 2^41 bytes
    with pytest.raises(LimitError, match="window"):
        check_frame(memoryview(wide), "a frame")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", TruncatedError),
        (b"\x28\xb5\x2f", TruncatedError),
        (b"\x50\x2a\x4d\x18\x04\0\0\0abcd", FormatError),
        (b"\x28\xb5\x2f\xfd\x28\x00\x01\x00\x00", FormatError),
        (b"\x28\xb5\x2f\xfd\x21\x07\x00\x01\x00\x00", FormatError),
        (b"\x28\xb5\x2f\xfd\x20\x00\x07\x00\x00", FormatError),
        (b"\x28\xb5\x2f\xfd\x20\x00\xf9\xff\xff" + bytes(1 << 21), FormatError),
    ],
    ids=["empty", "magic cut", "skippable", "reserved bit", "dictionary", "block kind", "block size"],
)
def test_frames_that_are_none_are_refused(data: bytes, error: type[SyncError]) -> None:
    with pytest.raises(error):
        check_frame(memoryview(data), "a frame")


@pytest.mark.parametrize("size", [1 << 26, (1 << 32) - 1])
def test_a_header_that_promises_much_costs_nothing(tmp_path: Path, size: int) -> None:
    target = ForeignTarget(tmp_path, "pulse", "pulsept1-v1")
    end = 12 + int.from_bytes(target.good[8:12], "little")
    header = json.loads(target.good[12:end])
    header["tensors"][0] |= {"shape": [size], "numel": size, "changed": size, "valBytes": 2 * size}
    raw = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    tracemalloc.start()
    try:
        assert not target.is_taken(target.good[:8] + len(raw).to_bytes(4, "little") + raw + target.good[end:])
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    target = ForeignTarget(tmp_path, "trl-safetensors", "raw")
    size = int.from_bytes(target.good[:8], "little")
    header = target.good[8 : 8 + size].rstrip()
    doubled = header[:-1] + b"," + header[1:]
    assert not target.is_taken(len(doubled).to_bytes(8, "little") + doubled + target.good[8 + size :])
