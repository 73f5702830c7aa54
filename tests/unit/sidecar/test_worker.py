"""What a sidecar hears of its GPU worker."""

from __future__ import annotations

import asyncio

from sync_runtime.sidecar import worker


def heard(*pieces: bytes) -> list[str]:
    """The lines that come out of a pipe that these pieces go into."""
    found: list[str] = []

    async def run() -> None:
        stream = asyncio.StreamReader()
        for piece in pieces:
            stream.feed_data(piece)
        stream.feed_eof()
        await worker._lines(stream, found.append)

    asyncio.run(run())
    return found


def test_lines_are_heard_whole_however_they_come() -> None:
    assert heard(b"one\ntw", b"o\r\n\nthree") == ["one", "two", "", "three"]
    assert heard(b"\xff\n") == ["\N{REPLACEMENT CHARACTER}"]


def test_a_line_without_an_end_is_cut() -> None:
    assert [len(line) for line in heard(b"x" * 100_000, b"\nshort\n")] == [worker.MAX_LINE_BYTES, len("short")]
