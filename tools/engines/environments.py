"""Makes an engine's environment, once, and knows where it is. What was pinned before is removed: torch is large."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tools.bootstrap import NO_NETWORK, uv
from tools.cache import cache_root, exclusive, platform_tag, replacing
from tools.errors import BuildError, HostError

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "requirements"
NEEDED_BYTES = 12 << 30
"""Free room before an engine is installed: its packages, twice where the installer's cache is on another disk."""
_PREFIX = "engine-"


def names() -> list[str]:
    """Engines that are pinned."""
    return sorted(path.stem.removeprefix(_PREFIX) for path in PINS.glob(f"{_PREFIX}*.txt"))


def pins_of(name: str) -> Path:
    """The pinned packages of an engine; raises BuildError where there is no such engine."""
    path = PINS / f"{_PREFIX}{name}.txt"
    if not path.exists():
        raise BuildError(f"there is no engine {name!r}; there are: {', '.join(names())}")
    return path


def home_of(name: str) -> Path:
    """Where an engine's environment is, or will be."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    tag = hashlib.sha256(pins_of(name).read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache_root() / "engines" / f"{platform_tag()}-{version}" / f"{name}-{tag}"


def ensure(name: str) -> Path:
    """The Python of an engine's environment, which is made where it is missing."""
    home = home_of(name)
    with exclusive(home.parent / f"{name}.lock"):
        if not home.exists():
            _forget_older(home, name)
            _check_room(home.parent)
            sys.stderr.write(f"  installing the packages of requirements/{_PREFIX}{name}.txt (minutes, gigabytes)\n")
            with replacing(home) as staged:
                _run([uv(), "venv", "--quiet", "--relocatable", "--python", sys.executable, str(staged)])
                python = ["--python", str(staged / "bin" / "python")]
                _run([uv(), "pip", "sync", "--quiet", "--require-hashes", *python, str(pins_of(name))])
                _uncover_tests(staged)
    return home / "bin" / "python"


def lock(name: str) -> None:
    """Writes the pins anew from `engine-NAME.in`, less `engine-NAME.excludes`, and with `engine-NAME.overrides`."""
    wanted = PINS / f"{_PREFIX}{name}.in"
    if not wanted.exists():
        raise BuildError(f"requirements/{wanted.name} is missing: it says what the engine's tests need")
    command = [uv(), "pip", "compile", "--quiet", "--generate-hashes", "--universal", "--python-version", "3.11"]
    command += ["--no-emit-index-url", "--no-header", "--extra", "sidecar"]
    for option in ("excludes", "overrides"):
        told = wanted.with_suffix(f".{option}")
        if told.exists():
            command += [f"--{option}", str(told.relative_to(ROOT))]
    _run([*command, str(wanted.relative_to(ROOT)), "pyproject.toml", "-o", f"requirements/{_PREFIX}{name}.txt"])


def _uncover_tests(home: Path) -> None:
    """Some wheels bring a package `tests` of their own, as verl's does: it would hide this project's."""
    for foreign in home.glob("lib/python*/site-packages/tests"):
        shutil.rmtree(foreign)


def _forget_older(home: Path, name: str) -> None:
    for older in home.parent.glob(f"{name}-*"):
        shutil.rmtree(older, ignore_errors=True)


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise HostError(
            f"an engine needs {NEEDED_BYTES >> 30} GiB of free disk for its packages, here are {free >> 30}."
        )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip() or done.stdout.strip() or "no reason was given"
        if any(mark in words for mark in NO_NETWORK):
            raise BuildError("PyPI cannot be reached; connect this machine, then run the command again.")
        raise BuildError("an engine's packages are missing: " + " / ".join(words.splitlines()[-4:]))
