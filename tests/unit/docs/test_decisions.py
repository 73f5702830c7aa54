"""Decision records are numbered one after the other, and say their number."""

from __future__ import annotations

from tests.support.pages import REPOSITORY

RECORDS = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))


def test_every_number_is_given_once_and_none_is_left_out() -> None:
    assert [record.name[:4] for record in RECORDS] == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]


def test_a_record_begins_with_its_number() -> None:
    wrong = [one.name for one in RECORDS if not one.read_text(encoding="utf-8").startswith(f"# {one.name[:4]}: ")]
    assert wrong == []
