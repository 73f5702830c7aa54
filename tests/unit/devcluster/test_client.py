"""The handle on a cluster: what happens when a cluster does not start, or is already gone."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.children import child, line_of
from tools.devcluster import client, folder, hostcheck
from tools.devcluster.client import CONFIG_FILE, Cluster
from tools.devcluster.config import ClusterConfig, Level, parse_regions
from tools.errors import ClusterError, ToolError
from tools.kube.build import Toolbox

pytestmark = pytest.mark.timeout(15)  # each starts processes

REPORTS = {
    "ready": """print('{"progress": "half"}\\n{"ready": 1, "seconds": 1.5}', file=out, flush=True); time.sleep(60)""",
    "error": """print('{"error": "Buy a bigger machine."}', file=out, flush=True)""",
    "silent end": "raise SystemExit(1)",
    "hangs": "time.sleep(60)",
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    """A cluster that needs no programs."""
    monkeypatch.setattr(Cluster, "tools", Toolbox({}))
    monkeypatch.setattr(hostcheck, "why_impossible", lambda _level: None)
    return ClusterConfig(directory=tmp_path / "cluster", level=Level.PLANES, regions=parse_regions("2"))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program of one line in the runner's place."""

    def choose(kind: str) -> None:
        real = subprocess.Popen

        def popen(command: list[str], **options: object) -> subprocess.Popen[str]:
            code = f"import sys, time; sys.stdin.read(); out = open(int(sys.argv[1]), 'w'); {REPORTS[kind]}"
            return real([sys.executable, "-c", code, command[3], command[2], command[4]], **options)  # type: ignore

        monkeypatch.setattr(subprocess, "Popen", popen)

    return choose


def _stopped(cluster: Cluster) -> None:
    assert cluster.process is not None
    cluster.process.kill()
    cluster.process.wait()


def test_progress_is_told_until_the_cluster_is_ready(config: ClusterConfig, runs: Callable[[str], None]) -> None:
    runs("ready")
    said: list[str] = []
    cluster = client.start(config, say=said.append)
    assert said == ["half", "ready after 1.5 s"]
    assert cluster.process is not None
    assert folder.runner_pid(config.directory) == cluster.process.pid
    with pytest.raises(ClusterError, match="already holds a dev cluster"):
        client.start(config)
    _stopped(cluster)


def test_what_the_runner_says_went_wrong_is_the_error(config: ClusterConfig, runs: Callable[[str], None]) -> None:
    runs("error")
    with pytest.raises(ClusterError, match=r"^Buy a bigger machine\.$"):
        client.start(config)
    assert sorted(path.name for path in config.directory.iterdir()) == ["lock", "logs"]
    folder.claim(config.directory).close()


def test_a_runner_that_ends_without_a_word_points_to_the_logs(
    config: ClusterConfig, runs: Callable[[str], None]
) -> None:
    runs("silent end")
    with pytest.raises(ClusterError, match=f"did not come up; its logs are in {config.logs}"):
        client.start(config)


def test_a_start_that_takes_too_long_is_given_up(
    config: ClusterConfig, runs: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs("hangs")
    monkeypatch.setattr(client, "START_TIMEOUT_S", 0.0)
    with pytest.raises(ClusterError, match="did not come up"):
        client.start(config)
    assert folder.runner_pid(config.directory) is None
    folder.claim(config.directory).close()


def test_a_start_may_take_longer_the_more_nodes_have_to_import(config: ClusterConfig, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    with archive.open("wb") as file:
        file.truncate(2_000_000_000)
    assert client.start_timeout_s(config) == client.START_TIMEOUT_S
    assert client.start_timeout_s(config.with_images((str(archive),))) == client.START_TIMEOUT_S + 2 * 200


def test_a_person_who_interrupts_leaves_nothing_running(config: ClusterConfig, runs: Callable[[str], None]) -> None:
    runs("ready")
    started: list[int] = []

    def interrupt(_text: str) -> None:
        started.append(int((config.directory / folder.PID).read_text()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.start(config, say=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)
    folder.claim(config.directory).close()


def test_an_impossible_level_is_refused_before_anything_is_touched(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostcheck, "why_impossible", lambda _level: "No namespaces here.")
    with pytest.raises(ClusterError, match=r"^No namespaces here\.$"):
        client.start(config)
    assert not config.directory.exists()


@pytest.mark.parametrize("shape", ["", "fast", "100ms/quick", "100ms/500M/300%", "-5ms"])
def test_a_broken_shape_is_refused_before_anything_is_touched(config: ClusterConfig, shape: str) -> None:
    broken = dataclasses.replace(config, level=Level.NODES, links=(("us-east", "eu-west", shape),))
    with pytest.raises(ToolError):
        client.start(broken)
    assert not config.directory.exists()


def test_an_image_that_is_not_there_is_refused_before_anything_is_touched(config: ClusterConfig) -> None:
    broken = dataclasses.replace(config, images=("/nowhere/image.tar",))
    with pytest.raises(ClusterError, match=r"/nowhere/image\.tar cannot be read"):
        client.start(broken)
    assert not config.directory.exists()


def test_a_cluster_that_was_killed_is_taken_down_without_its_help(config: ClusterConfig) -> None:
    (config.directory / "us-east" / "etcd").mkdir(parents=True)
    (config.directory / "logs").mkdir()
    (config.directory / CONFIG_FILE).write_text(config.to_json())
    (config.directory / folder.PID).write_text("99999999")
    Cluster.attach(config.directory).down()
    assert [path.name for path in config.directory.iterdir()] == ["logs"]


def test_a_cluster_that_does_not_listen_yet_is_asked_by_signal(config: ClusterConfig) -> None:
    config.directory.mkdir()
    (config.directory / CONFIG_FILE).write_text(config.to_json())
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, "tools.devcluster.runner", str(config.directory)]
    with child(command) as process:
        assert line_of(process) == "up\n"
        (config.directory / folder.PID).write_text(str(process.pid))
        Cluster.attach(config.directory).down()
        assert process.wait(10) == 0


def test_one_that_does_not_end_in_time_is_named(config: ClusterConfig) -> None:
    config.directory.mkdir()
    (config.directory / CONFIG_FILE).write_text(config.to_json())
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, "tools.devcluster.runner", str(config.directory)]
    with child(command) as process:
        assert line_of(process) == "up\n"
        (config.directory / folder.PID).write_text(str(process.pid))
        with pytest.raises(ClusterError, match=rf"\(process {process.pid}\) did not end within 0 s"):
            Cluster.attach(config.directory).down(timeout_s=0.2)


def test_a_folder_without_a_cluster_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=f"No dev cluster runs in {tmp_path}; start one with `make dev-up`"):
        Cluster.attach(tmp_path)


def test_attaching_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ClusterConfig(directory=tmp_path, level=Level.NODES, regions=parse_regions("1"))
    (tmp_path / CONFIG_FILE).write_text(config.to_json())
    monkeypatch.setattr("tools.kube.build.ensure", lambda *_arguments: pytest.fail("a build was asked for"))
    assert Cluster.attach(tmp_path).config == config


def test_a_command_in_a_bubble_that_has_ended_is_a_sentence(tmp_path: Path) -> None:
    config = ClusterConfig(directory=tmp_path, level=Level.NODES, regions=parse_regions("1"))
    with pytest.raises(ClusterError, match=f"The bubble of {tmp_path} has ended"):
        Cluster(config).exec_command("us-east", ["true"])
