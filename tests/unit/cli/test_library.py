from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from syncgroup import cli
from syncgroup.commands.library import hash_of

pytestmark = pytest.mark.timeout(20)


def test_the_copy_is_whole_and_can_be_imported_by_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "library" / "0123456789abcdef"
    assert cli.main(["library", "--output", str(folder)]) == 0
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert list(folder.rglob("__pycache__")) == []
    line = 'import os, sys; sys.path.append(os.environ["SYNCGROUP_LIBRARY"])'
    program = f"{line}\nimport sync_runtime.contract.names as names\nsys.stdout.write(names.__file__)"
    # Isolated and without site packages: nothing else could provide it.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], env={**os.environ, "SYNCGROUP_LIBRARY": str(folder)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert Path(done.stdout) == folder / "sync_runtime" / "contract" / "names.py"


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    assert cli.main(["library", "--output", str(tmp_path / "library")]) == 0
    assert list((tmp_path / "library").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["library", "--output", str(tmp_path / "file" / "library")]) != 0
    assert "cannot be copied" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_copy_has_the_hash_that_its_original_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "library"
    assert cli.main(["library", "--hash"]) == 0
    said = capsys.readouterr().out.strip()
    assert cli.main(["library", "--output", str(folder)]) == 0
    assert hash_of(folder / "sync_runtime") == said
    (folder / "sync_runtime" / "__pycache__").mkdir()
    (folder / "sync_runtime" / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert hash_of(folder / "sync_runtime") == said
    (folder / "sync_runtime" / "errors.py").write_bytes(b"")
    assert hash_of(folder / "sync_runtime") != said


def test_the_hash_knows_names_bytes_and_folders_apart(tmp_path: Path) -> None:
    sets: list[dict[str, bytes]] = [{"a": b"b"}, {"ab": b""}, {"a": b"", "b": b""}, {"a/b": b""}, {"a": b"b", "c": b""}]
    hashes = set()
    for number, files in enumerate(sets):
        for name, data in files.items():
            path = tmp_path / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        hashes.add(hash_of(tmp_path / str(number)))
    assert len(hashes) == len(sets)
