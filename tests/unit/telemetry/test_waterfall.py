"""A version's trace as a picture: both forms of JSON, the tree, clocks that are wrong, hostile documents."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.contract import traces
from sync_runtime.telemetry.waterfall import (
    Trace,
    TraceDocumentError,
    newest,
    read_traces,
    rows_of,
    search_path,
    to_svg,
    to_text,
)

T0 = 1_700_000_000_000_000_000
MS = 1_000_000
HOUR = 3_600_000 * MS
TRACE = "8f3c0000000000000000000000000001"

# name, id, parent, member, start in ms, length in ms, attributes, error
SPANS: list[tuple[str, str, str, str, int, int, dict[str, Any], str]] = [
    (traces.VERSION, "01", "", "trainer-0", 0, 900, {traces.ATTR_SEQ: 7, traces.ATTR_STEP: 70}, ""),
    (traces.EXTRACT, "02", "01", "trainer-0", 0, 100, {}, ""),
    (traces.SEND, "03", "01", "trainer-0", 200, 300, {traces.ATTR_PEER: "eu-0", traces.ATTR_BYTES: 1500}, ""),
    (traces.MEMBER, "04", "01", "eu-0", 201, 600, {}, ""),
    (traces.RECEIVE, "05", "04", "eu-0", 201, 299, {traces.ATTR_BYTES: 1500, traces.ATTR_STREAMS: 4}, ""),
    (traces.SCRUB, "06", "04", "eu-0", 700, 100, {}, "live weights are not version 7"),
]


def otlp(skew_ns: int = 0) -> dict[str, Any]:
    """As OTLP writes it; `skew_ns` is how far eu-0's clock is ahead."""
    found = []
    for name, span, parent, member, start_ms, length_ms, attributes, error in SPANS:
        begin = T0 + start_ms * MS + (skew_ns if member == "eu-0" else 0)
        found.append(
            {
                "resource": {
                    "attributes": [
                        {"key": traces.ATTR_MEMBER, "value": {"stringValue": member}},
                        {"key": traces.ATTR_REGION, "value": {"stringValue": "us"}},
                    ]
                },
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": TRACE,
                                "spanId": span,
                                "parentSpanId": parent,
                                "name": name,
                                "startTimeUnixNano": str(begin),
                                "endTimeUnixNano": str(begin + length_ms * MS),
                                "attributes": [
                                    {"key": key, "value": {"intValue": str(value)}}
                                    if isinstance(value, int)
                                    else {"key": key, "value": {"stringValue": value}}
                                    for key, value in attributes.items()
                                ],
                                "status": {"code": 2, "message": error} if error else {},
                            }
                        ]
                    }
                ],
            }
        )
    return {"result": {"resourceSpans": found}}


def jaeger() -> dict[str, Any]:
    """As Jaeger's query API writes it."""
    spans = []
    for name, span, parent, member, start_ms, length_ms, attributes, error in SPANS:
        tags = [{"key": key, "type": "int64", "value": value} for key, value in attributes.items()]
        if error:
            tags += [{"key": "error", "type": "bool", "value": True}]
            tags += [{"key": "otel.status_description", "type": "string", "value": error}]
        spans.append(
            {
                "traceID": TRACE,
                "spanID": span,
                "operationName": name,
                "references": [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": parent}] if parent else [],
                "startTime": (T0 + start_ms * MS) // 1000,
                "duration": length_ms * 1000,
                "tags": tags,
                "processID": member,
            }
        )
    processes = {
        member: {
            "serviceName": traces.RUNTIME_SERVICE,
            "tags": [
                {"key": traces.ATTR_MEMBER, "type": "string", "value": member},
                {"key": traces.ATTR_REGION, "type": "string", "value": "us"},
            ],
        }
        for member in ("trainer-0", "eu-0")
    }
    return {"data": [{"traceID": TRACE, "spans": spans, "processes": processes}]}


def read(document: object) -> Trace:
    found = newest(read_traces(document))
    assert found is not None
    return found


def test_both_forms_of_json_give_the_same_waterfall() -> None:
    lines = to_text(read(jaeger()))
    assert lines == to_text(read(otlp()))
    assert lines[0] == "version 7 (step 70): 900 ms, 2 members, 6 spans, 1.5 kB sent, 1 error"
    assert [line[:14].rstrip() for line in lines[2:]] == [
        "trainer-0 (us)",
        "├ extract",
        "├ send to eu-0",
        "└ eu-0 (us)",
        "  ├ receive",
        "  └ scrub",
    ]
    assert "1.5 kB, 4 streams" in lines[6]
    assert lines[7].endswith("failed: live weights are not version 7")


def test_bars_stand_where_their_spans_were() -> None:
    bars = {row.label: (row.start_ns // MS, row.duration_ns // MS) for row in rows_of(read(jaeger()))}
    assert bars["receive"] == (201, 299)
    line = next(line for line in to_text(read(jaeger()), width=160) if "receive" in line)
    bar = line[line.index("█") : line.rindex("█") + 1]
    assert 0.28 < len(bar) / to_text(read(jaeger()), width=160)[2].count("─") < 0.38


@pytest.mark.parametrize("skew_ns", [HOUR, -HOUR])
def test_a_member_whose_clock_is_an_hour_off_is_put_where_it_was_sent_to(skew_ns: int) -> None:
    rows = rows_of(read(otlp(skew_ns)))
    assert [row.label for row in rows] == [row.label for row in rows_of(read(otlp()))]
    part = next(row for row in rows if row.label.startswith("eu-0"))
    assert part.start_ns == 200 * MS
    assert "clock 3600 s " + ("ahead" if skew_ns > 0 else "behind") in part.detail
    assert max(row.end_ns for row in rows) == 900 * MS
    assert next(row for row in rows if row.label == "scrub").start_ns == part.start_ns + 499 * MS


def test_a_clock_that_is_in_step_is_left_alone() -> None:
    part = next(row for row in rows_of(read(otlp(50 * MS))) if row.label.startswith("eu-0"))
    assert part.start_ns == 251 * MS
    assert part.clock_off_ns == 0


def test_a_trace_whose_root_has_not_come_yet_is_shown_all_the_same() -> None:
    document = jaeger()
    document["data"][0]["spans"].pop(0)
    rows = rows_of(read(document))
    assert {row.label for row in rows if row.depth == 0} == {"extract", "send to eu-0", "eu-0 (us)"}
    assert len(rows) == len(SPANS) - 1


def test_the_svg_is_sound_and_tells_every_span() -> None:
    text = to_svg(read(jaeger()))
    root = ElementTree.fromstring(text)  # noqa: S314 our own text
    assert len(root.findall("{http://www.w3.org/2000/svg}g")) == len(SPANS)
    assert "<script" not in text
    assert to_svg(read(jaeger())) == text


@given(st.text(max_size=40))
def test_no_word_of_a_backend_breaks_the_picture(word: str) -> None:
    document = jaeger()
    for span in document["data"][0]["spans"]:
        span["operationName"] = word
    document["data"][0]["processes"]["eu-0"]["tags"][0]["value"] = word
    trace = read(document)
    ElementTree.fromstring(to_svg(trace))  # noqa: S314 our own text
    assert all(line.isprintable() for line in to_text(trace))


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"data": 3}, {"data": [{}]}, {"resourceSpans": [{}]}, {"data": [{"processes": {}, "spans": [{}]}]}],
)
def test_what_is_no_trace_is_refused_in_a_sentence(document: object) -> None:
    with pytest.raises(TraceDocumentError, match="this is no trace"):
        read_traces(document)


def test_an_empty_answer_holds_no_trace() -> None:
    assert newest(read_traces({"data": []})) is None
    assert newest(read_traces({"data": None})) is None


def test_a_circle_of_spans_is_drawn_once() -> None:
    document = jaeger()
    for span, parent in zip(document["data"][0]["spans"][:2], ("02", "01"), strict=True):
        span["references"] = [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": parent}]
    assert len(rows_of(read(document))) == len(SPANS)


def test_spans_in_a_chain_of_thousands_are_drawn() -> None:
    document = jaeger()
    template = document["data"][0]["spans"][1]
    chain = [
        {
            **template,
            "spanID": f"{number:x}",
            "references": [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": f"{number - 1:x}"}],
        }
        for number in range(100, 3100)
    ]
    document["data"][0]["spans"] += chain
    assert len(rows_of(read(document))) == len(SPANS) + 3000


def test_the_search_names_group_and_version() -> None:
    path = search_path(group_uid="u-1", seq=7)
    assert path.startswith("/api/traces?service=syncgroup-sidecar&operation=version&")
    assert "syncgroup.version.seq%22%3A+%227%22" in path
    assert "seq" not in search_path(group_uid="u-1")
