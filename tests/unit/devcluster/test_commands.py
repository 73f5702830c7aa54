"""The command line: one sentence and exit code 2 for what a person can mend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tools.devcluster import __main__ as commands
from tools.devcluster import client, hostcheck
from tools.devcluster.client import CONFIG_FILE, Cluster
from tools.devcluster.config import ClusterConfig, Level, parse_regions
from tools.kube.build import Toolbox


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that says it holds a cluster of two regions."""
    config = ClusterConfig(directory=tmp_path, level=Level.PLANES, regions=parse_regions("2"))
    (tmp_path / CONFIG_FILE).write_text(config.to_json())
    monkeypatch.setattr(Cluster, "tools", Toolbox({"kubectl": Path("/box/kubectl")}))
    monkeypatch.setenv("KUBECONFIG", "untouched")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    return tmp_path


def _error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["exec", "mars", "true"], "no region 'mars' here; the regions are us-east, eu-west"),
        (["kubeconfig", "mars"], "no region 'mars' here"),
        (["exec", "us-east", "no-such-command"], "There is no command 'no-such-command' on this machine"),
        (["kill", "us-east", "etcd"], "No dev cluster runs in"),
        (["status"], "No dev cluster runs in"),
        (["kubeconfig", "us-east"], "answered: No such file or directory"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_sentence(
    attached: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert commands.main([arguments[0], "--dir", str(attached), *arguments[1:]]) == 2
    assert sentence in _error(capsys)


@pytest.mark.parametrize("command", [["status"], ["down"], ["kill", "us-east", "etcd"], ["cut", "us-east"], ["links"]])
def test_where_no_cluster_runs_each_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert commands.main([command[0], "--dir", str(tmp_path), *command[1:]]) == 2
    assert _error(capsys) == f"error: No dev cluster runs in {tmp_path}; start one with `make dev-up`.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--regions", "99"], "1 to 32 regions"),
        (["--regions", "a,a"], "Region names must differ"),
        (["--link", "x"], "is not a link: write REGION:REGION="),
        (["--link", "us-east:mars=1ms"], "names 'mars', which is not a region here"),
        (["--level", "planes", "--link", "*:*=1ms"], "levels nodes and limits only"),
        (["--kwok-nodes", "-3"], "0 or more kwok nodes per region"),
        (["--level", "planes", "--image", "/nowhere/a.tar"], "The image archive /nowhere/a.tar cannot be read"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert commands.main(["up", "--dir", str(tmp_path / "new"), *arguments]) == 2
    assert sentence in _error(capsys)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        (["kubectl", "exec", "pod", "--", "ls"], ["kubectl", "exec", "pod", "--", "ls"]),
        (["--", "kubectl", "exec", "pod", "--", "ls"], ["kubectl", "exec", "pod", "--", "ls"]),
        ([], ["sh"]),
        (["--"], ["sh"]),
    ],
)
def test_a_command_is_run_as_it_was_typed(
    attached: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], run: list[str]
) -> None:
    seen: list[Any] = []

    def become(program: str, line: list[str]) -> NoReturn:
        seen.append((program, line, os.environ["KUBECONFIG"], os.environ["PATH"].split(":")[0]))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execvp", become)
    with pytest.raises(SystemExit):
        commands.main(["exec", "--dir", str(attached), "us-east", *typed])
    assert seen == [(run[0], run, str(attached / "us-east" / "kubeconfig"), "/box")]


def test_the_refusal_of_the_system_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostcheck, "why_impossible", lambda _level: None)
    (tmp_path / "file").touch()
    assert commands.main(["up", "--level", "planes", "--dir", str(tmp_path / "file" / "cluster")]) == 2
    assert "A file stands where a folder should be" in _error(capsys)


def test_an_interruption_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_arguments: object, **_options: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "start", interrupt)
    assert commands.main(["up", "--dir", str(tmp_path)]) == 130
    assert "what was started has been ended" in _error(capsys)


@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        ([], 0, ["planes: possible", "nodes is off.", "limits is off."]),
        (["--level", "planes"], 0, ["planes: possible"]),
        (["--level", "nodes"], 1, ["nodes is off."]),
    ],
)
def test_the_check_names_every_level_and_fails_for_one_that_was_asked_for(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    lines: list[str],
) -> None:
    monkeypatch.setattr(
        hostcheck, "why_impossible", lambda level: None if level is Level.PLANES else f"{level.value} is off."
    )
    assert commands.main(["check", *arguments]) == code
    assert capsys.readouterr().out.splitlines() == lines
