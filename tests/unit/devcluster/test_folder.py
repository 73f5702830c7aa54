"""The cluster's folder: one cluster at a time, no one else's files, no one else's process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.children import child, line_of
from tools.devcluster import folder
from tools.errors import ClusterError

pytestmark = pytest.mark.timeout(15)  # each starts processes


def test_a_folder_is_made_and_taken(tmp_path: Path) -> None:
    with folder.claim(tmp_path / "new" / "one"):
        assert (tmp_path / "new" / "one").is_dir()


def test_a_folder_is_taken_once_and_free_again_afterwards(tmp_path: Path) -> None:
    with (
        folder.claim(tmp_path),
        pytest.raises(ClusterError, match="already holds a dev cluster; end it with `make dev-down` first"),
    ):
        folder.claim(tmp_path)
    folder.claim(tmp_path).close()


def test_a_child_that_inherits_the_claim_keeps_it_until_it_is_killed(tmp_path: Path) -> None:
    lock = folder.claim(tmp_path)
    with child(["sleep", "60"], pass_fds=[lock.fileno()]):
        lock.close()
        with pytest.raises(ClusterError, match="already holds"):
            folder.claim(tmp_path)
    folder.claim(tmp_path).close()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "us-east").mkdir()
    (tmp_path / "us-east" / "thesis.txt").touch()
    with pytest.raises(ClusterError, match="holds files that are not a dev cluster's"):
        folder.claim(tmp_path)
    assert (tmp_path / "us-east" / "thesis.txt").exists()
    assert not (tmp_path / folder.LOCK).exists()


@pytest.mark.parametrize("mark", ["lock", "logs/devcluster.log"])
def test_a_folder_that_held_a_cluster_is_taken_again(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).touch()
    (tmp_path / "us-east").mkdir()
    folder.claim(tmp_path).close()


@pytest.mark.parametrize("name", ["with space", "with'quote", 'with"quote', "with,comma", "with:colon", "with\nline"])
def test_a_name_that_other_programs_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match="choose a plainer one with --dir"):
        folder.claim(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_usual_names_are_fine(tmp_path: Path) -> None:
    folder.claim(tmp_path / "Ünïcode_1.2-3+4@5=6%7~8").close()


@contextlib.contextmanager
def _runner(directory: Path) -> Iterator[int]:
    """A process whose command line looks like a runner's, once it runs: the kernel fills it in after the start."""
    code = "import time; print('up', flush=True); time.sleep(60)"
    with child([sys.executable, "-c", code, "tools.devcluster.runner", str(directory)]) as process:
        assert line_of(process) == "up\n"
        yield process.pid


def test_the_process_of_the_folders_cluster_is_found(tmp_path: Path) -> None:
    with _runner(tmp_path) as pid:
        (tmp_path / folder.PID).write_text(str(pid))
        assert folder.runner_pid(tmp_path) == pid
    assert folder.runner_pid(tmp_path) is None


def test_a_number_that_now_belongs_to_another_process_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / folder.PID).write_text(str(os.getpid()))
    assert folder.runner_pid(tmp_path) is None
    with _runner(tmp_path / "elsewhere") as pid:
        (tmp_path / folder.PID).write_text(str(pid))
        assert folder.runner_pid(tmp_path) is None


@pytest.mark.parametrize("text", [None, "", "abc", "-1", "99999999999"])
def test_a_file_without_a_process_is_no_process(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / folder.PID).write_text(text)
    assert folder.runner_pid(tmp_path) is None
