"""The control protocol against the real program, with ports that lead nowhere: no privilege and no network needed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.errors import BuildError
from tools.linkemu import Controller, Emulator, EmulatorError, EmulatorOptions, LinkShape, RegionPort, parse_link
from tools.linkemu.native import SOURCES, build, emulator_program

pytestmark = pytest.mark.timeout(120)  # the first test compiles the program

_SANITIZERS = ("-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def _wait_until(condition: Callable[[], bool], timeout_s: float = 5) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_shape_set_is_the_shape_read_back(emulator: Emulator) -> None:
    shape = parse_link("100ms/500M/0.1%,queue=1M,jitter=2ms,burst=1%:2%:3%,police=400M:1M,cross=5M:10ms:20ms")
    emulator.set("a", "b", shape)
    shapes = emulator.shapes()
    assert shapes["a", "b"] == shape
    assert shapes["b", "a"] == LinkShape()
    assert len(shapes) == 6


@pytest.mark.parametrize("words", ["nowhere 1000000 0", "a fast 0", "a 10 0", "a 1000000 -1", "a 1000000"])
def test_an_uplink_that_cannot_be_is_refused(emulator: Emulator, words: str) -> None:
    emulator.set_uplink("a", 1_000_000, 20_000)
    with pytest.raises(EmulatorError):
        emulator.request(f"uplink {words}")


def test_a_cut_is_one_direction_and_mended_again(emulator: Emulator) -> None:
    emulator.cut("a", "c")
    assert emulator.cut_directions() == {("a", "c")}
    emulator.mend("a", "c")
    assert emulator.cut_directions() == frozenset()


def test_shapes_given_at_the_start_are_in_place(tmp_path: Path) -> None:
    ports = [RegionPort(name="x", kind="null"), RegionPort(name="y", kind="null")]
    shape = parse_link("20ms/1G/0%")
    with Emulator.start(ports, shapes={("x", "y"): shape}) as running:
        assert running.shapes() == {("x", "y"): shape, ("y", "x"): LinkShape()}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "empty command"),
        ("fly a b", "no such command: fly"),
        ("set a b", "wrong number of words"),
        ("set a z delay_us=1", "no such region: z"),
        ("set a a delay_us=1", "no link to itself"),
        ("set a b delay_us=1 rate=5", "not a setting of a link"),
        ("set a b delay_us=-1", "not a setting of a link"),
        ("set a b delay_us=99999999999999999999", "not a setting of a link"),
        ("set a b rate_bps=5", "below 1000"),
        ("cut a", "wrong number of words"),
        ("cut a b c", "wrong number of words"),
        ("cut a b\0", "no zero bytes"),
        ("route a 10.0.0.0/33", "not an IPv4 prefix"),
        ("route a 10.0.0", "not an IPv4 prefix"),
        ("route q 10.0.0.0/8", "no such region"),
        ("unroute a 99.0.0.0/8", "no such route"),
        ("reopen q", "no such region"),
        ("port d kind=null", "ports are given before"),
        ('set "a\\ b\u00e9 delay_us=1', "no such region: ?a?"),
        (" ".join(["set"] * 200), "too many words"),
    ],
)
def test_a_bad_command_gets_a_sentence_and_changes_nothing(emulator: Emulator, line: str, sentence: str) -> None:
    before = emulator.shapes()
    with pytest.raises(EmulatorError, match=r"refused") as refusal:
        emulator.request(line)
    assert sentence in str(refusal.value)
    assert emulator.shapes() == before


@pytest.mark.parametrize(
    ("ports", "sentence"),
    [
        ([RegionPort(name="a", kind="null"), RegionPort(name="a", kind="null")], "not a new name"),
        ([RegionPort(name="a b", kind="null")], "not a setting of a port"),
        ([RegionPort(name="x" * 40, kind="null")], "not a new name"),
        ([RegionPort(name="a", kind="packet")], "needs interface="),
        ([RegionPort(name="a", kind="null", prefixes=("10.0.0.0/99",))], "not a setting of a port"),
        ([RegionPort(name="a", kind="null", mac="ff:ff:ff:ff:ff:ff")], "not a setting of a port"),
        ([RegionPort(name="a", kind="null", mac="02:00:00:00:00")], "not a setting of a port"),
        ([RegionPort(name="a", interface="x" * 16)], "not a setting of a port"),
        ([RegionPort(name="a", interface="no-such-one")], "there is no such interface"),
        ([RegionPort(name=f"r{i}", kind="null") for i in range(33)], "too many ports"),
        ([RegionPort(name="a\nquit", kind="null")], "no line breaks"),
    ],
)
def test_a_bad_port_ends_the_start_with_a_sentence(ports: list[RegionPort], sentence: str) -> None:
    with pytest.raises(EmulatorError, match=sentence):
        Emulator.start(ports)


@pytest.mark.parametrize(
    "argument",
    ["--mtu=12", "--mtu=99999", "--pool=1", "--seed=x", "--gateway=1.2.3", "--control-fd=77", "--colour=red", "x"],
)
def test_a_bad_argument_ends_the_program_with_a_sentence(argument: str) -> None:
    done = subprocess.run(
        [emulator_program(), argument],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert "linkemu: " in done.stderr
    assert done.stdout == ""


def test_routes_are_added_and_removed_while_it_runs(emulator: Emulator) -> None:
    emulator.add_route("a", "192.0.2.0/24")
    emulator.remove_route("a", "192.0.2.0/24")
    with pytest.raises(EmulatorError, match="no such route"):
        emulator.remove_route("a", "192.0.2.0/24")


def test_another_process_may_connect_by_a_path_longer_than_a_socket_address(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    path = folder / "control"
    with Emulator.start([RegionPort(name="a", kind="null")], options=EmulatorOptions(socket_path=path)):
        assert path.stat().st_mode & 0o077 == 0
        with Controller.connect(path) as controller:
            assert controller.stats().port("a").in_packets == 0
    assert not path.exists()


def test_a_file_in_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(EmulatorError, match="cannot listen"):
        Emulator.start([RegionPort(name="a", kind="null")], options=EmulatorOptions(socket_path=path))
    assert path.read_text() == "data"


def test_a_socket_left_over_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Emulator.start([RegionPort(name="a", kind="null")], options=EmulatorOptions(socket_path=path)):
        with Controller.connect(path) as controller:
            assert controller.stats().pool_used == 0


def test_connecting_where_nobody_listens_says_so(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="start it first"):
        Controller.connect(tmp_path / "nobody")


def test_a_client_too_many_is_told_so_and_the_others_go_on(emulator: Emulator, tmp_path: Path) -> None:
    clients = [Controller.connect(tmp_path / "control") for _ in range(8)]
    try:
        outcomes = []
        for client in clients:
            try:
                outcomes.append(client.stats() is not None)
            except EmulatorError:
                outcomes.append(False)
        assert outcomes == [True] * 7 + [False]
        emulator.reset()
    finally:
        for client in clients:
            client.close()


@pytest.fixture(scope="module")
def checked_emulator() -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """The program built with address and undefined-behaviour checks, listening in a folder of its own."""
    try:
        program = build("linkemu-checked", sorted(SOURCES.glob("*.c")), _SANITIZERS)
    except BuildError as error:
        pytest.skip(f"the compiler has no sanitizers: {str(error).splitlines()[-1]}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "control"
        command = [str(program), f"--socket={path}", "--pool=64"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"# a comment\n\nport a kind=null prefix=10.0.0.0/8\nport b kind=null\n")
            process.stdin.close()
            assert b"true" in process.stdout.readline()
            yield path, process
            process.terminate()
            assert process.wait(10) == 0, process.stderr and process.stderr.read()


_WORDS = st.sampled_from(
    [b"set", b"cut", b"mend", b"route", b"unroute", b"reopen", b"port", b"stats", b"shapes", b"reset", b"a", b"b", b"=",
     b"rate_bps=1000", b"rate_bps=999999999999999999", b"delay_us=60000000", b"cross_bps=999", b"10.0.0.0/8", b"0/0",
     b"jitter_us=1", b"%s%n%x", b"\x00", b"\xff\xfe", b"x" * 300]
)  # fmt: skip
_GARBAGE = st.lists(st.binary(max_size=200) | st.lists(_WORDS, max_size=12).map(b" ".join), max_size=8).map(b"\n".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=_GARBAGE)
def test_no_bytes_from_a_client_harm_the_program(
    checked_emulator: tuple[Path, subprocess.Popen[bytes]], garbage: bytes
) -> None:
    path, process = checked_emulator
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(garbage.replace(b"quit", b"quiz") + b"\n")
        client.shutdown(socket.SHUT_WR)
        replies = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert process.poll() is None
    for reply in replies.splitlines():
        assert json.loads(reply)["ok"] in (True, False)


def test_an_endless_line_is_refused_and_hung_up_on(checked_emulator: tuple[Path, subprocess.Popen[bytes]]) -> None:
    path, process = checked_emulator
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"x" * 4096)
        assert b"longer than 4096 bytes" in client.recv(1000)
        assert client.recv(1000) == b""
    assert process.poll() is None


def test_a_client_that_never_reads_blocks_nobody(emulator: Emulator, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        client.connect(str(tmp_path / "control"))
        try:
            while True:
                client.send(b"stats\n" * 100)
        except BlockingIOError:
            pass
        started_s = time.monotonic()
        emulator.stats()
        assert time.monotonic() - started_s < 5


def test_a_client_that_reads_slowly_gets_every_reply(emulator: Emulator, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(tmp_path / "control"))
        sender = threading.Thread(target=client.sendall, args=(b"stats\n" * 2_000,))
        sender.start()
        time.sleep(0.3)  # by now the socket is full of replies
        replies = b""
        while replies.count(b"\n") < 2_000:
            replies += client.recv(1 << 20)
        sender.join()
    assert all(json.loads(reply)["ok"] for reply in replies.splitlines())


def test_several_threads_may_ask_at_once(emulator: Emulator) -> None:
    failures: list[Exception] = []

    def ask() -> None:
        try:
            for _ in range(50):
                assert len(emulator.stats().pairs) == 6
        except (EmulatorError, AssertionError) as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_stopping_ends_the_process_and_a_second_stop_is_harmless() -> None:
    emulator = Emulator.start([RegionPort(name="a", kind="null")])
    emulator.stop()
    emulator.stop()
    assert _is_gone(emulator.pid)
    with pytest.raises(EmulatorError):
        emulator.stats()


def test_an_emulator_started_by_a_thread_outlives_the_thread() -> None:
    started: list[Emulator] = []
    thread = threading.Thread(target=lambda: started.append(Emulator.start([RegionPort(name="a", kind="null")])))
    thread.start()
    thread.join()
    time.sleep(0.2)
    with started[0] as emulator:
        assert emulator.stats().port("a").open is False


@pytest.mark.parametrize("tie", ["parent", "owner"])
def test_it_ends_when_its_owner_is_killed(tie: str) -> None:
    script = (
        "import sys, time, threading\n"
        "from tools.linkemu import Emulator, RegionPort\n"
        "def start():\n"
        "    print(Emulator.start([RegionPort(name='a', kind='null')]).pid, flush=True); time.sleep(60)\n"
        "threading.Thread(target=start).start() if sys.argv[1] == 'owner' else start()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, tie], stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        pid = int(owner.stdout.readline())
        assert not _is_gone(pid)
        owner.send_signal(signal.SIGKILL)
    _wait_until(lambda: _is_gone(pid))


def test_it_ends_with_the_parent_it_was_told_of() -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "tie, quiet, pipe = f'--parent={os.getpid()}', subprocess.DEVNULL, subprocess.PIPE\n"
        "p = subprocess.Popen([sys.argv[1], tie], stdin=quiet, stdout=pipe)\n"
        "p.stdout.readline(); print(p.pid, flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(emulator_program())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert not _is_gone(pid)
        parent.kill()
    _wait_until(lambda: _is_gone(pid))


def test_it_does_not_start_for_a_parent_that_is_gone_already() -> None:
    command = [str(emulator_program()), f"--parent={os.getpid() + 1_000_000}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    assert done.returncode == 0
    assert done.stdout == b""
