"""The bubble's decisions, and what becomes of its processes. What is inside is tested on real clusters."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.children import child, line_of
from tools.devcluster import bubble
from tools.devcluster.bubble import IdMap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("me:100000:65536\n", (100000, 65535)),
        ("other:1:65536\nme:200000:70000\n", (200000, 65535)),
        ("1234:300000:2000\n", (300000, 2000)),
        ("me:100000:10\nme:500000:65536\n", (500000, 65535)),
        ("me:100000:10\n", None),
        ("me:x:y\nme\n:::\n", None),
        ("", None),
    ],
)
def test_subordinate_ids_are_read(tmp_path: Path, text: str, expected: tuple[int, int] | None) -> None:
    (tmp_path / "subuid").write_text(text)
    assert bubble._sub_ids(str(tmp_path / "subuid"), "me", 1234) == expected


def test_a_missing_file_gives_no_ids(tmp_path: Path) -> None:
    assert bubble._sub_ids(str(tmp_path / "subuid"), "me", 1234) is None


@pytest.mark.parametrize(
    ("uid", "has", "kind"),
    [
        (0, "name", IdMap.RANGE),
        (1234, "name ids helpers", IdMap.RANGE),
        (1234, "name ids", IdMap.ONE),
        (1234, "name helpers", IdMap.ONE),
        (1234, "ids helpers", IdMap.ONE),
    ],
)
def test_the_widest_map_the_user_can_have_is_chosen(
    monkeypatch: pytest.MonkeyPatch, uid: int, has: str, kind: IdMap
) -> None:
    def entry(number: int) -> pwd.struct_passwd:
        if "name" not in has:
            raise KeyError(number)
        return pwd.struct_passwd(("me", "x", number, number, "", "/", "/bin/sh"))

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwuid", entry)
    monkeypatch.setattr(bubble, "_sub_ids", lambda *_arguments: (100000, 65535) if "ids" in has else None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if "helpers" in has else None)
    assert bubble.choose_id_map() is kind


@pytest.mark.parametrize(
    ("path", "hidden"),
    [("/run/user/1", True), ("/var/lib/x", True), ("/var/log", True), ("/runner", False), ("/tmp/x", False)],  # noqa: S108
)
def test_folders_below_a_masked_one_are_shown_again(path: str, hidden: bool) -> None:
    assert bubble._hidden(Path(path)) is hidden


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3 << 8, 3), (signal.SIGKILL, 137), (signal.SIGTERM, 143)])
def test_a_signal_becomes_an_exit_code_as_in_a_shell(status: int, code: int) -> None:
    assert bubble._exit_code(status) == code


def _possible() -> bool:
    probe = ["unshare", "--user", "--map-root-user", "--pid", "--mount", "--net", "--fork", "--mount-proc", "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


needs_namespaces = pytest.mark.skipif(not _possible(), reason="user namespaces are forbidden here")
INSIDE = """
import sys, time
from pathlib import Path
from tools.devcluster import bubble
def inside():
    {body}
    return 0
bubble.enter([Path(sys.argv[1])], bubble.choose_id_map(), inside)
"""


def _bubble(body: str, keep: Path) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    code = INSIDE.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip())
    return child([sys.executable, "-c", code, str(keep)], stderr=subprocess.PIPE)


@needs_namespaces
@pytest.mark.timeout(15)
def test_the_caller_is_root_in_there_and_its_exit_code_comes_out(tmp_path: Path) -> None:
    with _bubble("import os; print(os.getuid(), os.getpid(), flush=True); return 5", tmp_path) as process:
        out, errors = process.communicate(timeout=10)
    assert (out.strip(), process.returncode) == ("0 2", 5), errors


@needs_namespaces
@pytest.mark.timeout(15)
def test_an_unforeseen_error_inside_is_shown_and_ends_it(tmp_path: Path) -> None:
    with _bubble("raise RuntimeError('oops')", tmp_path) as process:
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 1
    assert errors.strip().endswith("RuntimeError: oops")


@needs_namespaces
@pytest.mark.timeout(15)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_outer_process_reaches_the_innermost(tmp_path: Path, number: signal.Signals) -> None:
    body = """
    import os, signal
    signal.signal(int(%d), lambda *_: os._exit(42))
    print('ready', flush=True)
    time.sleep(60)
    """
    with _bubble(body % number, tmp_path) as process:
        assert line_of(process) == "ready\n"
        process.send_signal(number)
        assert process.wait(10) == 42


@needs_namespaces
@pytest.mark.timeout(15)
def test_a_signal_that_comes_before_anyone_listens_is_not_lost(tmp_path: Path) -> None:
    """The first process of a pid namespace ignores what it has no handler for; the signal waits for one instead."""
    code = (
        "import os, signal, sys, time\nfrom pathlib import Path\nfrom tools.devcluster import bubble\n"
        "mounts = bubble._mounts\n"
        "def slow(keep):\n    print('in between', flush=True); time.sleep(0.5); mounts(keep)\n"
        "bubble._mounts = slow\n"
        "def inside():\n    time.sleep(60); return 0\n"
        "bubble.enter([Path(sys.argv[1])], bubble.choose_id_map(), inside)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with child(command) as process:
        assert line_of(process) == "in between\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM


@needs_namespaces
@pytest.mark.timeout(15)
def test_killing_the_outer_process_ends_everything_inside(tmp_path: Path) -> None:
    body = """
    import subprocess
    subprocess.Popen(['sleep', '61'], start_new_session=True)
    Path(sys.argv[1], 'up').touch()
    time.sleep(60)
    """
    with _bubble(body, tmp_path) as process:
        assert process.stdout is not None
        while not (tmp_path / "up").exists():
            assert process.poll() is None
        process.kill()
        assert process.stdout.read() == ""  # every process inside had a copy of this pipe


@needs_namespaces
@pytest.mark.timeout(15)
def test_the_first_process_buries_orphans(tmp_path: Path) -> None:
    body = """
    import subprocess
    subprocess.run(['sh', '-c', '(sleep 0.1) & exit 0'])
    time.sleep(0.5)
    states = [path.read_text().rpartition(')')[2].split()[0] for path in Path('/proc').glob('[0-9]*/stat')]
    print(sorted(states), flush=True)
    """
    with _bubble(body, tmp_path) as process:
        out, errors = process.communicate(timeout=10)
    assert "Z" not in out, errors
    assert out.count("'") == 4  # two processes: the first one and this one
