import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime import errors
from sync_runtime.errors import LocalError, LocalProtocolError, RefusedError, SpoolFullError, SyncError
from sync_runtime.local import messages as m
from sync_runtime.local import work_messages as w
from sync_runtime.local.faults import to_error, to_message
from sync_runtime.local.frames import HEADER, pack_json
from sync_runtime.local.ranges import MAX_RANGES, from_ranges, to_ranges
from sync_runtime.local.schema import _SPECS, limit_of, pack, parse
from sync_runtime.local.work_schema import WORK_SPECS

D = "0123456789abcdef" * 2
REF = m.VersionRef(D, 3)
SAMPLES: tuple[m.Message, ...] = (
    m.Hello((1, 2), "publisher", 0, 2, 17, "library", "0.1"), m.Welcome(1, 1 << 20, "g", "trainer-0", 4),
    m.Error("PUBLISH", "SpoolFullError", "no room", True), m.Data(0, 1), m.Credit(9),
    m.End(m.Totals("fast", 1, 2, D, D + D), {"encode": 5}), m.End(), m.Cancel("superseded"),
    m.Open(10, False, (D,), True), m.Opened(None, None, None, None, False), m.Opened(D, 1, D, -4, True),
    m.Publish(7, "warm-up", "fast"), m.Published(D, 1, D, 10, 99, {"spool": 3}), m.Close(1500), m.Closed(True),
    m.Stage(D, 4, D, None, REF, "list", 80), m.Stage(D, 4, D, 5, None, "state", 80), m.Staged(D, 4, {}),
    m.Activate(D, 4), m.Go(D, 4, 2), m.Activated(D, 4, 1200), m.Unstage(None), m.Unstage(REF),
    m.Scrub(D, 4, None, (), True), m.Scrubbed(False, ((0, 3), (5, 6))), m.Blocks(((1, 2),)),
    m.Anchor(D, 4, ((1, 2),)), m.Note(None, {}), m.Note(120, {"x": 1}), m.Head(D, 9, D, 3), m.Known(D, 2, D, None),
    m.Part(((0, 2),), ((2, 3),), D * 3), m.Share(D), m.Recheck(),
    m.Recode("tight"), m.Histograms(), m.Tables("00ff00ff" * 2),
)  # fmt: skip


VERSION = w.VersionName(D, 3, D, -1)
WORK_SAMPLES: tuple[m.Message, ...] = (
    w.Submit("fixed", (w.GroupEntry("a", 8, 2), w.GroupEntry("b", 1, 0)), b"\x00\xff"), w.Submitted(2, 7),
    w.Next("throughput", None, 1000), w.Next("fixed", 4, 0), w.Result(None, "", 0, "", None, 0, None, 3, b""),
    w.Result(4, "a", 8, "eu-0", VERSION, 99, None, 3, b"answer"), w.Result(5, "a", 8, "", None, 0, "Expired", 3, b""),
    w.State(None), w.State(3), w.Stated(b'{"format":1}'), w.Load(b""), w.Loaded(0), w.Take(VERSION, 50),
    w.Take(None, 0), w.Task(None, "", 0, None, b""), w.Task("1-2-3", "a", 8, VERSION, b"prompt"),
    w.Complete("1-2-3", VERSION, 12, b"answer"), w.Completed(False, "NotLive", "it ended"),
    w.Release("1-2-3", "too hard", True), w.Released(),
)  # fmt: skip


def body_of(message: m.Message) -> tuple[int, bytes]:
    frame = pack(message)
    return frame[0], frame[HEADER.size :]


@pytest.mark.parametrize("message", SAMPLES + WORK_SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_way(message: m.Message) -> None:
    assert parse(*body_of(message)) == message


def test_every_message_of_the_protocol_has_a_sample_and_fits_its_limit() -> None:
    assert {type(message) for message in SAMPLES} == {spec.cls for spec in _SPECS}
    assert {type(message) for message in WORK_SAMPLES} == {spec.cls for spec in WORK_SPECS}
    assert all(len(body_of(message)[1]) <= limit_of(body_of(message)[0]) for message in SAMPLES + WORK_SAMPLES)


def test_a_message_above_its_limit_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="send less"):
        pack(w.Complete("1-2-3", None, 1, bytes((64 << 20) + (1 << 20))))


@pytest.mark.parametrize(
    "body", [b"", b"\x01\x00", b"\xff\xff\xff\xff{}", b"\x02\x00\x00\x00[]", b"\x02\x00\x00\x00{}"]
)
def test_a_payload_without_its_head_is_refused(body: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        parse(body_of(w.Complete("1-2-3", None, 1, b""))[0], body)


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_field_too_many_or_too_few_is_refused(message: m.Message) -> None:
    code, _ = body_of(message)
    content = asdict(message)
    with pytest.raises(LocalProtocolError, match="other fields"):
        parse(code, pack_json({**content, "more": 1}))
    if content:
        content.popitem()
        with pytest.raises(LocalProtocolError, match="other fields"):
            parse(code, pack_json(content))


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        (m.Credit(1), "size", 0), (m.Credit(1), "size", True), (m.Credit(1), "size", "1"), (m.Credit(1), "size", -1),
        (m.Credit(1), "size", 2**63), (m.Data(0, 1), "at", None), (m.Go(D, 1, 1), "lineage", D[:-1]),
        (m.Go(D, 1, 1), "lineage", D.upper()), (m.Go(D, 1, 1), "lineage", D + "\n"),
        (m.Publish(None, "", "fast"), "codec", "best"), (m.Publish(None, "", "fast"), "label", "x" * 257),
        (m.Closed(True), "drained", 1), (m.Blocks(()), "blocks", [[1, 1]]), (m.Blocks(()), "blocks", [[1, 2], [2, 3]]),
        (m.Blocks(()), "blocks", [[5, 6], [1, 2]]), (m.Blocks(()), "blocks", [[1, 2, 3]]),
        (m.Blocks(()), "blocks", [1]), (m.Unstage(None), "version", {"lineage": D}),
        (m.Note(None, {}), "timings_us", {"a": -1}), (m.Note(None, {}), "timings_us", {str(n): 1 for n in range(65)}),
        (m.End(), "totals", {"codec": "fast"}), (m.Error("X", "E", "", False), "request", "publish"),
        (m.Hello((1,), "publisher", 0, 1, 1, "sidecar", ""), "kind", "both"),
        (m.Hello((1,), "publisher", 0, 1, 1, "sidecar", ""), "protocols", [1] * 17),
    ],
)  # fmt: skip
def test_a_value_outside_its_rule_is_refused(message: m.Message, field: str, value: object) -> None:
    with pytest.raises(LocalProtocolError):
        parse(body_of(message)[0], json.dumps({**asdict(message), field: value}).encode())


def test_a_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="type 47"):
        parse(47, b"{}")


@given(st.sampled_from(SAMPLES + WORK_SAMPLES), st.data())
def test_damaged_bodies_raise_nothing_but_our_error(message: m.Message, data: st.DataObject) -> None:
    code, body = body_of(message)
    spoiled = bytearray(body)
    spoiled[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse(code, bytes(spoiled))
    except LocalProtocolError:
        return


def plain_errors() -> list[type[SyncError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SyncError)]
    return [kind for kind in found if not issubclass(kind, RefusedError)]


@pytest.mark.parametrize("kind", plain_errors())
def test_an_error_is_raised_again_as_itself_at_the_other_end(kind: type[SyncError]) -> None:
    found = to_error(to_message("PUBLISH", kind("no room on the disk")))
    assert type(found) is kind
    assert str(found) == "no room on the disk"
    assert to_message("PUBLISH", SpoolFullError("x")).retry


@pytest.mark.parametrize("kind", ["RefusedError", "SystemExit", "ClassVar", "annotations", "Nothing"])
def test_a_name_that_is_no_plain_error_of_ours_becomes_a_local_error(kind: str) -> None:
    found = to_error(m.Error("OPEN", kind, "why", False))
    assert type(found) is LocalError
    assert "why" in str(found)


@given(st.sets(st.integers(0, 300)))
def test_ranges_hold_exactly_the_numbers(numbers: set[int]) -> None:
    ranges = to_ranges(sorted(numbers))
    assert from_ranges(ranges, 301) == sorted(numbers)
    assert parse(*body_of(m.Blocks(ranges))) == m.Blocks(ranges)


def test_too_many_ranges_become_wider_ones() -> None:
    ranges = to_ranges(list(range(0, 4 * MAX_RANGES + 6, 2)))
    assert len(ranges) <= MAX_RANGES
    assert set(range(0, 4 * MAX_RANGES + 6, 2)) <= set(from_ranges(ranges, 1 << 30))
    assert parse(*body_of(m.Blocks(ranges))) == m.Blocks(ranges)


def test_a_block_beyond_the_layout_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="block 9"):
        from_ranges(((0, 1), (8, 10)), 9)
