"""Enters the bubble: one set of namespaces in which the caller is root and sees only what it makes itself.

Killing the process that called `enter` ends everything inside, because the bubble's first process dies with it and a
pid namespace dies with its first process. The same code serves root and an ordinary user.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from tools.errors import HostError

NEW_MOUNT, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC = 0x2, 0x4, 0x8, 0x1000, 0x4000
_MS_PRIVATE, _MS_SHARED = 0x40000, 0x100000
_PR_SET_PDEATHSIG = 1
ATTENDED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
ID_RANGE = 65536
MASKED = ("/run", "/var/lib", "/var/log")
"""Folders that get an empty file system of the bubble's own: node programs write there whatever they are told."""

_libc = ctypes.CDLL(None, use_errno=True)


class IdMap(StrEnum):
    """Which user ids exist inside."""

    NONE = "none"
    """No user namespace: real root, needed for cgroup limits."""
    RANGE = "range"
    """65536 ids: containers may run as other users."""
    ONE = "one"
    """The caller alone, as root."""


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])


def bind(source: Path, target: Path) -> None:
    """Show the folder `source` at `target` too."""
    mount(str(source), str(target), None, _MS_BIND | _MS_REC)


def _sub_ids(path: str, user: str, uid: int) -> tuple[int, int] | None:
    """The first range of subordinate ids a file such as /etc/subuid gives to a user."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            name, _, rest = line.partition(":")
            start, _, count = rest.partition(":")
            if name in (user, str(uid)) and start.isdigit() and count.isdigit() and int(count) >= 1000:
                return int(start), min(int(count), ID_RANGE - 1)
    return None


def choose_id_map() -> IdMap:
    """The widest map this user can have."""
    if os.geteuid() == 0:
        return IdMap.RANGE
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return IdMap.ONE
    ranges = [_sub_ids(path, user, os.getuid()) for path in ("/etc/subuid", "/etc/subgid")]
    helpers = [shutil.which("newuidmap"), shutil.which("newgidmap")]
    return IdMap.RANGE if all(ranges) and all(helpers) else IdMap.ONE


def _write_maps(pid: int, kind: IdMap) -> None:
    """Runs outside, on behalf of the process that has just left for a new user namespace."""
    uid, gid, proc = os.getuid(), os.getgid(), Path(f"/proc/{pid}")
    if kind is IdMap.RANGE and uid == 0:
        for name in ("uid_map", "gid_map"):
            (proc / name).write_text(f"0 0 {ID_RANGE}\n")
    elif kind is IdMap.RANGE:
        user = pwd.getpwuid(uid).pw_name
        for tool, path, own in (("newuidmap", "/etc/subuid", uid), ("newgidmap", "/etc/subgid", gid)):
            start, count = _sub_ids(path, user, uid) or (0, 0)
            subprocess.run([tool, str(pid), "0", str(own), "1", "1", str(start), str(count)], check=True)
    elif kind is IdMap.ONE:
        (proc / "setgroups").write_text("deny")
        (proc / "uid_map").write_text(f"0 {uid} 1\n")
        (proc / "gid_map").write_text(f"0 {gid} 1\n")


@contextlib.contextmanager
def _mapper(kind: IdMap) -> Iterator[Callable[[], None]]:
    """A helper process that stays outside and writes the maps once we have left."""
    left_r, left_w = os.pipe()
    done_r, done_w = os.pipe()
    traveller = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.close(left_w)
        os.close(done_r)
        code = 1
        try:
            if os.read(left_r, 1) == b"x":
                _write_maps(traveller, kind)
                os.write(done_w, b"x")
                code = 0
        finally:
            os._exit(code)
    os.close(left_r)
    os.close(done_w)

    def write_maps() -> None:
        os.write(left_w, b"x")
        if os.read(done_r, 1) != b"x":
            raise HostError("The user namespace's id map could not be written; run `python -m tools.devcluster check`.")

    try:
        yield write_maps
    finally:
        os.close(left_w)
        os.close(done_r)
        os.waitpid(helper, 0)


def enter(keep: Sequence[Path], kind: IdMap, inside: Callable[[], int]) -> NoReturn:
    """Run `inside` as a process of a fresh bubble; exit with its exit code. Paths in `keep` stay visible.

    Three processes take part: this one waits outside; the bubble's first process reaps orphans; `inside` runs in a
    third, so that waiting for its own children does not race with the reaping.
    """
    flags = NEW_MOUNT | NEW_PID | NEW_NET | NEW_IPC | NEW_UTS
    try:
        with _mapper(kind) as write_maps:
            _call("unshare", flags if kind is IdMap.NONE else flags | NEW_USER | NEW_CGROUP)
            write_maps()
        if kind is not IdMap.NONE:
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
    except OSError as error:
        raise HostError(
            f"The bubble cannot be entered here ({error}); run `python -m tools.devcluster check` to see why."
        ) from error
    signal.pthread_sigmask(signal.SIG_BLOCK, ATTENDED)
    outside_r, outside_w = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            os.close(outside_w)
            _first_process(keep, inside, outside_r)
        except BaseException:  # noqa: BLE001 - this process must not return into its parent's stack
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)
    os.close(outside_r)
    sys.exit(_attend(first))


def _attend(pid: int) -> int:
    """Pass signals on to `pid`, bury whatever ends, and return the exit code of `pid`.

    The signals are blocked and taken from the queue one by one. With handlers there would be moments in which one is
    lost: before they are set, because the first process of a pid namespace ignores what it does not handle, and just
    before each wait, which Python does not interrupt for a signal that came a moment earlier.
    """
    while True:
        received = signal.sigwait(ATTENDED)
        if received != signal.SIGCHLD:
            os.kill(pid, received)
            continue
        ended = -1
        while ended != 0:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == pid:
                return _exit_code(status)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _first_process(keep: Sequence[Path], inside: Callable[[], int], outside_r: int) -> NoReturn:
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if select.select([outside_r], [], [], 0)[0]:  # the caller died before the line above; its pid is 0 from in here
        os._exit(1)
    os.close(outside_r)
    _mounts(keep)
    worker = os.fork()
    if worker == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ATTENDED)
        code = 1
        try:
            code = inside()
        except BaseException:  # noqa: BLE001 - this process must not return into its parent's stack
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os._exit(_attend(worker))


def _mounts(keep: Sequence[Path]) -> None:
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    kept = {path: os.open(path, os.O_PATH) for path in sorted({path.resolve() for path in keep}) if _hidden(path)}
    for folder in MASKED:
        mount("bubble", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    for path, descriptor in kept.items():
        path.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", str(path), None, _MS_BIND | _MS_REC)
        os.close(descriptor)
    for folder in ("/run/netns", "/run/lock", "/run/devcluster", "/var/lib/cni", "/var/log/pods"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    mount("none", "/", None, _MS_REC | _MS_SHARED)


def _hidden(path: Path) -> bool:
    return any(path.resolve().is_relative_to(folder) for folder in MASKED)
