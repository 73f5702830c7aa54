"""Which files the checks see, with git and without."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.checks import files
from tools.errors import ToolError

Write = Callable[[str, str], Path]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository that no configuration of the user's touches."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for variable in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):  # set where a git hook runs the tests
        monkeypatch.delenv(variable, raising=False)
    for variable in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(variable, "/dev/null")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def names(root: Path) -> list[str]:
    return [path.as_posix() for path in files.repository_files(root)]


def test_tracked_and_new_files_are_seen_but_not_ignored_ones(checkout: Path, write: Write) -> None:
    write(".gitignore", "scratch/\n")
    write("scratch/notes.py", "")
    write("tracked.py", "")
    write("deep/new.py", "")
    subprocess.run(["git", "-C", str(checkout), "add", "tracked.py"], check=True)
    assert names(checkout) == [".gitignore", "deep/new.py", "tracked.py"]


def test_a_file_removed_from_the_folder_is_no_longer_seen(checkout: Path, write: Write) -> None:
    write("gone.py", "")
    subprocess.run(["git", "-C", str(checkout), "add", "gone.py"], check=True)
    (checkout / "gone.py").unlink()
    assert names(checkout) == []


def test_a_name_with_blanks_and_accents_survives(checkout: Path, write: Write) -> None:
    write("a b/é.py", "")
    assert names(checkout) == ["a b/é.py"]


def test_without_git_all_but_leftovers_is_seen(checkout: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".ci/run", "kept.py", ".venv/lib.py", "x/__pycache__/y.pyc", ".mypy_cache/z", "a.egg-info/PKG-INFO"):
        write(name, "")
    monkeypatch.setattr("tools.checks.files.shutil.which", lambda _: None)
    assert names(checkout) == [".ci/run", "kept.py"]


def test_an_unpacked_archive_is_checked_without_git(tmp_path: Path, write: Write) -> None:
    write("kept.py", "")
    assert names(tmp_path) == ["kept.py"]


def test_a_git_that_refuses_is_as_good_as_none(checkout: Path, write: Write) -> None:
    write("kept.py", "")
    (checkout / ".git" / "HEAD").unlink()
    assert names(checkout) == ["kept.py"]


def test_links_are_left_to_their_targets(tmp_path: Path, write: Write) -> None:
    write("kept.py", "")
    (tmp_path / "link.py").symlink_to(tmp_path / "kept.py")
    assert names(tmp_path) == ["kept.py"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"abc\0def"], ids=["not UTF-8", "NUL"])
def test_what_is_not_text_is_not_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(content)
    assert files.read_text(tmp_path / "image") is None


def test_a_file_that_is_not_python_ends_the_check_with_a_sentence() -> None:
    with pytest.raises(ToolError, match=r"odd\.py:1 is not valid Python"):
        files.parse_python(Path("odd.py"), "def (:\n")
