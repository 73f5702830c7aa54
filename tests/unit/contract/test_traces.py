"""The names in traces: each with a meaning, each used, and the table in the docs is theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sync_runtime.contract import traces
from tools import tracedocs

ROOT = Path(__file__).parents[3]
CONSTANTS = {name: value for name, value in vars(traces).items() if name.isupper() and isinstance(value, str)}
ATTRIBUTES = {name for name in CONSTANTS if name.startswith("ATTR_")}
NAMES = set(CONSTANTS) - ATTRIBUTES - {"RUNTIME_SERVICE", "OPERATOR_SERVICE"}


def test_every_span_and_attribute_has_one_meaning() -> None:
    assert sorted(span.name for span in traces.SPANS) == sorted(CONSTANTS[name] for name in NAMES)
    assert sorted(one.name for one in traces.ATTRIBUTES) == sorted(CONSTANTS[name] for name in ATTRIBUTES)
    assert all(one.text.endswith(".") for one in (*traces.SPANS, *traces.ATTRIBUTES))
    assert set(traces.STAGES) <= {span.name for span in traces.SPANS}


def test_spans_name_only_attributes_that_exist() -> None:
    known = {one.name for one in traces.ATTRIBUTES}
    assert all(set(span.attributes) <= known for span in traces.SPANS)


def test_no_name_is_idle() -> None:
    sources = [path for folder in ("sync_runtime", "operator") for path in (ROOT / folder).rglob("*.py")]
    words: set[str] = set()
    for path in sources:
        if path.name != "traces.py":
            words |= set(re.findall(r"[A-Z][A-Z0-9_]+|\"[a-z]+\"", path.read_text()))
    idle = {name for name in ATTRIBUTES | NAMES if name not in words and f'"{CONSTANTS[name]}"' not in words}
    assert idle == set()


@pytest.mark.parametrize("table", [tracedocs.spans_table(), tracedocs.attributes_table()])
def test_the_page_holds_the_table(table: str) -> None:
    assert table in (ROOT / "docs" / "tracing.md").read_text()


def test_a_page_that_differs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "tracing.md"
    page.write_text((ROOT / "docs" / "tracing.md").read_text().replace("The root:", "A root:"))
    assert tracedocs.main([str(page), "--check"]) == 1
    assert "is not what the list of names says" in capsys.readouterr().err
    assert tracedocs.main([str(page)]) == 0
    assert tracedocs.main([str(page), "--check"]) == 0


def test_a_page_without_marks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "tracing.md"
    page.write_text("nothing")
    assert tracedocs.main([str(page)]) == 2
    assert "needs one" in capsys.readouterr().err
