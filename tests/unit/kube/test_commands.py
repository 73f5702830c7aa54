"""The builder's command line: one sentence for what a person can mend."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from tools.errors import BuildError
from tools.kube import __main__ as commands
from tools.kube import build, lock


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (BuildError("Buy a compiler."), 2, "error: Buy a compiler.\n"),
        (OSError(errno.ENOSPC, "x", "/c"), 2, "error: The disk is full (/c); free some room, then run the same "),
        (KeyboardInterrupt(), 130, "error: interrupted; run the same command again, it goes on where it stopped.\n"),
    ],
)
def test_what_stops_a_build_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    def fail(*_arguments: object) -> NoReturn:
        raise error

    monkeypatch.setattr(build, "ensure", fail)
    assert commands.main(["build", "planes"]) == code
    said = capsys.readouterr().err
    assert said.startswith(sentence)
    assert said.count("\n") == 1


def test_without_names_the_control_planes_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(build, "ensure", lambda _catalog, *rest: asked.append(rest))
    assert commands.main(["build"]) == 0
    assert commands.main(["build", "--kube", "1.36", "kwok"]) == 0
    assert asked == [(["planes"], "default"), (["kwok"], "1.36")]


def test_the_list_names_every_program_and_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    monkeypatch.setattr(build, "have_seccomp", lambda: False)
    assert commands.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[0] == "etcd" for line in lines)
    assert all(line.endswith("not built") for line in lines)


def test_the_check_fails_where_a_file_fell_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["check"]) == 0
    monkeypatch.setattr(lock, "check", lambda _catalog: ["etcd: fell behind"])
    assert commands.main(["check"]) == 1
    assert capsys.readouterr().err == "error: etcd: fell behind\n"


def test_only_families_that_fell_behind_are_locked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    locked: list[str] = []
    monkeypatch.setattr(lock, "relock", lambda _catalog, family: locked.append(family.name))
    monkeypatch.setattr(lock, "problems", lambda family: iter(["behind"] if family.name in ("cni", "bubble") else []))
    assert commands.main(["lock"]) == 0
    assert locked == ["cni"]
    assert commands.main(["lock", "etcd"]) == 0
    assert locked == ["cni", "etcd"]
