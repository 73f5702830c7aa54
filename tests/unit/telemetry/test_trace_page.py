"""The picture of a trace in the docs is what the committed trace gives, as SVG and as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sync_runtime.telemetry.waterfall import newest, read_traces, to_svg, to_text
from sync_runtime.telemetry.waterfall.__main__ import main

DOCS = Path(__file__).parents[3] / "docs"
SAVED = DOCS / "pictures" / "trace.json"
COLUMNS = 110


def test_the_picture_and_the_text_on_the_page_are_made_from_the_saved_trace() -> None:
    trace = newest(read_traces(json.loads(SAVED.read_text())))
    assert trace is not None
    assert (DOCS / "pictures" / "trace.svg").read_text() == to_svg(trace), "run `make generate`"
    text = "\n".join(f"    {line}" for line in to_text(trace, width=COLUMNS))
    assert text in (DOCS / "tracing.md").read_text(), f"print it with --width {COLUMNS} and put it into the page"


def test_the_command_prints_a_waterfall_or_writes_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SAVED), "--width", str(COLUMNS), "--ascii"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("version 3 ")
    assert printed.isascii()
    assert main([str(SAVED), "--svg", str(tmp_path / "trace.svg")]) == 0
    assert (tmp_path / "trace.svg").read_text().startswith("<svg ")


@pytest.mark.parametrize("text", ["", "[]", '{"data": []}', "{"])
def test_the_command_refuses_what_is_no_trace_in_a_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert main([str(tmp_path / "absent.json")]) == 2
