"""Environments of engines: which there are, where they lie, and what is said when they cannot be made."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tools.engines import __main__ as command
from tools.engines import environments, testing
from tools.errors import BuildError, HostError


def test_vllm_is_pinned_at_the_release_that_the_plug_in_needs() -> None:
    assert "vllm" in environments.names()
    assert "\nvllm==0.32" in "\n" + environments.pins_of("vllm").read_text(encoding="utf-8")


def test_an_engine_that_is_not_pinned_is_named_beside_those_that_are() -> None:
    with pytest.raises(BuildError, match=r"'nothing'.*vllm"):
        environments.pins_of("nothing")


def test_other_pins_are_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "PINS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pins = tmp_path / "engine-toy.txt"
    pins.write_text("a==1\n")
    first = environments.home_of("toy")
    pins.write_text("a==2\n")
    assert environments.home_of("toy") != first
    assert first.is_relative_to(tmp_path / "cache")


def test_a_full_disk_is_said_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "PINS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "NEEDED_BYTES", 1 << 60)
    (tmp_path / "engine-toy.txt").write_text("a==1\n")
    with pytest.raises(HostError, match="GiB"):
        environments.ensure("toy")


def test_tests_that_a_wheel_brings_do_not_hide_ours(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("tests", "verl"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    environments._uncover_tests(tmp_path)
    assert [path.name for path in packages.iterdir()] == ["verl"]


class Call(NamedTuple):
    """What a command line asks for."""

    words: list[str]
    names: list[str]
    rest: list[str]


CALLS = {
    "options": Call(["test", "vllm", "-k", "tied"], ["vllm"], ["-k", "tied"]),
    "after dashes": Call(["test", "vllm", "--", "-x"], ["vllm"], ["-x"]),
    "all engines": Call(["test", "-x"], environments.names(), ["-x"]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_follows_a_dash_goes_to_pytest(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[str]]] = []

    def noted(name: str, rest: list[str]) -> int:
        seen.append((name, rest))
        return 0

    monkeypatch.setattr(testing, "test", noted)
    assert command.main(call.words) == 0
    assert seen == [(name, call.rest) for name in call.names]


def test_the_worst_of_several_engines_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "test", lambda name, _: {"a": 0, "b": 1}[name])
    assert command.main(["test", "a", "b"]) == 1
