"""The wheel holds the product and nothing else, and asks for nothing that an image need not have."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from configparser import ConfigParser
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Building takes a good half second; the first test that asks for the wheel pays for all.
pytestmark = pytest.mark.timeout(20)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built offline by the backend itself."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=15)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def read(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (entry for entry in wheel.namelist() if entry.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "sync_runtime",
        "syncgroup",
        "syncgroup_operator",
    }


def test_every_module_of_the_packages_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    sources = {
        path.relative_to(base).as_posix()
        for base, package in (
            (ROOT, "sync_runtime"),
            (ROOT, "syncgroup"),
            (ROOT / "operator", "syncgroup_operator"),
        )
        for path in (base / package).rglob("*.py")
    }
    assert {name for name in wheel.namelist() if name.endswith(".py")} == sources


def test_the_wheel_is_for_every_platform(wheel: zipfile.ZipFile) -> None:
    assert "Tag: py3-none-any" in read(wheel, "WHEEL").splitlines()


def test_both_commands_start_the_same_function_and_kubectl_finds_its_completion(wheel: zipfile.ZipFile) -> None:
    entry_points = ConfigParser()
    entry_points.read_string(read(wheel, "entry_points.txt"))
    assert dict(entry_points["console_scripts"]) == {
        "syncgroup": "syncgroup.cli:main",
        "kubectl-syncgroup": "syncgroup.cli:main",
        "kubectl_complete-syncgroup": "syncgroup.completion:main",
    }


def test_the_wheel_alone_depends_on_nothing(wheel: zipfile.ZipFile) -> None:
    metadata = HeaderParser().parsestr(read(wheel, "METADATA"))
    assert [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line] == []
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "operator",
        "sidecar",
        "library",
        "interop",
        "examples",
        "dev",
    }
    assert metadata["Requires-Python"] == ">=3.11"
