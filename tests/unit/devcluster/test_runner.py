"""The runner's decisions: what is needed, which error is told, which images are made."""

from __future__ import annotations

import asyncio
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.devcluster import forward, runner
from tools.devcluster.config import ClusterConfig, Level, parse_regions
from tools.devcluster.supervisor import Supervisor, free_ports, reporter
from tools.errors import BuildError, ClusterError, ToolError
from tools.kube.build import Toolbox


def _config(level: Level, kwok_nodes: int = 0) -> ClusterConfig:
    return ClusterConfig(directory=Path("/d"), level=level, regions=parse_regions("2"), kwok_nodes=kwok_nodes)


@pytest.mark.parametrize(
    ("level", "kwok_nodes", "sets"),
    [
        (Level.PLANES, 0, ["planes"]),
        (Level.PLANES, 3, ["planes", "kwok"]),
        (Level.NODES, 0, ["planes", "nodes"]),
        (Level.LIMITS, 1, ["planes", "kwok", "nodes"]),
    ],
)
def test_only_what_a_level_needs_is_built(level: Level, kwok_nodes: int, sets: list[str]) -> None:
    assert runner.needed_tools(_config(level, kwok_nodes)) == sets


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ClusterError("plain."), "plain."),
        (ExceptionGroup("g", [ExceptionGroup("h", [ClusterError("deep."), BuildError("second.")])]), "deep."),
        (ExceptionGroup("g", [OSError(28, "x", "/f"), ClusterError("known.")]), "known."),
        (ExceptionGroup("g", [OSError(28, "x", "/f")]), "The disk is full (/f); free some room"),
    ],
)
def test_a_failed_start_is_reported_as_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    async def fail(_self: Supervisor) -> None:
        raise error

    monkeypatch.setattr(Supervisor, "__init__", lambda *_arguments: None)
    monkeypatch.setattr(Supervisor, "run", fail)
    reports: list[dict[str, Any]] = []
    assert runner._supervise(_config(Level.PLANES), Toolbox({}), {}, reports.append) == 2
    assert reports[0]["error"].startswith(sentence)


def test_a_mistake_of_ours_is_not_dressed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: Supervisor) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Supervisor, "__init__", lambda *_arguments: None)
    monkeypatch.setattr(Supervisor, "run", fail)
    with pytest.raises(ZeroDivisionError):
        runner._supervise(_config(Level.PLANES), Toolbox({}), {}, lambda _message: None)


def test_the_images_every_node_has_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pause = tmp_path / "bubble-1" / "pause"
    pause.parent.mkdir()
    pause.write_bytes(b"program")
    config = runner._with_images(_config(Level.NODES), Toolbox({"pause": pause}))
    assert len(config.images) == 2
    for archive in config.images:
        with tarfile.open(archive) as layout:
            assert "oci-layout" in layout.getnames()
    written = [Path(archive).stat().st_mtime_ns for archive in config.images]
    again = runner._with_images(_config(Level.NODES), Toolbox({"pause": pause}))
    assert again.images == config.images
    assert [Path(archive).stat().st_mtime_ns for archive in again.images] == written


def test_reports_are_lines_of_json_and_a_reader_that_left_does_no_harm() -> None:
    read_end, write_end = os.pipe()
    report = reporter(write_end)
    report({"progress": "one"})
    assert json.loads(os.read(read_end, 100)) == {"progress": "one"}
    os.close(read_end)
    report({"progress": "two"})
    os.close(write_end)


def test_free_ports_differ_and_are_none_that_an_outgoing_connection_gets() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first_outgoing > 11000:
        assert max(ports) < first_outgoing


@pytest.mark.parametrize("component", ["kubelet", "containerd"])
def test_what_runs_on_a_node_cannot_be_restarted_without_it(tmp_path: Path, component: str) -> None:
    async def ask() -> None:
        supervisor = _supervisor(tmp_path)
        try:
            for name in ("node", component):
                supervisor.regions["us-east"].add(name, ["true"])
            await supervisor._handle({"op": "restart", "region": "us-east", "component": component})
        finally:
            for forwarder in supervisor._forwarders.values():
                forwarder.close()

    with pytest.raises(
        ClusterError, match=r"The node of us-east is down, and .* runs on it; restart the component node"
    ):
        asyncio.run(ask())


def _supervisor(tmp_path: Path) -> Supervisor:
    config = ClusterConfig(directory=tmp_path, level=Level.PLANES, regions=parse_regions("2"))
    listeners = {region.name: forward.listener() for region in config.regions}
    return Supervisor(config, Toolbox({}), listeners, lambda _message: None)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"op": "fly"}, "knows no operation 'fly'"),
        (
            {"op": "kill", "region": "mars", "component": "etcd"},
            "no region 'mars' here; the regions are us-east, eu-west",
        ),
        ({"op": "kill", "region": "us-east", "component": "gpu"}, "us-east has no component 'gpu'"),
        ({"op": "restart", "region": "us-east", "component": "gpu"}, "us-east has no component 'gpu'"),
        ({"op": "cut", "a": "mars"}, "no region 'mars' here"),
        ({"op": "cut", "a": "us-east", "b": "mars"}, "no region 'mars' here"),
        ({"op": "cut", "a": "us-east", "b": "eu-west"}, "levels nodes and limits only; `cut us-east` alone"),
        ({"op": "shape", "a": "us-east", "b": "eu-west", "shape": "1ms"}, "levels nodes and limits only"),
        ({"op": "links"}, "levels nodes and limits only"),
    ],
)
def test_an_operation_that_cannot_be_is_refused(tmp_path: Path, request_: dict[str, Any], sentence: str) -> None:
    async def ask() -> None:
        supervisor = _supervisor(tmp_path)
        try:
            await supervisor._handle(request_)
        finally:
            for forwarder in supervisor._forwarders.values():
                forwarder.close()

    with pytest.raises(ToolError, match=sentence):
        asyncio.run(ask())


def test_a_start_that_is_told_to_end_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []

    async def for_ever(_self: Supervisor) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("start")

    async def down(_self: Supervisor) -> None:
        ends.append("down")

    async def run() -> None:
        monkeypatch.setattr(Supervisor, "_up", for_ever)
        monkeypatch.setattr(Supervisor, "_down", down)
        supervisor = _supervisor(tmp_path)
        asyncio.get_running_loop().call_later(0.05, supervisor._ended.set)
        try:
            with pytest.raises(ClusterError, match="told to end before it was up"):
                await supervisor.run()
        finally:
            for forwarder in supervisor._forwarders.values():
                forwarder.close()

    asyncio.run(run())
    assert ends == ["start", "down"]


def test_an_open_connection_to_the_control_socket_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_self: Supervisor) -> None:
        return

    async def run() -> None:
        monkeypatch.setattr(Supervisor, "_up", nothing)
        supervisor = _supervisor(tmp_path)
        running = asyncio.create_task(supervisor.run())
        while not (tmp_path / "control.sock").exists():  # noqa: ASYNC110 - another task makes it
            await asyncio.sleep(0.01)
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"))
        writer.write(b'{"op": "status"}\n')
        supervisor._ended.set()
        await asyncio.wait_for(running, 10)
        writer.close()
        for forwarder in supervisor._forwarders.values():
            forwarder.close()

    asyncio.run(run())
