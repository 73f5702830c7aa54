"""Starting a cluster where something is in the way: one sentence, exit code 2, nothing left running."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.component.hostile_host import commands
from tests.component.hostile_host.commands import CLUSTER
from tools.devcluster import folder, forward, runner, supervisor
from tools.devcluster.components import Plane
from tools.devcluster.config import ClusterConfig, Level, parse_regions
from tools.devcluster.region import RunningRegion
from tools.devcluster.supervisor import free_ports
from tools.errors import ClusterError, ToolError
from tools.kube import build, catalog

pytestmark = pytest.mark.timeout(120)


def test_a_folder_that_already_holds_a_cluster(tmp_path: Path) -> None:
    with folder.claim(tmp_path):
        done = commands.run(CLUSTER, "up", "--level", "planes", "--dir", str(tmp_path))
    assert commands.sentence(done) == f"{tmp_path} already holds a dev cluster; end it with `make dev-down` first."


def test_a_folder_with_other_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "us-east").mkdir()
    (tmp_path / "us-east" / "notes").touch()
    done = commands.run(CLUSTER, "up", "--level", "planes", "--dir", str(tmp_path))
    assert "choose an empty or a new folder with --dir" in commands.sentence(done)
    assert (tmp_path / "us-east" / "notes").exists()


def test_a_folder_that_cannot_be_made() -> None:
    done = commands.run(CLUSTER, "up", "--level", "planes", "--dir", "/sys/cluster")
    assert commands.sentence(done).startswith("Permission was denied (/sys/cluster)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; /sys stands in for such a folder")
def test_a_folder_that_belongs_to_another() -> None:
    done = commands.run(CLUSTER, "up", "--level", "planes", "--dir", "/root/cluster")
    assert commands.sentence(done).startswith("Permission was denied (/root")


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = commands.run(CLUSTER, "up", "--level", "planes", "--dir", str(tmp_path / "file"))
    assert commands.sentence(done).startswith("A file stands where a folder should be")


def test_a_folder_with_a_name_that_other_programs_misread(tmp_path: Path) -> None:
    done = commands.run(CLUSTER, "up", "--level", "planes", "--dir", str(tmp_path / "my cluster"))
    assert "choose a plainer one with --dir" in commands.sentence(done)


def test_too_few_open_files(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    done = commands.run(CLUSTER, "up", "--level", "planes", "--dir", str(tmp_path / "cluster"), before=few)
    assert commands.sentence(done) == (
        "The level `planes` is impossible here: only 256 open files are allowed; raise `ulimit -n` to 4096."
    )
    assert not (tmp_path / "cluster").exists()


FORBID = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'


@pytest.mark.parametrize(("command", "code"), [("up", 2), ("check", 1)])
def test_namespaces_that_are_forbidden(tmp_path: Path, command: str, code: int) -> None:
    commands.need_namespaces()
    done = commands.run(
        CLUSTER,
        command,
        "--level",
        "nodes",
        "--dir",
        str(tmp_path / "cluster"),
        wrapper=[*commands.NAMESPACE, "sh", "-c", FORBID, "sh"],
    )
    said = done.stdout.strip() if command == "check" else commands.sentence(done)
    assert done.returncode == code
    assert said == (
        "The level `nodes` is impossible here: the kernel allows no further namespaces; "
        "raise the sysctl user.max_user_namespaces."
    )
    assert not (tmp_path / "cluster").exists()


def test_a_host_without_the_program_ip(tmp_path: Path) -> None:
    commands.need_namespaces()
    empty = tmp_path / "empty"
    empty.mkdir()
    done = commands.run(
        CLUSTER,
        "up",
        "--level",
        "nodes",
        "--dir",
        str(tmp_path / "cluster"),
        wrapper=[*commands.NAMESPACE, "sh", "-c", f'{_hide_ip(empty)} exec "$@"', "sh"],
    )
    assert commands.sentence(done) == (
        "The level `nodes` is impossible here: the program `ip` is missing; install iproute2."
    )


def _hide_ip(folder: Path) -> str:
    """Lay a file that nobody may run over every `ip` of the machine."""
    cover = folder / "cover"
    cover.touch(mode=0o644)
    return "".join(
        f"mount --bind {cover} {os.path.realpath(place)}; "
        for place in ("/usr/sbin/ip", "/usr/bin/ip", "/sbin/ip", "/bin/ip", "/usr/local/sbin/ip", "/usr/local/bin/ip")
        if os.path.exists(place)
    )


def test_a_broken_link(tmp_path: Path) -> None:
    link = "us-east:eu-west=soon"
    done = commands.run(CLUSTER, "up", "--regions", "2", "--link", link, "--dir", str(tmp_path / "cluster"))
    assert "soon" in commands.sentence(done)
    assert not (tmp_path / "cluster").exists()


def test_a_command_where_no_cluster_runs(tmp_path: Path) -> None:
    done = commands.run(CLUSTER, "kill", "--dir", str(tmp_path), "us-east", "etcd")
    assert commands.sentence(done) == f"No dev cluster runs in {tmp_path}; start one with `make dev-up`."


# --- what only shows once programs run ------------------------------------------------------------------------------


def _tools() -> build.Toolbox:
    known = catalog.load()
    names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    missing = [name for name in names if not build.installed_at(known.owner(name), name).exists()]
    if missing:
        pytest.skip(f"not built yet: {', '.join(missing)} (make tools)")
    return build.ensure(known, names)


def _start(tmp_path: Path, etcd_port: int, api_port: int) -> RunningRegion:
    """Start one control plane on these ports; returns only if that fails, with everything stopped."""
    config = ClusterConfig(directory=tmp_path, level=Level.PLANES, regions=parse_regions("1"))
    (region,) = config.regions
    plane = Plane(
        region=region,
        folder=config.folder(region),
        logs=config.logs,
        bind="127.0.0.1",
        reach="127.0.0.1",
        advertise="127.0.0.1",
        api_port=api_port,
        etcd_port=etcd_port,
        etcd_peer_port=free_ports(1)[0],
    )
    running = RunningRegion(config, region, plane, _tools(), lambda command: command)
    config.logs.mkdir(parents=True)
    running.write_files(1)

    async def run() -> None:
        try:
            await running.start_plane()
        finally:
            await running.stop()

    asyncio.run(run())
    return running


@pytest.mark.parametrize("taken", ["etcd", "apiserver"])
def test_a_port_that_another_program_took(tmp_path: Path, taken: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port, (free,) = other.getsockname()[1], free_ports(1)
        ports = (port, free) if taken == "etcd" else (free, port)
        with pytest.raises(ClusterError, match=rf"us-east/{taken} ended with \d+: another program took its port; run"):
            _start(tmp_path, *ports)


def test_a_failure_in_one_region_ends_the_others_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ClusterConfig(directory=tmp_path, level=Level.PLANES, regions=parse_regions("2"))
    messages: list[dict[str, Any]] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = iter([free_ports(3), [other.getsockname()[1], *free_ports(2)]])
        monkeypatch.setattr(supervisor, "free_ports", lambda _count: next(ports))
        listeners = {region.name: forward.listener() for region in config.regions}
        started = time.monotonic()
        code = runner._supervise(config, _tools(), listeners, messages.append)
    assert code == 2
    assert "eu-west/etcd ended with 1: another program took its port" in messages[-1]["error"]
    assert time.monotonic() - started < 20  # not the minute and a half that the healthy region may take
    assert _processes_of(tmp_path) == []


def test_a_program_that_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = build.Toolbox(dict.fromkeys(_tools().paths, tmp_path / "gone"))
    monkeypatch.setattr(build, "ensure", lambda *_arguments: box)
    with pytest.raises(ToolError, match=r"us-east/etcd could not be started: .*No such file or directory"):
        _start(tmp_path, *free_ports(2))


def test_a_disk_that_fills_up_while_starting(tmp_path: Path) -> None:
    _tools()
    done = commands.run(
        CLUSTER,
        "up",
        "--level",
        "planes",
        "--regions",
        "1",
        "--dir",
        str(tmp_path / "small" / "cluster"),
        wrapper=commands.on_small_disk(tmp_path / "small", "size=1m"),
    )
    said = commands.sentence(done)
    assert said.startswith("us-east/etcd ended with ")
    assert "the disk is full; free 1 GB per region, or choose another folder with --dir" in said
    assert _processes_of(tmp_path) == []


def _processes_of(folder: Path) -> list[str]:
    """Command lines of processes that work in `folder`."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines
