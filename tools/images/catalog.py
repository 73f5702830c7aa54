"""Which images there are, what each is made of, and the name of one that is made of exactly this checkout.

Reads the checkout; runs nothing.
"""

from __future__ import annotations

import hashlib
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.errors import ToolError

ROOT = Path(__file__).resolve().parents[2]
LOCAL = "syncgroup.local"
"""Where images of this machine seem to come from: a name that no registry has."""
SHARED = ("images/finish.py", "requirements/build.txt", "pyproject.toml", "README.md", "LICENSE")
PACKAGES = ("sync_runtime", "syncgroup", "operator")


@dataclass(frozen=True)
class Image:
    """One image."""

    name: str
    repository: str
    file: str
    requirements: tuple[str, ...]
    more: tuple[str, ...] = ()
    """Further folders and files of the checkout that it holds."""
    huge: bool = False
    """Gigabytes, for torch: built when somebody asks for it by name."""
    compiles: bool = False
    """Wants a C compiler where it runs."""

    @property
    def path(self) -> Path:
        """Its Containerfile."""
        return ROOT / self.file

    def parts(self) -> Iterator[Path]:
        """Every file of the checkout that it is made of."""
        names = [self.file, *SHARED, *(f"requirements/{one}" for one in self.requirements), *PACKAGES, *self.more]
        for name in names:
            place = ROOT / name
            yield from (place,) if place.is_file() else _files(place)

    def fingerprint(self, *further: str) -> str:
        """Changes whenever the image would."""
        whole = hashlib.sha256("\n".join(further).encode())
        for path in sorted(set(self.parts())):
            data = path.read_bytes()
            whole.update(f"{path.relative_to(ROOT)}:{len(data)}:{path.stat().st_mode & 0o111}:".encode())
            whole.update(data)
        return whole.hexdigest()[:12]


IMAGES = {
    one.name: one
    for one in (
        Image("operator", "operator", "images/operator/Containerfile", ("operator.txt",)),
        Image(
            "runtime", "runtime", "images/runtime/Containerfile", ("sidecar.txt",), more=("images/runtime/start.py",)
        ),
        Image(
            "cuda",
            "runtime-cuda",
            "images/runtime/Containerfile.cuda",
            ("sidecar.txt", "library.txt"),
            more=("images/runtime/start.py",),
            huge=True,
            compiles=True,
        ),
        Image(
            "examples",
            "examples",
            "images/examples/Containerfile",
            ("examples.txt",),
            more=("examples", "images/examples/cpu.py"),
            huge=True,
        ),
    )
}


def chosen(names: Iterable[str]) -> list[Image]:
    """Images by name, each once; all that are not huge where there is no name."""
    wanted = list(dict.fromkeys(names)) or [one.name for one in IMAGES.values() if not one.huge]
    for name in wanted:
        if name not in IMAGES:
            raise ToolError(f"there is no image {name}; there are {', '.join(IMAGES)}.")
    return [IMAGES[name] for name in wanted]


def build_arguments() -> dict[str, str]:
    """What the labels say: version, revision and, where git knows it, the source's address."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = {"VERSION": version, "REVISION": _git("rev-parse", "HEAD"), "SOURCE": _git("remote", "get-url", "origin")}
    # A remote that is a folder of this machine is nobody else's business.
    return {key: value for key, value in found.items() if value and not value.startswith(("/", "."))}


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path
