"""Debian's packages without installing them: which belong together, fetched by the caller's own apt, unpacked.

Needs apt and dpkg, and no root. Where they come from is in the machine's own configuration; nothing here knows it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.errors import HostError

_PLANNED = re.compile(r"^Inst (\S+) .*?\((\S+) ")


class Package(NamedTuple):
    """One package in one version."""

    name: str
    version: str


def why_impossible() -> str | None:
    """One sentence that names what is missing, or None."""
    for program in ("apt-get", "dpkg-deb", "tar"):
        if shutil.which(program) is None:
            return f"the program `{program}` is missing; this needs a Debian, or a system made from it."
    return None


class Archive:
    """The package archive that this machine's apt is configured for.

    `folder` is ours to write in: package lists go there where the machine has none of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options: list[str] | None = None

    def closure(self, names: Sequence[str]) -> list[Package]:
        """What an empty system would install with these packages, in versions of today, without recommendations."""
        self._folder.mkdir(parents=True, exist_ok=True)
        nothing = self._folder / "status-of-an-empty-system"
        nothing.touch()
        options = ["-o", f"Dir::State::status={nothing}", "-o", "APT::Install-Recommends=false"]
        text = self._apt([*options, "-o", "Debug::NoLocking=1", "--simulate", "install", *names])
        matches = (_PLANNED.match(line) for line in text.splitlines())
        return sorted(Package(match[1], match[2]) for match in matches if match is not None)

    def download(self, names: Iterable[str], folder: Path) -> list[Path]:
        """The packages as files."""
        folder.mkdir(parents=True, exist_ok=True)
        self._apt(["download", *names], folder)
        return sorted(folder.glob("*.deb"))

    def try_download(self, name: str, folder: Path) -> None:
        """A package that this release of Debian may not have."""
        _run(["apt-get", *(self._options or ()), "download", name], folder)

    def _apt(self, arguments: list[str], folder: Path | None = None) -> str:
        if self._options is None:
            done = _run(["apt-get", *arguments], folder)
            if done.returncode == 0:
                return done.stdout
            self._options = self._own_lists()
        done = _run(["apt-get", *self._options, *arguments], folder)
        if done.returncode != 0:
            raise HostError(f"Debian's packages could not be fetched ({_reason(done)}); mend apt, then try again.")
        return done.stdout

    def _own_lists(self) -> list[str]:
        """The machine's package lists may be missing or old: fetch them into our folder, which needs no root."""
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        options = ["-o", f"Dir::State={self._folder}/state", "-o", f"Dir::Cache={self._folder}/cache"]
        options += ["-o", "Dir::State::status=/var/lib/dpkg/status"]
        done = _run(["apt-get", *options, "update"], None)
        if done.returncode != 0:
            raise HostError(f"apt's package lists could not be fetched ({_reason(done)}); mend apt, then try again.")
        return options


def unpack(deb: Path, root: Path) -> None:
    """A package's files under `root`; links that stand for folders there stay links."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as source:
        command = ["tar", "--extract", "--keep-directory-symlink", "--directory", str(root)]
        done = subprocess.run(command, stdin=source.stdout, capture_output=True, text=True, check=False)
    if done.returncode != 0 or source.returncode != 0:
        raise HostError(f"{deb.name} could not be unpacked ({_reason(done)}).")


def control(deb: Path) -> str:
    """What the package says of itself."""
    done = _run(["dpkg-deb", "--field", str(deb)], None)
    if done.returncode != 0:
        raise HostError(f"{deb.name} cannot be read ({_reason(done)}).")
    return done.stdout


def package_of(deb: Path) -> str:
    """The package's name, from its file's."""
    return deb.name.partition("_")[0]


def _run(command: list[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
