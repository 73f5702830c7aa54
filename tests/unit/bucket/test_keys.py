"""Keys: one text each way, and nothing that is not one."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import ObjectKey, check_manifest, parse_file_stem, parse_key
from sync_runtime.errors import FormatError
from tests.unit.bucket.samples import LINEAGE, OTHER_LINEAGE, link, manifest_for

SEQS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{LINEAGE}/4-5.fast", "is_link"),
        (f"{LINEAGE}/4-9.fast", "is_span"),
        (f"{LINEAGE}/9-4.fast", "is_way_back"),
        (f"{LINEAGE}/{OTHER_LINEAGE}:9-9.fast", "is_way_back"),
        (f"{LINEAGE}/{OTHER_LINEAGE}:9-10.fast", "is_way_back"),
        (f"{LINEAGE}/anchor-0", "is_anchor"),
        (f"{LINEAGE}/anchor-5.17", "is_anchor"),
    ],
)
def test_a_key_has_one_text_and_one_kind(text: str, kind: str) -> None:
    key = parse_key(text)
    assert key.text == text
    assert parse_file_stem(key.file_stem) == key
    assert "/" not in key.file_stem
    assert [name for name in ("is_link", "is_span", "is_way_back", "is_anchor") if getattr(key, name)] == [kind]


@given(SEQS, SEQS, st.sampled_from([None, OTHER_LINEAGE]), st.sampled_from(["fast", "tight"]))
def test_every_delta_key_comes_back_from_its_text(base: int, target: int, origin: str | None, codec: str) -> None:
    if origin is None and base == target:
        target = (target + 1) % 2**63
    key = ObjectKey(LINEAGE, origin, base, target, codec)
    assert parse_key(key.text) == key == parse_file_stem(key.file_stem)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4-5.fast",
        f"{LINEAGE}/4-4.fast",
        f"{LINEAGE}/04-5.fast",
        f"{LINEAGE}/-1-5.fast",
        f"{LINEAGE}/4-5.auto",
        f"{LINEAGE}/4-5.fast\n",
        f"{LINEAGE}/4-5.fast.data",
        f"{LINEAGE}/{LINEAGE}:4-5.fast",
        f"{LINEAGE}/4-{2**63}.fast",
        f"{LINEAGE}/anchor-",
        f"{LINEAGE}/anchor-1.{2**32}",
        f"{LINEAGE.upper().replace('1', 'A')}/4-5.fast",
        f"../{LINEAGE}/4-5.fast",
        f"{LINEAGE}/\u0664-5.fast",
        None,
        7,
    ],
)
def test_other_texts_are_refused(text: object) -> None:
    with pytest.raises(FormatError):
        parse_key(text)


@given(st.text(string.hexdigits + "/:-._+anchorfst", max_size=200))
def test_no_text_makes_the_parser_fail_otherwise(text: str) -> None:
    for parse in (parse_key, parse_file_stem):
        try:
            assert parse(text) is not None
        except FormatError:
            continue


@pytest.mark.parametrize(
    "fields",
    [
        {"codec": "zip"},
        {"codec": "anchor"},
        {"base_seq": None},
        {"base_seq": True},
        {"target_seq": -1},
        {"lineage": "x"},
        {"base_lineage": "x"},
        {"part": 3},
    ],
)
def test_a_key_that_makes_no_sense_cannot_be_made(fields: dict[str, object]) -> None:
    sensible: dict[str, object] = {
        "lineage": LINEAGE, "base_lineage": None, "base_seq": 1, "target_seq": 2, "codec": "fast",
    }  # fmt: skip
    with pytest.raises(FormatError):
        ObjectKey(**{**sensible, **fields})  # type: ignore[arg-type]


def test_a_manifest_of_other_versions_does_not_fit_its_key() -> None:
    manifest = manifest_for(link(5), ())
    check_manifest(link(5), manifest)
    for other in (link(6), link(5, OTHER_LINEAGE), parse_key(f"{LINEAGE}/4-5.tight"), parse_key(f"{LINEAGE}/anchor-5")):
        with pytest.raises(FormatError):
            check_manifest(other, manifest)
