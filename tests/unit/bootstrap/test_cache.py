"""The cache: a thing appears whole or not at all, and two makers of one thing take turns."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.children import child, line_of
from tools import cache


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_root() == Path("/somewhere/syncgroup")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.cache_root() == Path("/home/someone/.cache/syncgroup")


def test_the_platform_is_asked_not_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert cache.platform_tag() == f"{sys.platform}-riscv64"


def test_a_file_takes_its_place_when_the_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    with cache.replacing(target) as staged:
        staged.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert _names(target.parent) == ["file"]


def test_a_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "stale").touch()
    with cache.replacing(target) as staged:
        staged.mkdir()
        (staged / "fresh").touch()
        assert _names(target) == ["stale"]
    assert _names(target) == ["fresh"]
    assert _names(tmp_path) == ["folder"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_failure_leaves_the_old_one_and_nothing_else(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "thing"
    old = target if kind == "file" else target / "inside"
    old.parent.mkdir(exist_ok=True)
    old.write_text("old")

    def fail() -> None:
        with cache.replacing(target) as staged:
            new = staged if kind == "file" else staged / "inside"
            new.parent.mkdir(exist_ok=True)
            new.write_text("half")
            raise ValueError("the maker failed")

    with pytest.raises(ValueError, match="the maker failed"):
        fail()
    assert old.read_text() == "old"
    assert _names(tmp_path) == ["thing"]


def test_a_block_that_made_nothing_is_an_error_and_keeps_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), cache.replacing(target):
        pass
    assert target.read_text() == "old"


def test_a_file_reaches_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda _handle: synced.append((tmp_path / "file").exists()))
    with cache.replacing(tmp_path / "file") as staged:
        staged.write_text("whole")
    assert synced == [False]


@pytest.mark.timeout(15)
def test_two_holders_of_a_lock_take_turns(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from tools.cache import exclusive\n"
        "with exclusive(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    lock = tmp_path / "new" / "lock"
    with child([sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE) as holder:
        assert line_of(holder) == "held\n"
        started = time.monotonic()
        release = subprocess.Popen(["sh", "-c", f"sleep 0.4; kill -9 {holder.pid}"])
        with cache.exclusive(lock):  # a killed holder holds nothing
            assert time.monotonic() - started >= 0.3
        release.wait()
