"""The contracts hold for a tree that is still growing, and a slip of the pen in them is caught."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.checks.layers import tree

Lint = Callable[..., tuple[frozenset[str], str]]
Write = Callable[[Mapping[str, str]], Path]

ROOT = Path(__file__).parents[3]
EMPTY_PACKAGES = dict.fromkeys(("sync_runtime", "syncgroup_operator", "syncgroup", "tools"), "")


def test_the_real_tree_keeps_every_contract(lint: Lint) -> None:
    broken, printed = lint(ROOT)
    assert broken == set(), printed


@pytest.mark.timeout(20)
def test_the_command_of_make_lint_passes_on_the_real_tree() -> None:
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--config",
        "importlinter.toml",
        "--no-cache",
        "--no-logo",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=15)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


def test_a_contract_without_modules_says_that_it_checks_nothing_yet(write_modules: Write, lint: Lint) -> None:
    broken, printed = lint(write_modules(EMPTY_PACKAGES))
    assert broken == set()
    listed = printed.partition("drawn, but not built yet:")[2]
    assert "sync_runtime.codec," in listed
    assert "sync_runtime.codec.frame" not in listed  # goes without saying
    idle = printed.partition("Warnings")[2]
    for contract in ("runtime layers", "stages meet only", "decisions are pure", "the codec's parse path"):
        assert contract in idle
    assert idle.count("checks nothing yet") >= 8


def test_a_module_is_born_under_its_contract(write_modules: Write, lint: Lint) -> None:
    root = write_modules({**EMPTY_PACKAGES, "syncgroup_operator.planning.plan": "import random"})
    assert lint(root)[0] == {"pure"}


@pytest.mark.parametrize("package", ["sync_runtime.links", "sync_runtime.membership", "syncgroup", "tools"])
def test_an_open_package_takes_modules_that_nobody_drew(
    package: str, stub_tree: Path, write_modules: Write, lint: Lint
) -> None:
    write_modules({f"{package}.newcomer": ""})
    assert lint(stub_tree)[0] == set()


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        pytest.param(
            '"sync_runtime.transport.schedule",',
            '"sync_runtime.transport.shedule",',
            "Did you mean sync_runtime.transport.schedule?",
            id="source of a reach contract",
        ),
        pytest.param(
            '"transport | links | membership | work"',
            '"transport | links | membership | werk"',
            "sync_runtime.werk is not drawn",
            id="layer",
        ),
        pytest.param(
            'containers = ["syncgroup_operator"]', 'containers = ["sync_operator"]', "sync_operator", id="container"
        ),
        pytest.param(
            'source_modules = ["syncgroup_operator.explain",',
            'source_modules = ["syncgroup_operator.explane",',
            "Did you mean syncgroup_operator.explain?",
            id="source of a forbidden contract",
        ),
        pytest.param(
            'forbidden_modules = ["sync_runtime.codec",',
            'forbidden_modules = ["sync_runtime.codek",',
            "Did you mean sync_runtime.codec?",
            id="forbidden module",
        ),
        pytest.param(
            'except_modules = ["sync_runtime.contract",',
            'except_modules = ["sync_runtime.contrakt",',
            "Did you mean sync_runtime.contract?",
            id="exception",
        ),
        pytest.param(
            '"sync_runtime.membership.api", "syncgroup"',
            '"sync_runtime.membership.apy", "syncgroup"',
            "Did you mean sync_runtime.membership.api?",
            id="allowed importer",
        ),
        pytest.param('protected_modules = ["kopf"]', 'protected_modules = ["kopff"]', "kopff is not in", id="package"),
        pytest.param('["torch", "triton",', '["troch", "triton",', "troch is not in", id="forbidden package"),
        pytest.param('"bisect", "collections"', '"bisekt", "collections"', "bisekt", id="standard library"),
        pytest.param("allow_indirect_imports", "allow_indirekt_imports", "Unrecognized option", id="option"),
        pytest.param('  "control",\n', "", "in no layer: sync_runtime.control", id="drawn without a layer"),
        pytest.param("  codec\n", "  codec\n  codec\n", "drawn twice", id="drawing"),
        pytest.param("tree = ", "forest = ", "Draw the tree of modules", id="no drawing"),
        pytest.param("\ntools\n", "\n", "tools is not drawn", id="root package missing from the drawing"),
    ],
)
def test_a_slip_of_the_pen_in_the_contracts_is_caught(
    right: str, wrong: str, message: str, stub_tree: Path, lint: Lint
) -> None:
    text = (ROOT / "importlinter.toml").read_text(encoding="utf-8")
    assert right in text
    config = stub_tree / "slip.toml"
    config.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    broken, printed = lint(stub_tree, config)
    assert broken == {"unusable"}
    assert message in printed


def test_a_contract_with_neither_list_is_refused(stub_tree: Path, lint: Lint) -> None:
    text = (ROOT / "importlinter.toml").read_text(encoding="utf-8")
    config = stub_tree / "slip.toml"
    config.write_text(text.replace('allowed_packages = ["numpy"]\n', ""), encoding="utf-8")
    broken, printed = lint(stub_tree, config)
    assert broken == {"unusable"}
    assert "Give either these or forbidden_packages" in printed


def test_every_folder_with_code_is_a_package_since_import_linter_sees_no_other(options: dict[str, Any]) -> None:
    for package in options["session_options"]["root_packages"]:
        root = ROOT / "operator" if tree.is_inside(package, "syncgroup_operator") else ROOT
        folders = {path.parent for path in (root / package).rglob("*.py")}
        assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
