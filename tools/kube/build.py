"""Builds programs into the cache: only what is missing, under a temporary name, then renamed.

A program that is in the cache is whole; its folder's name holds version and fingerprint, so nothing is ever rebuilt
in place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.cache import cache_root, exclusive, platform_tag, replacing
from tools.errors import BuildError
from tools.kube import golang
from tools.kube.catalog import DEFAULT_KUBE, Catalog, Family

PROGRESS_EVERY_S = 15.0


@dataclass(frozen=True)
class Toolbox:
    """Built programs by name; every path exists."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> str:
        """The path of a program."""
        return str(self.paths[name])

    def folder(self, name: str) -> str:
        """The folder that holds a program (the CNI plug-ins are found by folder)."""
        return str(self.paths[name].parent)

    def search_path(self) -> str:
        """A PATH that finds every program of the box."""
        return ":".join(dict.fromkeys(str(path.parent) for path in self.paths.values()))


def compiler() -> str | None:
    """The C compiler: CC where it is set, otherwise the first of the usual names. Go alone would look for gcc only."""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    return next((found for found in map(shutil.which, names) if found), None)


def have_seccomp() -> bool:
    """Whether runc can be linked with libseccomp here, asked of the compiler itself."""
    program = compiler()
    if program is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <seccomp.h>\nint main(void) { return seccomp_api_get() > 100; }\n")
        command = [program, "-static", str(source), "-o", str(Path(folder) / "probe"), "-lseccomp"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def installed_at(family: Family, binary: str) -> Path:
    """Where the cache keeps `binary`, whether or not it has been built."""
    folder = cache_root() / "tools" / platform_tag() / f"{family.name}-{family.version}-{family.fingerprint()}"
    if family.seccomp_tags:
        fuller = folder.with_name(f"{folder.name}-seccomp") / binary
        if fuller.exists() or have_seccomp():  # once built it needs neither headers nor compiler
            return fuller
    return folder / binary


def ensure(catalog: Catalog, names: Iterable[str], release: str = DEFAULT_KUBE) -> Toolbox:
    """Build whatever of `names` (programs or sets) is missing; return all of them."""
    wanted = catalog.expand(names)
    targets = {name: installed_at(catalog.owner(name, release), name) for name in wanted}
    missing = [name for name in wanted if not targets[name].exists()]
    if missing:
        go = golang.find(catalog.go_minimum, catalog.go_wheel)
        _say(f"building {len(missing)} programs from source with Go {go.version}: {', '.join(missing)}")
        for number, name in enumerate(missing, 1):
            family = catalog.owner(name, release)
            with exclusive(targets[name].parent.parent / f".{family.name}.lock"):
                if not targets[name].exists():
                    _build(go, family, name, targets[name], f"[{number}/{len(missing)}]")
    return Toolbox(targets)


def _build(go: golang.Go, family: Family, binary: str, target: Path, counter: str) -> None:
    environment = go.environment(cgo=family.cgo)
    if family.cgo:
        program = compiler()
        if program is None:
            raise BuildError(f"{binary} needs a C compiler and there is none; install gcc or clang.")
        environment["CC"] = program
    for stale in target.parent.glob(".tmp-*"):  # of a builder that was killed: we hold the lock, so nobody writes there
        shutil.rmtree(stale, ignore_errors=True)
    tags = list(family.tags)
    if family.seccomp_tags and have_seccomp():
        tags += family.seccomp_tags
    started = time.monotonic()
    with replacing(target) as staged:
        command = [go.program, "build", "-v", "-trimpath", "-mod=readonly", "-tags", ",".join(tags)]
        command += ["-ldflags", family.link_flags(), "-o", str(staged), family.package(binary)]
        with subprocess.Popen(
            command,
            cwd=family.folder,
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as process:
            log = _follow(process, f"{counter} {binary}")
        if process.returncode != 0:
            raise BuildError(explain(binary, log, target.parent))
    size_mb = target.stat().st_size / 1e6
    _say(f"{counter} {binary} {family.version}: {size_mb:.0f} MB in {time.monotonic() - started:.0f} s")


def _follow(process: subprocess.Popen[str], title: str) -> list[str]:
    """Read the compiler's messages and say now and then how far it is."""
    lines: list[str] = []

    def drain(stream: IO[str]) -> None:
        lines.extend(line.rstrip() for line in stream)

    if process.stderr is None:
        raise BuildError("the compiler's messages could not be read")
    reader = threading.Thread(target=drain, args=(process.stderr,), daemon=True)
    reader.start()
    started = last = time.monotonic()
    while process.poll() is None:
        reader.join(0.25)
        now = time.monotonic()
        if now - last >= PROGRESS_EVERY_S:
            last = now
            fetched = sum(line.startswith("go: downloading") for line in lines)
            _say(f"{title}: {len(lines) - fetched} packages compiled, {fetched} modules fetched, {now - started:.0f} s")
    reader.join()
    return lines


def explain(binary: str, log: list[str], folder: Path) -> str:
    """One sentence for the commonest ways a build fails; otherwise the compiler's own last words."""
    text = "\n".join(log)
    if "no space left on device" in text:
        return f"{binary} could not be built: the disk is full; free 6 GB (Go's build cache and {folder} need room)."
    if any(mark in text for mark in ("dial tcp", "no such host", "connection refused", "module lookup disabled")):
        return (
            f"{binary} could not be built: the Go module proxy cannot be reached and its sources are not in the cache; "
            "connect this machine or set GOPROXY, then run the same command again (it goes on where it stopped)."
        )
    if "is not in std (" in text:
        return (
            f"{binary} could not be built: Go does not find its own standard library, which is also what it says where "
            "the disk is full; free 6 GB, or install Go anew."
        )
    if "403 Forbidden" in text:
        return f"{binary} could not be built: the module proxy refuses this version; pin an older one in tools.toml."
    if "signal: killed" in text or "cannot allocate memory" in text:
        return f"{binary} could not be built: the compiler ran out of memory; 3 GB must be free."
    words = [line for line in log if line and not line.startswith("go: downloading")]
    return f"{binary} could not be built: " + " / ".join(words[-4:])


def _say(text: str) -> None:
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()
