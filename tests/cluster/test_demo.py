"""`make demo` in its short form on real nodes, and what is left of it when somebody presses Ctrl-C: nothing.

The acts are those of the long form; only the reward need not rise in so short a time. Up to the group's own start the
way is the same for whoever interrupts it there: that much is tested every time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.support import processtree
from tools.devcluster import hostcheck
from tools.devcluster.config import Level
from tools.devcluster.hostpython import REPOSITORY

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(600)]
WHOLE = pytest.mark.skipif(
    os.environ.get("WHOLE_DEMO") != "1", reason="the whole demo takes minutes: `make test-demo` runs it"
)
ACTS = ("start", "learn", "degrade", "kill", "catch up", "cut", "return", "reward", "proof")


@pytest.fixture
def demo(tmp_path: Path) -> list[str]:
    reason = hostcheck.why_impossible(Level.NODES)
    if reason is not None:
        pytest.skip(reason)
    return [sys.executable, "-m", "tools.demo", "--short", "--plain", "--out", str(tmp_path / "out")]


@WHOLE
def test_every_act_of_the_demo_is_seen_and_nothing_stays(demo: list[str], tmp_path: Path) -> None:
    done = subprocess.run(demo, capture_output=True, text=True, check=False, timeout=540, cwd=REPOSITORY)
    trouble = tmp_path / "out" / "trouble.txt"
    assert done.returncode == 0, done.stdout + done.stderr + (trouble.read_text() if trouble.exists() else "")
    for act in ACTS:
        assert f"✓ {act}: " in done.stdout, act
    assert "All of it is gone again" in done.stdout
    page = (tmp_path / "out" / "run.html").read_text()
    assert "what was seen" in page
    assert page.count("<svg") >= 6


@WHOLE
@pytest.mark.parametrize("words", ["three regions", "kubectl apply"])
def test_whoever_interrupts_it_leaves_nothing_behind(demo: list[str], tmp_path: Path, words: str) -> None:
    before = _folders()
    process = subprocess.Popen(
        demo, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY, start_new_session=True,
        preexec_fn=processtree.hear_interrupts,  # noqa: PLW1509 it only sets a signal
    )  # fmt: skip
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if words in line:
                break
        time.sleep(2)  # in the middle of what it has just announced
        children = processtree.descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    assert children, "it had started something"
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert _folders() == before


def _folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("syncgroup-demo-*")}
