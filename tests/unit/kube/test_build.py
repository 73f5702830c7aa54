"""The builder: only what is missing, nothing half-built, one builder at a time."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tools.errors import BuildError
from tools.kube import build
from tools.kube.catalog import Catalog

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (["x.go:1: write /a: no space left on device"], "the disk is full; free 6 GB"),
        (
            ['Get "https://p": dial tcp 127.0.0.1:9: connect: connection refused'],
            "the Go module proxy cannot be reached",
        ),
        (["lookup p: no such host"], "the Go module proxy cannot be reached"),
        (["a@v1: module lookup disabled by GOPROXY=off"], "the Go module proxy cannot be reached"),
        (["reading https://p/@v/v1.zip: 403 Forbidden"], "refuses this version; pin an older one in tools.toml"),
        (["x.go:1: package time is not in std (/go/src/time)"], "where the disk is full; free 6 GB"),
        (["k8s.io/x: compile: signal: killed"], "ran out of memory; 3 GB must be free"),
        (["fork/exec compile: cannot allocate memory"], "ran out of memory; 3 GB must be free"),
    ],
)
def test_a_known_failure_becomes_a_sentence_with_a_remedy(log: list[str], words: str) -> None:
    sentence = build.explain("etcd", log, Path("/cache"))
    assert sentence.startswith("etcd could not be built: ")
    assert words in sentence


def test_an_unknown_failure_shows_the_compilers_last_words_on_one_line() -> None:
    log = ["go: downloading a v1", "one", "", "two", "go: downloading b v1", "three", "four", "five"]
    assert build.explain("etcd", log, Path("/cache")) == "etcd could not be built: two / three / four / five"


@pytest.mark.timeout(60)
def test_a_missing_program_is_built_by_the_real_compiler_and_runs(tiny: Catalog, cache: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no go on the PATH; the pretending one covers the rest")
    box = build.ensure(tiny, ["hello"])
    done = subprocess.run([box["hello"]], capture_output=True, text=True, check=True)
    assert done.stderr == "hello\n"
    assert Path(box["hello"]).is_relative_to(cache)
    assert sorted(path.name for path in Path(box["hello"]).parent.iterdir()) == ["hello"]


@pytest.mark.timeout(60)
def test_a_program_that_does_not_compile_leaves_nothing_behind(tiny: Catalog, cache: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no go on the PATH; the pretending one covers the rest")
    (tiny.family("tiny").folder / "hello" / "main.go").write_text("package main\n\nfunc main() { nonsense }\n")
    with pytest.raises(BuildError, match=r"hello could not be built: .*undefined: nonsense"):
        build.ensure(tiny, ["hello"])
    assert [path for path in cache.rglob("*") if path.is_file() and path.name != ".tiny.lock"] == []


def test_what_is_there_is_not_built_again(tiny: Catalog, cache: Path, pretending_go: Path) -> None:
    build.ensure(tiny, ["hello"])
    build.ensure(tiny, ["hello", "bye"])
    build.ensure(tiny, ["bye"])
    built = [line.split()[-1] for line in pretending_go.read_text().splitlines()]
    assert built == ["./hello", "./bye"]
    assert [path.read_text() for path in sorted(cache.rglob("hello")) if path.is_file()] == ["whole"]


def test_a_changed_source_is_built_beside_the_old_program(tiny: Catalog, cache: Path, pretending_go: Path) -> None:
    old = build.ensure(tiny, ["hello"])["hello"]
    (tiny.family("tiny").folder / "hello" / "more.go").write_text("package main\n")
    new = build.ensure(tiny, ["hello"])["hello"]
    assert old != new
    assert Path(old).exists()
    assert len(pretending_go.read_text().splitlines()) == 2


@pytest.mark.usefixtures("cache", "pretending_go")
def test_nothing_is_asked_of_go_when_nothing_is_missing(tiny: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    build.ensure(tiny, ["hello"])
    monkeypatch.setenv("PATH", "")
    assert Path(build.ensure(tiny, ["hello"])["hello"]).exists()


@pytest.mark.usefixtures("cache", "pretending_go")
def test_a_program_that_needs_c_says_so_where_there_is_no_compiler(
    tiny: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = dataclasses.replace(tiny.family("tiny"), cgo=True)
    with_c = dataclasses.replace(tiny, families=(family,))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(build, "compiler", lambda: None)
    with pytest.raises(BuildError, match="hello needs a C compiler and there is none; install gcc or clang"):
        build.ensure(with_c, ["hello"])
    assert not build.installed_at(family, "hello").exists()


def test_the_compiler_is_what_cc_names_or_a_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("clang", "mycc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert build.compiler() == str(tmp_path / "clang")
    monkeypatch.setenv("CC", "mycc")
    assert build.compiler() == str(tmp_path / "mycc")
    monkeypatch.setenv("CC", "absent")
    assert build.compiler() is None


@pytest.mark.usefixtures("cache")
def test_seccomp_gets_a_folder_of_its_own_and_once_built_needs_no_headers(
    tiny: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = dataclasses.replace(tiny.family("tiny"), seccomp_tags=("seccomp",))
    monkeypatch.setattr(build, "have_seccomp", lambda: False)
    plain = build.installed_at(family, "hello")
    monkeypatch.setattr(build, "have_seccomp", lambda: True)
    fuller = build.installed_at(family, "hello")
    assert fuller.parent.name == plain.parent.name + "-seccomp"
    fuller.parent.mkdir(parents=True)
    fuller.touch()
    monkeypatch.setattr(build, "have_seccomp", lambda: False)
    assert build.installed_at(family, "hello") == fuller


BUILDER = """
import sys
from pathlib import Path
from tools.kube import build, catalog
from tools.kube.catalog import Catalog, Family
catalog.HERE = Path(sys.argv[1])
family = Family(name="tiny", module="syncgroup.dev/tools/tiny", version="v0.0.0",
                binaries={"hello": "hello", "bye": "bye"}, local=True, aliases=("default",))
build.ensure(Catalog(go_minimum="1.20", go_wheel="x", families=(family,)), ["hello"])
"""


def _builder(tiny: Catalog) -> subprocess.Popen[bytes]:
    here = tiny.family("tiny").folder.parents[1]
    command = [sys.executable, "-c", textwrap.dedent(BUILDER), str(here)]
    return subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, stderr=subprocess.DEVNULL)


@pytest.mark.timeout(20)
def test_what_a_killed_builder_left_is_not_believed_and_goes_away(
    tiny: Catalog, cache: Path, pretending_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO_THEN", "sleep 30")
    builder = _builder(tiny)
    while not any(path.is_file() for path in cache.rglob(".tmp-*/hello")):
        assert builder.poll() is None
        time.sleep(0.02)
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait()
    target = build.installed_at(tiny.family("tiny"), "hello")
    assert not target.exists()
    monkeypatch.setenv("GO_THEN", "true")
    assert Path(build.ensure(tiny, ["hello"])["hello"]).read_text() == "whole"
    assert [path.name for path in target.parent.iterdir()] == ["hello"]
    assert len(pretending_go.read_text().splitlines()) == 2


@pytest.mark.timeout(20)
def test_two_builders_at_once_build_once(
    tiny: Catalog, cache: Path, pretending_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO_THEN", "sleep 0.5")
    builders = [_builder(tiny), _builder(tiny)]
    assert [builder.wait(15) for builder in builders] == [0, 0]
    assert len(pretending_go.read_text().splitlines()) == 1
    assert [path.read_text() for path in cache.rglob("hello")] == ["whole"]


@pytest.mark.usefixtures("cache", "pretending_go")
def test_a_box_finds_programs_by_name_and_folder(tiny: Catalog) -> None:
    box = build.ensure(tiny, ["hello", "bye"])
    assert box.folder("hello") == str(Path(box["hello"]).parent)
    assert box.search_path() == box.folder("hello")
