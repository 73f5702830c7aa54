"""`syncgroup sidecar` with what cannot be meant: one sentence each, which says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync_runtime.contract import names
from syncgroup import cli
from tests.support.groups import free_port

GROUP = """
group = "{group}"

[[members]]
name = "trainer-0"
role = "Trainer"
region = "us"
listen = "127.0.0.1:{port}"
"""


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on standard error of a sidecar that does not start."""
    capsys.readouterr()
    assert cli.main(["sidecar", *words]) == 2
    return capsys.readouterr().err


def member(folder: Path, group: str = "demo", more: str = "") -> tuple[str, ...]:
    """Arguments for the trainer of a group in a folder."""
    config = folder / "group.toml"
    config.write_text(GROUP.format(group=group, port=free_port()) + more)
    return "--config", str(config), "--member", "trainer-0"


def certify(folder: Path, group: str) -> None:
    assert cli.main(["certs", "init", str(folder / "certs"), "--group", group, "--trainer", "trainer-0@us"]) == 0


def test_outside_of_a_pod_it_asks_for_its_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(names.ENV_GROUP, raising=False)
    assert "--config group.toml and --member NAME" in said(capsys)


def test_a_question_ends_as_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert said(capsys, *member(tmp_path, more="rely = true\n")).endswith("did you mean relay?\n")


def test_certificates_of_another_group_are_told_with_where_the_names_stand(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    certify(tmp_path, "other")
    assert "(`certs init --group` must name the group of group.toml)." in said(capsys, *member(tmp_path))


def test_a_folder_too_deep_for_a_socket_is_told_with_the_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    certify(deep, "demo")
    found = said(capsys, *member(deep))
    assert "longer than the 107 bytes" in found
    assert "`state` in group.toml" in found
