"""Bases for building images without a registry, unpacked from Debian's packages: one to build on, one to run on.

The one to run on has Python, its libraries and the world's certificate authorities; no shell, no package manager. Both
hold the same Python under the same path, so that an environment made in one works in the other. A third, made when an
image wants it, is the second with a C compiler. Needs root, since files in an image belong to root.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools import debian
from tools.cache import exclusive, replacing
from tools.debian import Archive, Package
from tools.devcluster import images as packing
from tools.errors import BuildError

RUNS = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "ca-certificates", "tzdata", "netbase", "base-files")
BUILDS = ("python3-venv", "dash", "coreutils")
# triton compiles against Python's headers, and asks ldconfig where the driver is; the shell is for the builder.
COMPILES = ("gcc", "libc6-dev", "libpython3-dev", "libc-bin", "dash")
# Packages that others ask for only to be configured, or for modules of Python that nobody here imports.
UNUSED = frozenset({
    "coreutils", "dash", "debconf", "debianutils", "dpkg", "mawk", "openssl", "perl-base", "tar", "libacl1", "libattr1",
    "libgmp10", "libpcre2-8-0", "libselinux1", "libmd0", "libdb5.3", "libreadline8", "readline-common", "libtirpc3",
    "libtirpc-common", "libnsl2", "libncursesw6", "libtinfo6", "libgssapi-krb5-2", "libkrb5-3", "libkrb5support0",
    "libk5crypto3", "libkeyutils1", "libcom-err2",
})  # fmt: skip
MERGED = ("bin", "sbin", "lib", "lib64")
"""Links into /usr, as Debian's own installer makes them."""
UNREAD = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
NEWEST, GOOD_FOR_S = "newest-base", 7 * 24 * 3600.0
MADE_BY = "1"
"""Raised when what is made here changes."""
BUILD_REFERENCE, RUN_REFERENCE = "syncgroup.local/base-build:local", "syncgroup.local/base:local"
COMPILER_REFERENCE = "syncgroup.local/base-compiler:local"
NEEDED_TO_COMPILE = frozenset({"dash", "libgmp10"})
"""What is unused elsewhere."""


class Bases(NamedTuple):
    """The two bases as OCI archives in the cache."""

    key: str
    """Names the packages and their versions."""
    run_archive: Path
    build_archive: Path

    @classmethod
    def at(cls, folder: Path, key: str) -> Bases:
        """Where the archives of a key are."""
        return cls(key, folder / f"base-{key}.tar", folder / f"base-build-{key}.tar")

    def exist(self) -> bool:
        """Whether both were made."""
        return self.run_archive.exists() and self.build_archive.exists()


def ensure(folder: Path) -> Bases:
    """The bases of the packages that Debian's archive has today, or had a few days ago."""
    with exclusive(folder / ".base-lock"):
        recent = _recent(folder)
        if recent is not None:
            return recent
        archive = Archive(folder / "apt")
        runs = [one for one in archive.closure(RUNS) if one.name not in UNUSED]
        builds = archive.closure((*RUNS, *BUILDS))
        text = "\n".join([MADE_BY, *(f"{name} {version}" for name, version in (*runs, *builds))])
        found = Bases.at(folder, hashlib.sha256(text.encode()).hexdigest()[:12])
        if not found.exist():
            wanted = ((runs, found.run_archive, RUN_REFERENCE), (builds, found.build_archive, BUILD_REFERENCE))
            _make(archive, wanted)
        (folder / NEWEST).write_text(f"{MADE_BY} {found.key}")
        return found


def ensure_compiler(folder: Path, bases: Bases) -> Path:
    """The base to run on, with a C compiler, made beside these."""
    target = folder / f"base-compiler-{bases.key}.tar"
    with exclusive(folder / ".base-lock"):
        if not target.exists():
            archive = Archive(folder / "apt")
            packages = archive.closure((*RUNS, *COMPILES))
            kept = [one for one in packages if one.name not in UNUSED - NEEDED_TO_COMPILE]
            _make(archive, ((kept, target, COMPILER_REFERENCE),))
    return target


def _recent(folder: Path) -> Bases | None:
    note = folder / NEWEST
    if not note.exists() or time.time() - note.stat().st_mtime > GOOD_FOR_S:
        return None
    made_by, _, key = note.read_text().partition(" ")
    found = Bases.at(folder, key)
    return found if made_by == MADE_BY and found.exist() else None


def _make(archive: Archive, wanted: Sequence[tuple[list[Package], Path, str]]) -> None:
    """Archives of these packages, each under its name."""
    with tempfile.TemporaryDirectory(prefix="syncgroup-base-") as holder:
        names = sorted({one.name for packages, _, _ in wanted for one in packages})
        fetched = archive.download(names, Path(holder) / "debs")
        debs = {debian.package_of(path): path for path in fetched}
        for packages, target, reference in wanted:
            root = Path(holder) / target.stem
            _stage(root, packages, debs)
            with replacing(target) as staged:
                packing.pack(root, staged, reference=reference)
            shutil.rmtree(root)


def _stage(root: Path, packages: Iterable[Package], debs: dict[str, Path]) -> None:
    for name in (*(f"usr/{one}" for one in MERGED), "etc/ssl/certs", "tmp", "var/lib/dpkg/status.d"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in MERGED:
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        debian.unpack(debs[package.name], root)
        # Where scanners of images without a package manager look for what is in them.
        (root / "var/lib/dpkg/status.d" / package.name).write_text(debian.control(debs[package.name]))
    for name in UNREAD:
        shutil.rmtree(root / name, ignore_errors=True)
    _join_authorities(root)
    _compile(root)


def _join_authorities(root: Path) -> None:
    """What the package's own script does: all certificate authorities in one file."""
    found = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / AUTHORITIES).write_bytes(b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in found))


def _compile(root: Path) -> None:
    """Bytecode of the standard library, believed without a look at its source: times in an image mean nothing."""
    library = next((root / "usr/lib").glob("python3.*"), None)
    if library is None:
        raise BuildError(f"Debian's packages hold no Python ({root}).")
    words = ["-m", "compileall", "-qq", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    command = ["chroot", str(root), "/usr/bin/python3", *words, f"/usr/lib/{library.name}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: single files of the library are broken on purpose, for its own tests
        raise BuildError(f"the base's Python does not run here: {done.stderr.strip()[-300:]}")
