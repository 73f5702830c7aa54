"""Azurite is pinned by hashes, from whatever registry npm is told of, and says what is missing."""

from __future__ import annotations

import json

import pytest

from tools import azurite
from tools.azurite.__main__ import main


def test_every_package_is_pinned_by_its_hash_and_by_no_host() -> None:
    lock = json.loads((azurite.HERE / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages["node_modules/azurite"]["version"] == azurite.version()
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not any("resolved" in entry for entry in packages.values())


def test_a_machine_without_node_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main() == 2
    assert "install Node.js 20 or later" in capsys.readouterr().err
