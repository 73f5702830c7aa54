"""docs/reference.md says what the CustomResourceDefinitions say, field by field."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sync_runtime.contract.synccluster import SyncCluster
from sync_runtime.contract.syncgroup import SyncGroup
from tests.support.pages import REPOSITORY
from tools.errors import ToolError
from tools.reference import fields, main, tables

CRDS, PAGE = REPOSITORY / "crds", REPOSITORY / "docs" / "reference.md"


def definition(properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"properties": {"spec": {"properties": properties}, "status": {"properties": {}}}}
    versions = [{"schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": []}]
    return {"spec": {"names": {"kind": "Thing"}, "versions": versions}}


def test_the_page_in_the_tree_is_what_the_definitions_say() -> None:
    assert main(["--check", str(CRDS), str(PAGE)]) == 0


def test_a_page_that_says_something_else_is_found_and_mended(tmp_path: Path) -> None:
    page = Path(shutil.copy(PAGE, tmp_path / "reference.md"))
    page.write_text(page.read_text().replace("1 to 65535", "1 to 65536"))
    assert main(["--check", str(CRDS), str(page)]) == 1
    assert main([str(CRDS), str(page)]) == 0
    assert page.read_text() == PAGE.read_text()


@pytest.mark.parametrize("model", [SyncGroup, SyncCluster], ids=lambda model: model.__name__)
def test_every_field_of_the_contract_is_on_the_page(model: type[Any]) -> None:
    """From the models, not from the definitions that the page is made of."""
    part = PAGE.read_text().partition(f"## {model.__name__}\n")[2]
    for kind in ("spec", "status"):
        body = part.partition(f"### {kind}\n")[2].partition("<!-- end:")[0]
        shown = set(re.findall(r"^\| `([\w]+)` \|", body, re.MULTILINE))
        annotation = model.model_fields[kind].annotation
        inner = next(one for one in (annotation, *getattr(annotation, "__args__", ())) if hasattr(one, "model_fields"))
        assert shown == {field.alias for field in inner.model_fields.values()}


def test_types_defaults_and_bounds_are_shown_as_the_server_enforces_them() -> None:
    made = tables(
        [
            definition(
                {
                    "count": {"description": "How many.", "type": "integer", "default": 1, "minimum": 0, "maximum": 9},
                    "mode": {"description": "A | B.", "type": "string", "enum": ["A", "B"]},
                    "names": {"description": "Who.", "type": "array", "maxItems": 3, "items": {"type": "string"}},
                    "parts": {
                        "description": "Parts.",
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": {"description": "Its name.", "type": "string", "maxLength": 5}},
                            "x-kubernetes-validations": [{"message": "names differ"}, {"message": "names differ"}],
                        },
                    },
                }
            )
        ]
    )
    assert made["thing-spec"].splitlines()[2:] == [
        "| `count` | integer | `1` | 0 to 9 | How many. |",
        r"| `mode` | text |  | `A`, `B` | A \| B. |",
        "| `names` | list of texts |  | at most 3 entries | Who. |",
        "| `parts` | list of objects |  |  | Parts. |",
        "| `parts[].name` | text | required | at most 5 characters | Its name. |",
    ]
    assert made["thing-rules"] == "- names differ"


def test_a_field_that_nothing_is_said_of_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ToolError, match="says nothing of count"):
        tables([definition({"count": {"type": "integer"}})])
    page = tmp_path / "reference.md"
    page.write_text("nothing")
    assert main([str(CRDS), str(page)]) == 2
    assert "the page needs one" in capsys.readouterr().err


def test_fields_are_walked_depth_first() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"properties": {"b": {}, "c": {}}}, "d": {}}}
    assert [path for path, _, _ in fields(schema)] == ["a", "a.b", "a.c", "d"]
