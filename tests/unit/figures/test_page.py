"""docs/metrics.md holds the lists as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sync_runtime.telemetry.names import METRICS
from tools.metricdocs import main

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def test_the_page_in_the_tree_is_what_the_lists_say() -> None:
    assert main([str(PAGE), "--check"]) == 0


def test_a_page_that_says_something_else_is_found_and_mended(tmp_path: Path) -> None:
    page = tmp_path / "metrics.md"
    shutil.copy(PAGE, page)
    page.write_text(page.read_text().replace("| gauge | bytes |", "| gauge | octets |"))
    assert main([str(page), "--check"]) == 1
    assert main([str(page)]) == 0
    assert page.read_text() == PAGE.read_text()


def test_a_page_without_a_place_for_a_table_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "metrics.md"
    page.write_text(PAGE.read_text().replace("<!-- end: runtime -->", ""))
    assert main([str(page)]) == 2
    assert "<!-- end: runtime -->" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere.md")]) == 2


def test_what_is_pushed_is_listed_as_it_is_declared() -> None:
    """By hand on the page: tools know the contract alone, and these names live with the telemetry."""
    listed = PAGE.read_text().partition("## Pushed by OTLP")[2]
    rows = [row for row in listed.splitlines() if row.startswith("| `")]
    assert rows == [f"| `{one.name}` | {one.kind} | `{one.unit}` | {one.description} |" for one in METRICS]
