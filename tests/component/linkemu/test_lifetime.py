"""A lab belongs to its owner: it ends with it, whatever happens, and disturbs nobody."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.component.linkemu.conftest import start_lab_or_skip
from tests.component.linkemu.traffic import is_gone, processes_in_pid_namespace, round_trip_us
from tools.linkemu import Lab, LinkShape
from tools.linkemu.native import emulator_program

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(120)]

_ROOT = Path(__file__).parents[3]
_OWNER = """
import json, sys, time
from tools.linkemu import Lab
lab = Lab.start(2)
programs = [lab.popen(region, ["sleep", "1000"]) for region in lab.regions]
print(json.dumps({"init": lab.init_pid, "emulator": lab.emulator.pid}), flush=True)
time.sleep(1000)
"""
_ORDINARY = """
import json, os
from tests.component.linkemu.traffic import round_trip_us, tcp_rate
from tools.linkemu import Lab, parse_link
with Lab.start(2, link=parse_link("20ms/100M/0%")) as lab:
    rtt_us = round_trip_us(lab, "a", "b")
    for attempt in range(3):
        rate_bps = tcp_rate(lab, seconds=2).rate_bps
        if abs(rate_bps / 100e6 - 1) <= 0.05:
            break
print(json.dumps({"uid": os.getuid(), "rtt_us": rtt_us, "rate_bps": rate_bps}))
"""


@pytest.fixture
def own_lab() -> Iterator[Lab]:
    with start_lab_or_skip(2) as lab:
        yield lab


def _wait_until(condition: Callable[[], bool], timeout_s: float = 5) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)


def test_nothing_survives_a_kill_of_the_owner(own_lab: Lab) -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], cwd=_ROOT, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout
            pids = json.loads(owner.stdout.readline())
            namespace = os.readlink(f"/proc/{pids['init']}/ns/pid")
            _wait_until(lambda: len(processes_in_pid_namespace(namespace)) == 3)
        finally:
            owner.send_signal(signal.SIGKILL)
    _wait_until(lambda: is_gone(pids["emulator"]) and not processes_in_pid_namespace(namespace))
    assert round_trip_us(own_lab, "a", "b") < 5_000, "another lab is not touched"


def test_stopping_a_lab_ends_the_programs_inside(own_lab: Lab) -> None:
    with start_lab_or_skip(1) as lab, lab.popen("a", ["sleep", "1000"]) as program:
        namespace = os.readlink(f"/proc/{lab.init_pid}/ns/pid")
        lab.stop()
        program.wait(10)
    _wait_until(lambda: not processes_in_pid_namespace(namespace))


def test_killing_what_popen_returned_kills_the_program(own_lab: Lab) -> None:
    namespace = os.readlink(f"/proc/{own_lab.init_pid}/ns/pid")
    with own_lab.popen("a", ["sleep", "1000"]) as program:
        _wait_until(lambda: len(processes_in_pid_namespace(namespace)) == 2)
        time.sleep(0.2)  # the program is there; now let it take its place
        program.kill()
    _wait_until(lambda: processes_in_pid_namespace(namespace) == [own_lab.init_pid])


def test_labs_side_by_side_have_their_own_links(own_lab: Lab) -> None:
    with start_lab_or_skip(2) as other:
        other.emulator.set_link("a", "b", LinkShape(delay_us=20_000))
        assert own_lab.address("b") == other.address("b")
        assert round_trip_us(other, "a", "b") == pytest.approx(40_000, rel=0.05)
        assert round_trip_us(own_lab, "a", "b") < 5_000


def test_the_command_line_runs_a_command_between_regions(own_lab: Lab) -> None:
    command = [
        sys.executable,
        "-m",
        "tools.linkemu",
        "lab",
        "--link",
        "10ms/1G/0%",
        "--inside",
        "b",
        "--",
        "ip",
        "-br",
        "addr",
    ]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "10.77.1.1/32" in done.stdout


def test_the_command_line_obeys_its_standard_input(own_lab: Lab) -> None:
    lines = "set a>b 30ms/10M/1%\ncut b-a\nshapes\nfly\nreset\nstats\nrun b true\nquit\n"
    command = [sys.executable, "-m", "tools.linkemu", "lab", "--link", "10ms/1G/0%", "--link", "b>a=8ms/5M/0%"]
    done = subprocess.run(command, cwd=_ROOT, input=lines, capture_output=True, text=True, timeout=60, check=True)
    assert "a>b 30ms/10M/1%" in done.stdout
    assert "b>a 8ms/5M/0%" in done.stdout
    assert "error: cannot read 'fly'" in done.stdout
    assert "exit status 0" in done.stdout


def _ordinary_python() -> str:
    """A Python that somebody who is not root can run."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        if not shutil.which(candidate):
            continue
        command = [*_as_nobody(), candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0:
            return candidate
    pytest.skip("no Python 3.11 that an ordinary user of this machine can run")


def _as_nobody() -> list[str]:
    """`env` at the end: setpriv itself still finds and runs what only root may."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"]


def test_an_ordinary_user_has_the_same_lab(own_lab: Lab, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("every other test here runs as an ordinary user already")
    python = _ordinary_python()
    cache = tmp_path / "cache" / "syncgroup"
    shutil.copytree(emulator_program().parents[1], cache / "native")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.getuid() and path.is_relative_to("/tmp") and path != Path("/tmp"):  # noqa: S108
            path.chmod(0o755)
    env = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [*_as_nobody(), python, "-c", _ORDINARY],
        cwd=_ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["uid"] == 65534
    assert figures["rtt_us"] == pytest.approx(20_000, rel=0.05)
    assert figures["rate_bps"] == pytest.approx(100_000_000, rel=0.05)
