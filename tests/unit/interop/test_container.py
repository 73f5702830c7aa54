"""safetensors files and zstd frames as such: what is sound is read, what is not is refused for its own reason."""

import io
import json

import numpy as np
import pytest

from sync_runtime.errors import FormatError, LimitError, SyncError, TruncatedError, UnknownFormatError
from sync_runtime.offline.interop import zstd
from sync_runtime.offline.interop.container import Part, by_alignment, parse_container, write_container
from sync_runtime.offline.interop.zstd import check_frame, compress, compress_parts, decompress

pytest.importorskip("zstandard", reason="zstandard is not installed: frames are made with it")


def file(header: object, body: bytes) -> memoryview:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return memoryview(len(raw).to_bytes(8, "little") + raw + body)


def entry(begin: int, end: int, **changes: object) -> dict[str, object]:
    return {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]} | changes


def test_what_is_written_is_read_and_stands_on_its_alignment() -> None:
    sink = io.BytesIO()
    parts = {"b": Part("U8", (3,), b"abc"), "a": Part("F64", (), bytes(8)), "c": Part("BF16", (2, 1), b"wxyz")}
    write_container(sink, by_alignment(parts), {"key": "value"})
    found = parse_container(memoryview(sink.getvalue()), "it")
    assert found.metadata == {"key": "value"}
    assert list(found.tensors) == ["a", "c", "b"]
    assert {name: bytes(stored.data) for name, stored in found.tensors.items()} == {
        name: part.data for name, part in parts.items()
    }
    assert found.tensors["c"].items().tolist() == np.frombuffer(b"wxyz", "<u2").tolist()


@pytest.mark.parametrize(
    ("data", "error", "sentence"),
    [
        (memoryview(b"\0\0\0"), TruncatedError, "too short"),
        (memoryview((1 << 40).to_bytes(8, "little")), LimitError, "limit"),
        (memoryview((9).to_bytes(8, "little") + b"{}"), TruncatedError, "inside its header"),
        (file(b"[]", b""), FormatError, "not a JSON object"),
        (file(b"{", b""), FormatError, "not JSON"),
        (file(b'{"a":' * 100_000, b""), FormatError, "not JSON"),
        (file({"__metadata__": {"a": 1}}, b""), FormatError, "strings"),
        (file({"a": entry(0, 2), "b": entry(1, 3)}, b"xyz"), FormatError, "overlap"),
        (file({"a": entry(0, 1), "b": entry(2, 3)}, b"xyz"), FormatError, "holes"),
        (file({"a": entry(1, 3)}, b"xyz"), FormatError, "holes"),
        (file({"a": entry(0, 3)}, b"xy"), TruncatedError, "before its tensors"),
        (file({"a": entry(0, 1)}, b"xy"), FormatError, "behind"),
        (file({"a": entry(0, 2, shape=[3])}, b"xy"), FormatError, "fit its shape"),
        (file({"a": entry(0, 2, shape=[-2])}, b"xy"), FormatError, "shape"),
        (file({"a": entry(0, 2, shape=[True, 2])}, b"xy"), FormatError, "shape"),
        (file({"a": entry(0, 0, shape=[0, 1 << 70])}, b""), FormatError, "shape"),
        (file({"a": entry(0, 2, dtype="F4")}, b"xy"), UnknownFormatError, "F4"),
        (file({"a": entry(0, 2, more=1)}, b"xy"), FormatError, "described"),
    ],
)
def test_a_file_that_is_none_is_refused(data: memoryview, error: type[SyncError], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        parse_container(data, "it")


@pytest.mark.parametrize("content", [b"", b"x", bytes(70_000), bytes(range(256)) * 300], ids=["0", "1", "zeros", "all"])
def test_frames_of_both_kinds_are_read(content: bytes) -> None:
    for packed in (compress(content), compress_parts([content[:10], content[10:]])):
        assert decompress(memoryview(packed), len(content), "it") == content


def test_frames_must_be_whole_alone_and_of_the_size_that_is_expected() -> None:
    packed = compress(b"abc" * 1000)
    with pytest.raises(FormatError, match="behind"):
        check_frame(memoryview(packed + b"x"), "it")
    with pytest.raises(FormatError, match="behind"):
        check_frame(memoryview(packed * 2), "it")
    for size in range(len(packed)):
        with pytest.raises(TruncatedError):
            check_frame(memoryview(packed[:size]), "it")
    for size in (0, 2999, 3001):
        with pytest.raises(FormatError, match="3000"):
            decompress(memoryview(packed), size, "it")
    unsaid = compress_parts([b"abc" * 1000])
    for size in (0, 2999, 3001):
        with pytest.raises(FormatError):
            decompress(memoryview(unsaid), size, "it")
    with pytest.raises(LimitError, match="cannot unpack"):
        decompress(memoryview(unsaid), 1 << 40, "it")


def test_a_content_above_what_the_library_can_be_told_is_no_trouble() -> None:
    many = b"".join([compress_parts([b"abc"])[:6], b"\x02\x00\x10\x00" * 40_000, b"\x03\x00\x10\x00"])
    assert check_frame(memoryview(many), "runs of 128 KiB").most_bytes == 40_001 << 17
    assert zstd._decompressor(zstd.Frame(None, 1024), 40_001 << 17) is not None
