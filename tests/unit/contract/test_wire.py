"""Bytes from elsewhere: whatever they are, the answer is a model or an error of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract.errors import (
    ContractError,
    DocumentTooLargeError,
    InvalidDocumentError,
    MalformedJsonError,
    UnsupportedFormatError,
)
from sync_runtime.contract.plan import MAX_PLAN_BYTES, Plan
from sync_runtime.contract.reports import MAX_REPORT_BYTES, MemberReport
from tests.support.examples import examples
from tests.unit.contract.wire_samples import member_report, plan

REPORT_TEXT = json.dumps(member_report())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="cut short"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b'"x"', id="text"),
        pytest.param(b"[" * 20_000, id="deeply nested"),
        pytest.param(b'{"a":' * 5_000 + b"1" + b"}" * 5_000, id="deeply nested objects"),
        pytest.param(b'{"formatVersion":' + b"9" * 5_000 + b"}", id="a number of 5000 digits"),
        pytest.param(b'{"formatVersion":1,"formatVersion":1}', id="a key twice"),
        pytest.param(b'{"formatVersion":1,"term":NaN}', id="NaN"),
        pytest.param(b'{"formatVersion":1,"term":1.0}', id="a fraction"),
        pytest.param(b'{"formatVersion":1}{}', id="two documents"),
    ],
)
def test_what_is_no_plain_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedJsonError):
        MemberReport.from_json(data)


def test_brackets_inside_text_are_no_nesting() -> None:
    report = member_report()
    report["trouble"]["message"] = 'a "quoted \\" [[[[[[[[[[[[[[[[[[[[[[[[ {{{{{{{{{{{{{{{{{{'
    assert MemberReport.from_json(json.dumps(report)).to_document() == report


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ['\\"', '"', '"\\', "[]", '"a"', '{"'])
def test_hostile_text_is_judged_in_one_pass(unit: str) -> None:
    """A search that goes back would take minutes on one of these."""
    with pytest.raises(ContractError):
        Plan.from_json(unit * (MAX_PLAN_BYTES // len(unit)))


@pytest.mark.parametrize("found", [None, 0, 2, "1", True, [], {}, 10**40])
def test_an_unknown_format_is_refused_before_anything_else_is_looked_at(found: object) -> None:
    with pytest.raises(UnsupportedFormatError, match="upgrade whichever of operator and runtime is older"):
        Plan.from_json(json.dumps({"formatVersion": found, "unknown": 1}))


def test_too_many_bytes_are_refused_unread() -> None:
    with pytest.raises(DocumentTooLargeError, match=str(MAX_PLAN_BYTES)):
        Plan.from_json(b"{" * (MAX_PLAN_BYTES + 1))
    with pytest.raises(DocumentTooLargeError, match=str(MAX_REPORT_BYTES)):
        MemberReport.from_json("ß" * (MAX_REPORT_BYTES // 2 + 1))


def test_a_document_that_its_readers_would_refuse_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "MAX_BYTES", 100)
    with pytest.raises(DocumentTooLargeError):
        Plan.parse(plan()).to_json()


def test_equal_documents_are_written_alike_whatever_the_order_of_their_keys() -> None:
    document = plan()
    turned = dict(reversed(document.items()))
    assert Plan.parse(turned).to_json() == Plan.parse(document).to_json()
    assert " " not in Plan.parse(document | {"links": [], "members": [], "endpoints": []}).to_json()


def test_every_fault_names_its_place() -> None:
    broken = plan() | {"term": "2", "region": "US", "extra": 1}
    with pytest.raises(InvalidDocumentError) as caught:
        Plan.from_json(json.dumps(broken))
    assert {problem.path for problem in caught.value.problems} == {"term", "region", "extra"}


def is_model_or_our_error(data: bytes | str) -> None:
    try:
        MemberReport.from_json(data)
    except ContractError:
        pass


@pytest.mark.timeout(20)
@settings(max_examples=examples(100), deadline=None)
@given(data=st.binary(max_size=200) | st.text(max_size=100))
def test_random_bytes_never_do_anything_else(data: bytes | str) -> None:
    is_model_or_our_error(data)


@pytest.mark.timeout(20)
@settings(max_examples=examples(100), deadline=None)
@given(
    position=st.integers(0, len(REPORT_TEXT)),
    cut=st.integers(0, 8),
    insert=st.sampled_from(["", "0", '"', "{", "}", ",", "null", "-", "1e9", "\\u0000", "\ud800", "\x00"]),
)
def test_a_damaged_report_never_does_anything_else(position: int, cut: int, insert: str) -> None:
    is_model_or_our_error(REPORT_TEXT[:position] + insert + REPORT_TEXT[position + cut :])


values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, -1, 2**60, "", "x", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "member", "a"]), inner),
    max_leaves=4,
)


@pytest.mark.timeout(20)
@settings(max_examples=examples(100), deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted(member_report())), values, min_size=1, max_size=3))
def test_a_report_with_anything_in_its_fields_never_does_anything_else(changes: dict[str, Any]) -> None:
    is_model_or_our_error(json.dumps({**member_report(), **changes, "formatVersion": 1}))
