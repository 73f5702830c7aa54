"""The frame of an object: each rule broken once, by hand."""

import pytest

from sync_runtime.codec.frame import END_RECORD, Header, pack_entry, pack_header, parse_header, parse_records
from sync_runtime.codec.limits import CODEC_FAST, CODEC_TIGHT, KIND_ANCHOR, KIND_DELTA, MAX_TABLES_BYTES
from sync_runtime.errors import FormatError, LimitError, SyncError, TruncatedError, UnknownFormatError

HEADER = Header(KIND_DELTA, CODEC_TIGHT, bytes(range(16)), 64)


def entry(block: int = 0, *, mode: int = 1, count: int = 1, body_bytes: int = 4) -> bytes:
    return pack_entry(block=block, mode=mode, parameter=0, count=count, body_bytes=body_bytes)


def test_a_header_is_read_back_as_it_was_written() -> None:
    assert parse_header(memoryview(pack_header(HEADER))) == HEADER


@pytest.mark.parametrize(
    ("header", "error"),
    [
        pytest.param(pack_header(HEADER)[:31], TruncatedError, id="short"),
        pytest.param(b"SGO2" + pack_header(HEADER)[4:], FormatError, id="magic"),
        pytest.param(pack_header(HEADER)[:4] + b"\2\0" + pack_header(HEADER)[6:], UnknownFormatError, id="version"),
        pytest.param(pack_header(HEADER._replace(kind=3)), UnknownFormatError, id="kind"),
        pytest.param(pack_header(HEADER._replace(codec=4)), UnknownFormatError, id="codec"),
        pytest.param(pack_header(HEADER._replace(kind=KIND_ANCHOR)), FormatError, id="an anchor with a codec"),
        pytest.param(pack_header(HEADER._replace(codec=CODEC_FAST)), FormatError, id="tables without need"),
        pytest.param(pack_header(HEADER._replace(tables_bytes=MAX_TABLES_BYTES + 1)), LimitError, id="tables"),
        pytest.param(pack_header(HEADER)[:28] + b"\1\0\0\0", FormatError, id="reserved"),
    ],
)
def test_a_wrong_header_is_refused(header: bytes, error: type[SyncError]) -> None:
    with pytest.raises(error):
        parse_header(memoryview(header))


def test_records_are_read_up_to_the_end() -> None:
    data = entry(3) + b"abcd" + entry(7, count=2, body_bytes=0) + END_RECORD
    found = list(parse_records(memoryview(data), CODEC_FAST))
    assert [(record.block, record.count, bytes(record.body)) for record in found] == [(3, 1, b"abcd"), (7, 2, b"")]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", TruncatedError, id="no end"),
        pytest.param(entry() + b"abcd", TruncatedError, id="no end after a block"),
        pytest.param(entry() + b"abc", TruncatedError, id="cut off"),
        pytest.param(entry(5) + b"abcd" + entry(5) + b"abcd" + END_RECORD, FormatError, id="twice"),
        pytest.param(entry(5) + b"abcd" + entry(4) + b"abcd" + END_RECORD, FormatError, id="backwards"),
        pytest.param(entry(mode=2) + b"abcd" + END_RECORD, UnknownFormatError, id="another codec's mode"),
        pytest.param(entry(mode=9) + b"abcd" + END_RECORD, UnknownFormatError, id="unknown mode"),
        pytest.param(entry(count=0) + b"abcd" + END_RECORD, FormatError, id="nothing changed"),
        pytest.param(entry(body_bytes=3) + b"abc" + END_RECORD, FormatError, id="not a multiple of four"),
        pytest.param(entry()[:6] + b"\1\0" + entry()[8:] + b"abcd" + END_RECORD, FormatError, id="reserved"),
        pytest.param(END_RECORD[:4] + b"\1" + END_RECORD[5:], FormatError, id="an end that is not zero"),
        pytest.param(END_RECORD + b"\0", FormatError, id="more after the end"),
    ],
)
def test_wrong_records_are_refused(data: bytes, error: type[SyncError]) -> None:
    with pytest.raises(error):
        list(parse_records(memoryview(data), CODEC_FAST))
