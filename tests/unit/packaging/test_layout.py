"""The layout keeps Python's own modules reachable and the commands startable."""

from __future__ import annotations

import importlib
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def test_the_operator_folder_is_not_a_package() -> None:
    assert (ROOT / "operator").is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists()


@pytest.mark.parametrize("options", [[], ["-P"], ["-I"], ["-S"]], ids=["plain", "safe path", "isolated", "no site"])
def test_operator_is_the_standard_library_s_when_started_in_the_repository(options: list[str]) -> None:
    program = "import collections, operator; print(operator.__file__)"
    command = [sys.executable, *options, "-c", program]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(sysconfig.get_path("stdlib"))


def test_no_folder_with_tests_would_hide_a_standard_module() -> None:
    folders = {path.parent.name for path in (ROOT / "tests").rglob("*.py")}
    assert folders & sys.stdlib_module_names == set()


@pytest.mark.parametrize("name", ["syncgroup", "kubectl-syncgroup"])
def test_a_console_script_names_a_function_that_exists(name: str, project: dict[str, Any]) -> None:
    module, _, function = project["scripts"][name].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_extras_are_those_of_the_design(project: dict[str, Any]) -> None:
    assert set(project["optional-dependencies"]) == {"operator", "sidecar", "library", "interop", "examples", "dev"}
    assert project["dependencies"] == []
    assert project["requires-python"] == ">=3.11"
