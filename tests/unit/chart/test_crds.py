"""The custom resources in the chart are those of the tree, and stay when the release goes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from syncgroup_operator.crdgen.__main__ import main
from syncgroup_operator.crdgen.writing import outdated_files, rendered_files
from tests.support.helm import CHART, Helm, Objects

CRDS = CHART / "files" / "crds"
KEEP = "helm.sh/resource-policy"


def definitions(objects: Objects) -> Objects:
    return {name: one for name, one in objects.items() if one["kind"] == "CustomResourceDefinition"}


def test_the_charts_copy_is_what_the_contract_says() -> None:
    assert outdated_files(CRDS) == []


def test_a_copy_that_is_out_of_step_is_found(tmp_path: Path) -> None:
    arguments = ["--output", str(tmp_path / "crds"), "--copy", str(tmp_path / "copy")]
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    (tmp_path / "copy" / "syncgroups.yaml").write_text("", encoding="utf-8")
    assert main([*arguments, "--check"]) == 1


@pytest.mark.parametrize("name", rendered_files())
def test_there_is_one_place_for_labels_in_each_file(name: str) -> None:
    assert rendered_files()[name].count("\nmetadata:\n") == 1


def test_what_is_installed_is_the_file_with_labels_and_a_word_to_keep_it(helm: Helm) -> None:
    found = definitions(helm.render())
    assert len(found) == len(rendered_files())
    for text in rendered_files().values():
        wanted = yaml.safe_load(text)
        rendered = found[f"CustomResourceDefinition {wanted['metadata']['name']}"]
        assert rendered["metadata"].pop("annotations") == {KEEP: "keep"}
        assert rendered["metadata"].pop("labels")
        assert rendered == wanted


def test_no_integer_became_a_floating_point_number(helm: Helm) -> None:
    def floats(value: object) -> bool:
        if isinstance(value, dict):
            return any(map(floats, value.values()))
        return any(map(floats, value)) if isinstance(value, list) else isinstance(value, float)

    assert not any(floats(one) for one in definitions(helm.render()).values())


def test_they_may_be_left_out_or_not_kept(helm: Helm) -> None:
    assert definitions(helm.render({"crds": {"enabled": False}})) == {}
    for one in definitions(helm.render({"crds": {"keep": False}})).values():
        assert KEEP not in one["metadata"].get("annotations", {})


def test_nothing_lies_where_helm_would_never_upgrade_it() -> None:
    assert not (CHART / "crds").exists()
