"""The bootstrap: when it works again, what it says when it cannot."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tools import bootstrap
from tools.errors import BuildError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder of its own, with the three files that matter."""
    (tmp_path / "requirements").mkdir()
    for name in ("requirements/dev.txt", "requirements/bootstrap-uv.txt", "pyproject.toml"):
        (tmp_path / name).write_text("uv==0.1 \\\n")
    for name, value in {
        "ROOT": tmp_path,
        "VENV": tmp_path / ".venv",
        "STAMP": tmp_path / ".venv" / ".complete",
        "PINS": tmp_path / "requirements" / "dev.txt",
        "UV_PIN": tmp_path / "requirements" / "bootstrap-uv.txt",
    }.items():
        monkeypatch.setattr(bootstrap, name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def uv(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uv that writes down what it was asked for, and fails where $UV_FAILS says so.

    As the real one, it makes no environment over a folder that holds something else.
    """
    program = project / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\necho "$1 $2" >> "$UV_CALLS"\n'
        '[ "$1" = venv ] && [ -e .venv ] && [ ! -e .venv/pyvenv.cfg ] && { echo "not an environment" >&2; exit 2; }\n'
        '[ "$1" = venv ] && { mkdir -p .venv/bin; touch .venv/bin/python; }\n'
        'case "$1 $2" in "$UV_FAILS") printf "$UV_WORDS" >&2; exit 1;; esac\nexit 0\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("UV_CALLS", str(project / "calls"))
    monkeypatch.setenv("UV_FAILS", "never")
    return project / "calls"


def test_the_fingerprint_follows_the_pins_and_the_project_file(project: Path) -> None:
    seen = [bootstrap.fingerprint()]
    (project / "requirements" / "dev.txt").write_text("other")
    seen.append(bootstrap.fingerprint())
    (project / "pyproject.toml").write_text("other")
    seen.append(bootstrap.fingerprint())
    assert len(set(seen)) == 3


def test_the_fingerprint_follows_the_interpreter(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project.exists()
    before = bootstrap.fingerprint()
    monkeypatch.setattr(sys, "version", "4.0.0")
    assert bootstrap.fingerprint() != before


def test_it_works_once_and_then_has_nothing_to_do(project: Path, uv: Path) -> None:
    assert bootstrap.main() == 0
    assert uv.read_text().splitlines() == ["venv --quiet", "pip sync", "pip install"]
    assert bootstrap.main() == 0
    assert len(uv.read_text().splitlines()) == 3
    (project / "requirements" / "dev.txt").write_text("changed")
    assert bootstrap.main() == 0
    assert uv.read_text().splitlines()[3:] == ["pip sync", "pip install"]


@pytest.mark.parametrize("fails", ["venv --quiet", "pip sync", "pip install"])
def test_an_environment_that_was_not_finished_is_not_believed(
    uv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: str
) -> None:
    monkeypatch.setenv("UV_FAILS", fails)
    monkeypatch.setenv("UV_WORDS", "first line\\nsecond line\\n")
    assert bootstrap.main() == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("  ")]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert "first line / second line" in errors[0]
    assert not bootstrap.STAMP.exists()
    monkeypatch.setenv("UV_FAILS", "never")
    assert bootstrap.main() == 0
    assert "pip sync" in uv.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("x: No space left on device", "the disk is full; free about 2 GB"),
        ("python: No module named pip", "this Python has no pip; install python3-pip, or uv by hand"),
        ("error: dns error: failed to lookup", "PyPI cannot be reached; connect this machine"),
        ("ERROR: Could not find a version that satisfies", "PyPI cannot be reached; connect this machine"),
    ],
)
@pytest.mark.usefixtures("uv")
def test_known_failures_say_what_to_do(monkeypatch: pytest.MonkeyPatch, words: str, sentence: str) -> None:
    monkeypatch.setenv("UV_FAILS", "pip sync")
    monkeypatch.setenv("UV_WORDS", words)
    with pytest.raises(BuildError, match=sentence):
        bootstrap._run([bootstrap.uv(), "pip", "sync"], "packages are missing")


def test_a_folder_with_nothing_but_bytecode_is_no_environment(project: Path, uv: Path) -> None:
    """On a new machine pip, which brings uv, writes its bytecode where the Makefile says: into .venv."""
    (project / ".venv" / "pycache" / "pip").mkdir(parents=True)
    assert bootstrap.main() == 0
    assert uv.read_text().splitlines()[0] == "venv --quiet"
    assert not (project / ".venv" / "pycache").exists()


def test_a_link_to_an_environment_that_is_gone_is_replaced(project: Path, uv: Path) -> None:
    (project / "elsewhere").mkdir()
    (project / ".venv").symlink_to(project / "elsewhere")
    assert bootstrap.main() == 0
    assert uv.exists()
    assert not (project / ".venv").is_symlink()
    assert (project / "elsewhere").exists()


def test_uv_is_installed_with_pip_where_it_is_missing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    asked: list[list[str]] = []

    def install(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        target = Path(command[command.index("--target") + 1]) / "bin"
        target.mkdir(parents=True)
        (target / "uv").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", install)
    program = bootstrap.uv()
    assert Path(program).is_relative_to(project / "cache")
    assert Path(program).exists()
    assert "--require-hashes" in asked[0]
    assert bootstrap.uv() == program
    assert len(asked) == 1


def test_an_old_python_is_told_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bootstrap, "MIN_PYTHON", (99, 0))
    assert bootstrap.main() == 2
    assert "Python 3.11 or newer is needed" in capsys.readouterr().err


@pytest.mark.usefixtures("uv")
def test_a_place_that_cannot_be_written_is_one_sentence(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "file").touch()
    monkeypatch.setattr(bootstrap, "STAMP", project / "file" / "stamp")
    assert bootstrap.main() == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("  ")]
    assert len(errors) == 1
    assert errors[0].startswith("error: A file stands where a folder should be")
