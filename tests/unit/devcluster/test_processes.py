"""Child processes: they die with us, say how they ended, and are reached through their wrappers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY, child, line_of
from tools.devcluster import processes
from tools.devcluster.processes import Child
from tools.errors import ClusterError

pytestmark = pytest.mark.timeout(15)


def _state(pid: int | None) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def _gone(pid: int) -> bool:
    return _state(pid) in (None, "Z")


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 5
    while not _gone(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def test_a_program_runs_until_it_is_killed(tmp_path: Path) -> None:
    async def run() -> None:
        child = Child("sleeper", ["sleep", "60"], tmp_path / "log")
        assert (child.pid, child.exit_code) == (None, None)
        await child.start()
        pid = child.pid
        assert pid is not None
        await child.start()
        assert child.pid == pid  # starting what runs changes nothing
        await child.kill()
        assert child.exit_code == -signal.SIGKILL
        await child.kill()
        await child.start()
        assert child.pid not in (None, pid)
        await child.kill()

    asyncio.run(run())


def test_how_a_program_ended_and_its_last_words_are_kept(tmp_path: Path) -> None:
    async def run() -> None:
        words = "echo one; echo two >&2; echo three; echo four; exit 7"
        child = Child("failing", ["sh", "-c", words], tmp_path / "log")
        await child.start()
        assert await child.wait() == 7
        assert child.exit_code == 7
        assert child.last_words() == "two | three | four"
        with pytest.raises(ClusterError, match=r"failing ended with 7: two \| three \| four \(log: .*/log\)"):
            child.must_run()

    asyncio.run(run())


def test_what_an_earlier_start_wrote_is_not_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("bind: address already in use\n")

    async def run() -> None:
        child = Child("failing", ["sh", "-c", "echo mine"], tmp_path / "log")
        await child.start()
        await child.wait()
        assert child.last_words() == "mine"

    asyncio.run(run())
    assert (tmp_path / "log").read_text() == "bind: address already in use\nmine\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("x\nlisten tcp 127.0.0.1:1: bind: address already in use\ngoroutine 1", "another program took its port"),
        ("panic: no space left on device\n" + "frame\n" * 40, "the disk is full; free 1 GB per region"),
        ("a\nb\nc\nd", "b | c | d"),
        ("", ""),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_end_of_a_log_is_explained(log: str, words: str) -> None:
    assert processes.explain(log).startswith(words)


def test_an_end_on_purpose_is_no_failure(tmp_path: Path) -> None:
    async def run() -> None:
        child = Child("sleeper", ["sleep", "60"], tmp_path / "log")
        child.must_run()
        await child.start()
        child.must_run()
        await child.kill(signal.SIGTERM)
        assert child.exit_code == -signal.SIGTERM
        child.must_run()

    asyncio.run(run())


def test_a_program_that_ignores_a_kind_signal_is_killed_after_the_grace(tmp_path: Path) -> None:
    async def run() -> None:
        command = ["sh", "-c", "trap '' TERM; echo ready; sleep 60 & wait; sleep 60"]
        child = Child("stubborn", command, tmp_path / "log", stop_grace_s=0.2)
        await child.start()
        while not (tmp_path / "log").read_text():  # noqa: ASYNC110 - another process becomes ready
            await asyncio.sleep(0.02)
        await child.kill(signal.SIGTERM)
        assert child.exit_code == -signal.SIGKILL

    asyncio.run(run())


def test_pausing_and_resuming_ends_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        child = Child("sleeper", ["sleep", "60"], tmp_path / "log", stop_grace_s=0.1)
        await child.start()
        pid = child.pid
        await child.kill(signal.SIGSTOP)
        await asyncio.sleep(0.3)
        assert child.pid == pid
        assert _state(pid) == "T"
        await child.kill(signal.SIGCONT)
        assert child.pid == pid
        await child.kill()

    asyncio.run(run())


@pytest.mark.parametrize("number", [0, -1, 99, 10**30])
def test_a_number_that_is_no_signal_is_refused(tmp_path: Path, number: int) -> None:
    async def run() -> None:
        child = Child("sleeper", ["sleep", "60"], tmp_path / "log")
        await child.start()
        with pytest.raises(ClusterError, match=f"There is no signal {number}; 9 kills"):
            await child.kill(number)
        assert child.pid is not None
        await child.kill()

    asyncio.run(run())


def test_a_program_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(ClusterError, match=r"eu/ghost could not be started: .*No such file or directory"):
            await Child("eu/ghost", [str(tmp_path / "ghost")], tmp_path / "log").start()

    asyncio.run(run())


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(ClusterError, match="eu/etcd could not be started: "):
            await Child("eu/etcd", ["true"], tmp_path / "missing" / "log").start()

    asyncio.run(run())


def test_waiting_for_what_never_started_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="never started"):
        asyncio.run(Child("x", ["true"], tmp_path / "log").wait())


PARENT = """
import asyncio, sys
from pathlib import Path
from tools.devcluster.processes import Child
async def main():
    child = Child("sleeper", ["sleep", "60"], Path(sys.argv[1]))
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with child(command) as parent:
        pid = int(line_of(parent))
        assert not _gone(pid)
        parent.kill()
        _wait_until_gone(pid)


def test_a_child_whose_parent_is_already_gone_kills_itself() -> None:
    stranger = os.getpid()  # alive, but not the parent of the child below
    code = f"from tools.devcluster.processes import die_with_parent; die_with_parent({stranger})(); print('alive')"
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert (done.returncode, done.stdout) == (128 + signal.SIGKILL, "")


def _may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _may_unshare(), reason="user namespaces are forbidden here")
def test_a_signal_reaches_the_program_behind_a_wrapper(tmp_path: Path) -> None:
    async def run() -> None:
        wrapper = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--"]
        child = Child("inside", [*wrapper, "sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done"], log)
        await child.start()
        while "up" not in log.read_text():  # noqa: ASYNC110 - another process becomes ready
            await asyncio.sleep(0.02)
        assert child.pid is not None
        inner = processes.only_child_of(child.pid)
        assert inner is not None
        assert processes.program_name(inner) == "sh"
        await child.kill(signal.SIGTERM)
        assert child.exit_code == 5
        assert _gone(inner)

    log = tmp_path / "log"
    asyncio.run(run())


def test_what_is_gone_has_neither_name_nor_children() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert processes.program_name(process.pid) is None
    assert processes.only_child_of(process.pid) is None
