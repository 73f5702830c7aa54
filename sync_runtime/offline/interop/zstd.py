"""zstd frames from elsewhere: one whole frame, nothing behind it, never more bytes out than the caller expects.

The frame's structure is walked before the library sees it: a frame that is cut off, or followed by something, is named
as such, and nothing is allocated for what a frame merely claims. The package is asked for only where it is needed.
"""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any, NamedTuple

from sync_runtime.errors import FormatError, LimitError, SettingsError, TruncatedError

MAGIC = b"\x28\xb5\x2f\xfd"
LEVEL = 1
"""What all of these tools use: higher levels bring less than a hundredth."""
MAX_WINDOW_BYTES = 128 << 20
_LARGEST_WINDOW_BYTES = 1 << 31
"""What the library can be told."""
_BLOCK_BYTES = 128 << 10
_DICTIONARY_BYTES = (0, 1, 2, 4)
_RAW, _RUN, _COMPRESSED = 0, 1, 2


class Frame(NamedTuple):
    """What a frame's header says."""

    content_bytes: int | None
    window_bytes: int
    most_bytes: int = 0
    """What its blocks can unpack to at most."""


def check_frame(data: memoryview, what: str) -> Frame:
    """Walks the one frame that must fill `data`."""
    frame, at, tail_bytes = _header(data, what)
    last, most_bytes = False, 0
    while not last:
        head = int.from_bytes(_taken(data, at, 3, what), "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if kind not in (_RAW, _RUN, _COMPRESSED) or size > _BLOCK_BYTES:
            raise FormatError(f"{what} is no sound zstd frame: a block has an impossible header")
        at += 3 + (1 if kind == _RUN else size)
        most_bytes += _BLOCK_BYTES if kind == _COMPRESSED else size
    _taken(data, at, tail_bytes, what)
    if at > len(data):
        raise TruncatedError(f"{what} is cut off inside a zstd block")
    if at + tail_bytes != len(data):
        raise FormatError(f"{what} has bytes behind its zstd frame")
    return frame._replace(most_bytes=most_bytes)


def decompress(data: memoryview, size_bytes: int, what: str) -> bytes:
    """The content of one frame, which must have exactly this size."""
    frame = check_frame(data, what)
    if frame.content_bytes is not None and frame.content_bytes != size_bytes:
        raise LimitError(f"{what} unpacks to {frame.content_bytes} bytes where {size_bytes} are expected")
    if size_bytes > frame.most_bytes:
        raise LimitError(f"{what} cannot unpack to the {size_bytes} bytes that are expected")
    with _Translated(what):
        found: bytes = _decompressor(frame, size_bytes).decompress(
            data, max_output_size=size_bytes or 1, allow_extra_data=False
        )
    if len(found) != size_bytes:
        raise FormatError(f"{what} unpacks to {len(found)} bytes where {size_bytes} are expected")
    return found


class FrameReader:
    """The content of one frame in pieces, for formats whose sizes stand inside it."""

    def __init__(self, data: memoryview, what: str) -> None:
        self._what = what
        frame = check_frame(data, what)
        self._reader = _decompressor(frame, 0).stream_reader(data, read_across_frames=False)

    def take(self, size_bytes: int) -> bytes:
        """The next bytes; the caller has checked that the size is a possible one."""
        kept = io.BytesIO()
        with _Translated(self._what):
            while kept.tell() < size_bytes:
                part = self._reader.read(min(size_bytes - kept.tell(), 1 << 20))
                if not part:
                    raise TruncatedError(f"{self._what} unpacks to less than it announces")
                kept.write(part)
        return kept.getvalue()

    def end(self) -> None:
        """Nothing more may come."""
        with _Translated(self._what):
            if self._reader.read(1):
                raise FormatError(f"{self._what} unpacks to more than it announces")


def compress(data: Any) -> bytes:
    """One frame that names its content's size."""
    packed: bytes = _library().ZstdCompressor(level=LEVEL).compress(data)
    return packed


def compress_parts(parts: list[bytes]) -> bytes:
    """One frame over several parts, as a stream would write it: without the content's size."""
    stream = _library().ZstdCompressor(level=LEVEL).compressobj()
    return b"".join([*(stream.compress(part) for part in parts if part), stream.flush()])


def _header(data: memoryview, what: str) -> tuple[Frame, int, int]:
    """(frame, where its blocks begin, bytes behind them)."""
    if bytes(data[:4]) != MAGIC[: len(data)]:
        raise FormatError(f"{what} is no zstd frame")
    (described,) = _taken(data, 4, 1, what)
    single = bool(described & 0x20)
    if described & 0x08:
        raise FormatError(f"{what} is no sound zstd frame: a reserved bit is set")
    if described & 3 and any(_taken(data, 5 + (not single), _DICTIONARY_BYTES[described & 3], what)):
        raise FormatError(f"{what} was packed with a dictionary, which nobody has here")
    at = 5 + (not single) + _DICTIONARY_BYTES[described & 3]
    size_bytes = (int(single), 2, 4, 8)[described >> 6]
    content: int | None = None
    if size_bytes:
        content = int.from_bytes(_taken(data, at, size_bytes, what), "little") + (256 if size_bytes == 2 else 0)
    if single:
        window_bytes = content or 0
    else:
        (descriptor,) = _taken(data, 5, 1, what)
        base = 1 << (10 + (descriptor >> 3))
        window_bytes = base + base // 8 * (descriptor & 7)
        if window_bytes > MAX_WINDOW_BYTES:
            raise LimitError(f"{what} wants a zstd window of {window_bytes} bytes; the limit is {MAX_WINDOW_BYTES}")
    return Frame(content, window_bytes), at + size_bytes, 4 if described & 4 else 0


def _taken(data: memoryview, at: int, size_bytes: int, what: str) -> bytes:
    found = bytes(data[at : at + size_bytes])
    if len(found) < size_bytes:
        raise TruncatedError(f"{what} is cut off inside its zstd frame")
    return found


def _decompressor(frame: Frame, size_bytes: int) -> Any:
    """A window as large as the content is no more than the content."""
    limit_bytes = min(max(MAX_WINDOW_BYTES, size_bytes), _LARGEST_WINDOW_BYTES)
    if frame.window_bytes > limit_bytes:
        raise LimitError(f"a zstd frame wants a window of {frame.window_bytes} bytes; the limit is {limit_bytes}")
    return _library().ZstdDecompressor(max_window_size=limit_bytes)


class _Translated:
    """The library's errors become ours."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, _library().ZstdError):
            raise FormatError(f"{self._what} does not unpack: {error}") from error


def _library() -> ModuleType:
    try:
        import zstandard  # noqa: PLC0415  # only some formats need it: the others must work without
    except ImportError as error:
        raise SettingsError("this format is packed with zstd: install the extra `interop` of syncgroup") from error
    return zstandard
