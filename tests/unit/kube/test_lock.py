"""go.mod files: what is declared, and how a file that fell behind is found out."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tools.errors import BuildError
from tools.kube import catalog, lock
from tools.kube.catalog import Catalog, Family

KNOWN = catalog.load()


@pytest.fixture
def family(tiny: Catalog) -> Family:
    """A family with a correct go.mod, as `make tools-lock` leaves it."""
    made = dataclasses.replace(
        tiny.family("tiny"), local=False, module="example.org/tool", version="v1.37.2", staging=True
    )
    text = lock.declared(made, "1.26.0", ["k8s.io/api", "k8s.io/client-go"])
    (made.folder / "go.mod").write_text(text + "\nrequire (\n\tgolang.org/x/sys v0.1.0 // indirect\n)\n")
    (made.folder / "go.sum").write_text("")
    return made


def test_the_declared_file_names_module_tools_pin_and_replacements(family: Family) -> None:
    assert lock.declared(family, "1.26.0", ["k8s.io/api"]) == (
        "module syncgroup.dev/tools/tiny\n\ngo 1.26.0\n\n"
        "tool (\n\texample.org/tool/bye\n\texample.org/tool/hello\n)\n\n"
        "require example.org/tool v1.37.2\n\n"
        "replace (\n\tk8s.io/api => k8s.io/api v0.37.2\n)\n"
    )


def test_a_family_without_staging_replaces_nothing(family: Family) -> None:
    assert "replace" not in lock.declared(dataclasses.replace(family, staging=False), "1.26.0", [])


def test_a_fresh_file_has_no_problems(family: Family) -> None:
    assert list(lock.problems(family)) == []


def test_a_pin_inside_a_block_counts(family: Family) -> None:
    path = family.folder / "go.mod"
    path.write_text(
        path.read_text().replace("require example.org/tool v1.37.2", "require (\n\texample.org/tool v1.37.2\n)")
    )
    assert list(lock.problems(family)) == []


def test_another_version_is_a_problem(family: Family) -> None:
    bumped = dataclasses.replace(family, version="v1.37.3")
    found = list(lock.problems(bumped))
    assert "tiny: go.mod does not require example.org/tool v1.37.3; run `make tools-lock`" in found
    assert any("replaces with another release: k8s.io/api => k8s.io/api v0.37.2" in problem for problem in found)


def test_a_missing_tool_line_is_a_problem(family: Family) -> None:
    path = family.folder / "go.mod"
    path.write_text(path.read_text().replace("\texample.org/tool/bye\n", ""))
    assert list(lock.problems(family)) == [
        "tiny: go.mod has no tool line for example.org/tool/bye; run `make tools-lock`"
    ]


def test_a_wrong_replacement_is_a_problem(family: Family) -> None:
    path = family.folder / "go.mod"
    path.write_text(path.read_text().replace("k8s.io/client-go v0.37.2", "k8s.io/client-go v0.36.0"))
    assert list(lock.problems(family)) == [
        "tiny: go.mod replaces with another release: k8s.io/client-go => k8s.io/client-go v0.36.0"
    ]


@pytest.mark.parametrize("name", ["go.mod", "go.sum"])
def test_a_missing_file_is_a_problem(family: Family, name: str) -> None:
    (family.folder / name).unlink()
    assert list(lock.problems(family)) == ["tiny: go.mod or go.sum is missing; run `make tools-lock`"]


def test_the_committed_files_agree_with_the_catalog() -> None:
    assert lock.check(KNOWN) == []


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that adds an indirect requirement and go.sum, or fails where the file it returns exists."""
    fails = tmp_path / "fails"
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\n[ $1 = version ] && {{ echo go version go1.99.0; exit; }}\n"
        f"echo 'require x.org/y v1 // indirect' >> go.mod\n[ -e {fails} ] && {{ echo no network >&2; exit 1; }}\n"
        "echo sums > go.sum\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return fails


@pytest.mark.usefixtures("go")
def test_locking_writes_both_files_anew(family: Family, tiny: Catalog) -> None:
    bumped = dataclasses.replace(family, version="v1.37.3", staging=False)
    lock.relock(tiny, bumped)
    assert list(lock.problems(bumped)) == []
    assert (family.folder / "go.sum").read_text() == "sums\n"
    assert "x.org/y v1 // indirect" in (family.folder / "go.mod").read_text()


def test_locking_that_fails_leaves_the_old_pins_alone(family: Family, tiny: Catalog, go: Path) -> None:
    go.touch()
    before = {path.name: path.read_text() for path in family.folder.glob("go.*")}
    with pytest.raises(BuildError, match=r"`list -mod=mod -tags …` failed in .*: no network"):
        lock.relock(tiny, dataclasses.replace(family, version="v1.37.3", staging=False))
    assert {path.name: path.read_text() for path in family.folder.glob("go.*")} == before
    assert [path.name for path in family.folder.parent.iterdir()] == ["tiny"]


def test_local_families_are_not_locked(tiny: Catalog) -> None:
    (tiny.family("tiny").folder / "go.mod").unlink()
    assert lock.check(tiny) == []
