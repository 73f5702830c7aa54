from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import Count, ListMap, Quantities
from sync_runtime.contract.rules import Invariant, Rule
from syncgroup_operator.crdgen.__main__ import main
from syncgroup_operator.crdgen.schema import SchemaError, structural_schema
from syncgroup_operator.crdgen.writing import outdated_files, rendered_files, write_files
from tests.unit.contract.samples import CRDS_DIR

# Writing the CRDs takes a third of a second on an idle core, and seconds under coverage on a busy one.
pytestmark = pytest.mark.timeout(20)

FILES = ["syncclusters.yaml", "syncgroups.yaml"]


def test_the_crds_in_the_tree_are_those_of_the_contract() -> None:
    assert outdated_files(CRDS_DIR) == []


def test_the_same_bytes_come_out_in_another_process_with_another_hash_seed() -> None:
    program = (
        "from syncgroup_operator.crdgen.writing import rendered_files; "
        "import sys; sys.stdout.write(''.join(rendered_files().values()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert run.stdout == "".join(rendered_files().values())


def test_written_files_are_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    written = write_files(tmp_path / "new" / "folder")
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == FILES
    assert sorted(path.name for path in written) == FILES
    assert outdated_files(tmp_path / "new" / "folder") == []


def test_check_names_the_file_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    assert main(["--output", str(tmp_path), "--check"]) == 0
    (tmp_path / "syncgroups.yaml").write_text("apiVersion: v1\n", encoding="utf-8")
    (tmp_path / "extra.yaml").write_text("", encoding="utf-8")
    (tmp_path / "syncclusters.yaml").unlink()
    assert main(["--output", str(tmp_path), "--check"]) == 1
    named = [line.split()[0] for line in capsys.readouterr().err.splitlines()]
    assert named == [str(tmp_path / name) for name in ("extra.yaml", "syncclusters.yaml", "syncgroups.yaml")]


def test_check_writes_nothing(tmp_path: Path) -> None:
    assert main(["--output", str(tmp_path), "--check"]) == 1
    assert list(tmp_path.iterdir()) == []


def test_every_crd_is_one_yaml_document() -> None:
    assert [len(list(yaml.safe_load_all(text))) for text in rendered_files().values()] == [1, 1]


class Inner(Model):
    """An inner object."""

    name: Annotated[str, Field(max_length=9)] = Field(description="A name.")
    count: Count = Field(7, description="A count.")


class Outer(Model):
    """An outer object.

    What follows the first paragraph is for programmers.
    """

    inner: Inner = Field(description="One.")
    maybe: Inner | None = Field(None, description="Perhaps one.")
    several: Annotated[list[Inner], Field(max_length=3), ListMap(("name",))] = Field(
        default_factory=list, description="Several."
    )
    sizes: Quantities = Field(default_factory=dict, description="Sizes.")

    RULES = (Rule(cel="self.inner.count > 0", message="count something", holds=lambda self: True, field="inner.count"),)


def test_a_model_becomes_a_structural_schema() -> None:
    schema = structural_schema(Outer)
    assert schema["description"] == "An outer object."
    assert schema["required"] == ["inner"]
    assert schema["x-kubernetes-validations"] == [
        {
            "rule": "self.inner.count > 0",
            "message": "count something",
            "reason": "FieldValueInvalid",
            "fieldPath": ".inner.count",
        }
    ]
    inner = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"description": "A name.", "type": "string", "maxLength": 9},
            "count": {
                "description": "A count.",
                "type": "integer",
                "format": "int64",
                "default": 7,
                "minimum": 0,
                "maximum": 2**53 - 1,
            },
        },
    }
    assert schema["properties"]["inner"] == {"description": "One.", **inner}
    assert schema["properties"]["maybe"] == {"description": "Perhaps one.", **inner}
    assert schema["properties"]["several"] == {
        "description": "Several.",
        "type": "array",
        "default": [],
        "maxItems": 3,
        "items": {"description": "An inner object.", **inner},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    assert schema["properties"]["sizes"]["additionalProperties"]["x-kubernetes-int-or-string"] is True


def test_a_default_object_is_spelled_out_because_the_api_server_judges_it_by_its_rules() -> None:
    class AllDefaults(Model):
        """Defaults only."""

        count: Count = Field(7, description="A count.")

    class Holder(Model):
        """Holds one."""

        inner: AllDefaults = Field(default_factory=AllDefaults, description="One.")

    assert structural_schema(Holder)["properties"]["inner"]["default"] == {"count": 7}


def annotated(annotation: Any, **field: Any) -> type[Model]:
    return type("Odd", (Model,), {"__doc__": "Odd.", "__annotations__": {"odd": annotation}, "odd": Field(**field)})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (annotated(int, description="Any."), "Odd.odd is an integer without bounds"),
        (annotated(Count), "Odd.odd has no description"),
        (annotated(str | Inner, description="Either."), "Odd.odd is a union"),
        (annotated(Annotated[int, Field(gt=0, le=3)], description="More."), "Odd.odd is an integer without bounds"),
        (
            annotated(Annotated[list[Inner], Field(json_schema_extra={"uniqueItems": True})], description="Unique."),
            "Odd.odd says uniqueItems, which a structural schema cannot",
        ),
    ],
)  # fmt: skip
def test_what_a_structural_schema_cannot_say_is_an_error(model: type[Model], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        structural_schema(model)


def test_a_rule_that_the_api_server_would_not_check_is_an_error() -> None:
    class OnlyHere(Model):
        """Only here."""

        RULES = (Invariant(message="hold", holds=lambda self: True),)

    with pytest.raises(SchemaError, match="OnlyHere has a rule without CEL: hold"):
        structural_schema(OnlyHere)
