"""The tables of the chart's README follow from values and schema."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.helm import CHART
from tools.chartdocs import Value, main, values_of
from tools.errors import ToolError


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    for name in ("README.md", "values.yaml", "values.schema.json"):
        shutil.copy(CHART / name, tmp_path / name)
    return tmp_path


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_readme_in_the_tree_is_what_the_values_say() -> None:
    assert main([str(CHART), "--check"]) == 0


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("values.yaml", "replicas: 2", "replicas: 3"),
        ("values.yaml", "# -- Copies of the operator", "# -- Replicas"),
        ("values.schema.json", "Passes that may be under way", "Passes"),
        ("README.md", "| `replicas` | `2` |", "| `replicas` | `5` |"),
    ],
)
def test_a_readme_that_says_something_else_is_found_and_mended(chart: Path, file: str, old: str, new: str) -> None:
    replaced(chart / file, old, new)
    assert main([str(chart), "--check"]) == 1
    assert main([str(chart)]) == 0
    assert main([str(chart), "--check"]) == 0


def test_values_are_listed_by_their_full_names_in_their_order() -> None:
    text = "# -- One.\na: 1\nb:\n  # -- Two.\n  c: {x: [y]}\n  # -- Three.\n  d: ~\n"
    assert values_of(text) == [
        Value("a", "1", "One."),
        Value("b.c", '{"x": ["y"]}', "Two."),
        Value("b.d", "null", "Three."),
    ]


def test_a_value_that_nothing_is_said_of_is_a_fault(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ToolError, match=r"says nothing of b\.c"):
        values_of("# -- One.\na: 1\nb:\n  c: 2\n")
    replaced(chart / "values.yaml", "# -- Labels of every object.\n", "")
    assert main([str(chart)]) == 2
    assert "says nothing of commonLabels" in capsys.readouterr().err


def test_a_readme_without_a_place_for_a_table_is_a_fault(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced(chart / "README.md", "<!-- end: settings -->", "")
    assert main([str(chart)]) == 2
    assert "<!-- end: settings -->" in capsys.readouterr().err
