"""Building where a compiler, room, a network or Go itself is missing: one sentence, and nothing half-built is left."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.component.hostile_host import commands
from tests.component.hostile_host.commands import BUILDER

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache for one test."""
    return tmp_path / "cache"


@pytest.fixture
def go_cache() -> str:
    """Go's own build cache: without it every test would compile Go's runtime."""
    if shutil.which("go") is None:
        pytest.skip("there is no go on the PATH")
    return subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()


def test_a_missing_compiler(tmp_path: Path, cache: Path) -> None:
    done = commands.run(
        BUILDER,
        "build",
        "runc",
        environment={
            "PATH": commands.folder_of_programs(tmp_path / "bin", "go"),
            "XDG_CACHE_HOME": str(cache),
            "CC": None,
        },
    )
    assert commands.sentence(done) == "runc needs a C compiler and there is none; install gcc or clang."
    assert commands.files_below(cache / "syncgroup" / "tools") == []


@pytest.mark.parametrize("options", ["size=200k", "size=4k,nr_inodes=3"])
def test_no_room_for_the_program(cache: Path, go_cache: str, options: str) -> None:
    done = commands.run(
        BUILDER,
        "build",
        "pause",
        environment={"XDG_CACHE_HOME": str(cache), "GOCACHE": go_cache},
        wrapper=commands.on_small_disk(cache, options),
    )
    assert "the disk is full" in commands.sentence(done).lower()
    assert "free" in commands.sentence(done)


def test_no_room_leaves_nothing_that_is_believed(cache: Path, go_cache: str) -> None:
    small = f"mount -t tmpfs -o size=200k small {cache}"
    script = f'{small} && "$@"; "$@"; code=$?; find {cache} -type f ! -name \'.*.lock\'; exit $code'
    commands.need_namespaces()
    cache.mkdir()
    done = commands.run(
        BUILDER,
        "build",
        "pause",
        environment={"XDG_CACHE_HOME": str(cache), "GOCACHE": go_cache},
        wrapper=[*commands.NAMESPACE, "sh", "-c", script, "sh"],
    )
    assert done.returncode == 2  # the second attempt did not take the first one's remains for a program
    assert done.stderr.count("the disk is full") == 2
    assert done.stdout == ""


@pytest.mark.parametrize(("variable", "size"), [("GOCACHE", "100k"), ("GOTMPDIR", "200k")])
def test_no_room_for_the_compiler(tmp_path: Path, cache: Path, go_cache: str, variable: str, size: str) -> None:
    small = tmp_path / "small"
    done = commands.run(
        BUILDER,
        "build",
        "pause",
        environment={"XDG_CACHE_HOME": str(cache), "GOCACHE": go_cache, variable: str(small)},
        wrapper=commands.on_small_disk(small, f"size={size}"),
    )
    assert re.match(r"pause could not be built: .*the disk is full; free 6 GB", commands.sentence(done))
    assert commands.files_below(cache / "syncgroup" / "tools") == []


def test_neither_go_nor_a_network(tmp_path: Path, cache: Path) -> None:
    done = commands.run(
        BUILDER,
        "build",
        "pause",
        environment={
            "PATH": "/nowhere",
            "XDG_CACHE_HOME": str(cache),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": None,
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(tmp_path / "uv"),
        },
    )
    said = commands.sentence(done)
    assert said.startswith("There is no Go on this machine")
    assert "install Go 1.26 or newer" in said
    assert commands.files_below(cache / "syncgroup") == []


def _closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("proxy", ["off", "http://127.0.0.1:{port}"])
def test_a_module_proxy_that_cannot_be_reached(tmp_path: Path, cache: Path, go_cache: str, proxy: str) -> None:
    done = commands.run(
        BUILDER,
        "build",
        "etcd",
        environment={
            "XDG_CACHE_HOME": str(cache),
            "GOCACHE": go_cache,
            "GOMODCACHE": str(tmp_path / "modules"),
            "GOPROXY": proxy.format(port=_closed_port()),
            "GOFLAGS": "-modcacherw",
        },
    )
    said = commands.sentence(done)
    assert said.startswith("etcd could not be built: the Go module proxy cannot be reached")
    assert "connect this machine or set GOPROXY" in said
    assert commands.files_below(cache / "syncgroup" / "tools") == []


def test_a_cache_that_cannot_be_written() -> None:
    done = commands.run(BUILDER, "build", "pause", environment={"XDG_CACHE_HOME": "/sys/nothing-grows-here"})
    assert commands.sentence(done).startswith("Permission was denied (/sys/nothing-grows-here")


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = commands.run(BUILDER, "build", "pause", environment={"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert commands.sentence(done).startswith("A file stands where a folder should be")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "planes", "--kube", "9.99"], "Kubernetes 9.99 is not in tools/kube/tools.toml; known are"),
        (["build", "kube-magic"], "No family in tools/kube/tools.toml builds 'kube-magic'"),
        (["lock", "nope"], "No family called 'nope'"),
    ],
)
def test_unknown_names(arguments: list[str], words: str) -> None:
    assert commands.sentence(commands.run(BUILDER, *arguments)).startswith(words)


def test_an_old_go_and_no_way_to_a_new_one(tmp_path: Path, cache: Path) -> None:
    old = tmp_path / "old" / "go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho go version go1.21.0 linux/any\n")
    old.chmod(0o755)
    done = commands.run(
        BUILDER,
        "build",
        "pause",
        environment={
            "PATH": f"{old.parent}",
            "XDG_CACHE_HOME": str(cache),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": None,
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(tmp_path / "uv"),
        },
    )
    assert "install Go 1.26 or newer" in commands.sentence(done)


def test_a_modules_list_that_was_tampered_with_is_found_by_the_check(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(commands.REPOSITORY / "tools", copy / "tools")
    path = copy / "tools" / "kube" / "modules" / "etcd" / "go.mod"
    path.write_text(path.read_text().replace("v3.7.3", "v3.7.2"))
    done = subprocess.run(
        [sys.executable, "-m", BUILDER, "check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
    )
    assert commands.sentence(done, code=1).startswith("etcd: go.mod does not require go.etcd.io/etcd/server/v3 v3.7.3")
