"""Builds the emulator's program from the C files beside this module, once per source, compiler and platform.

The result lives in the user's cache folder, under a name that is a digest of all that went into it: a half-written or
outdated program can never be taken for the right one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.cache import cache_root, platform_tag, replacing
from tools.errors import BuildError, HostError

SOURCES = Path(__file__).parent / "native"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")
_COMPILE_TIMEOUT_S = 300


def emulator_program() -> Path:
    """The path of the emulator, built if it is missing."""
    return build("linkemu", sorted(SOURCES.glob("*.c")))


def build(name: str, sources: Sequence[Path], flags: Sequence[str] = FLAGS) -> Path:
    """Compile `sources` into one program in the cache and return its path."""
    compiler = find_compiler()
    target = cache_root() / "native" / _digest(compiler, sources, flags) / name
    if target.exists():
        return target
    try:
        with replacing(target) as staged:
            _compile([*compiler, *flags, f"-I{SOURCES}", "-o", str(staged), *map(str, sources), "-lm"], name)
    except OSError as error:
        raise BuildError(
            f"cannot write {target.parent} ({error.strerror}): make room, or set XDG_CACHE_HOME to a folder of yours"
        ) from error
    return target


def find_compiler() -> list[str]:
    """The C compiler: $CC if set, otherwise cc, gcc or clang."""
    wanted = os.environ.get("CC")
    if wanted:
        command = shlex.split(wanted)
        if command and shutil.which(command[0]):
            return command
        raise HostError(f"the C compiler of $CC, {wanted!r}, is not on the PATH: install it or unset CC")
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise HostError(
        "the link emulator needs a C compiler: install gcc or clang with the C library's headers "
        "(Debian: apt install gcc libc6-dev; Fedora: dnf install gcc)"
    )


def _compile(command: list[str], name: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        sentence = f"compiling {name} took over {_COMPILE_TIMEOUT_S} s: try again when the machine is quieter"
        raise BuildError(sentence) from error
    if done.returncode != 0:
        raise BuildError(f"compiling {name} failed; the compiler said:\n{done.stderr.strip()[-4000:]}")


def _digest(compiler: list[str], sources: Sequence[Path], flags: Sequence[str]) -> str:
    version = subprocess.run([*compiler, "--version"], capture_output=True, timeout=30, check=False).stdout
    digest = hashlib.sha256()
    for part in (platform_tag().encode(), " ".join(compiler).encode(), version, " ".join(flags).encode()):
        digest.update(hashlib.sha256(part).digest())
    for path in (*sources, *sorted(SOURCES.glob("*.h"))):
        digest.update(hashlib.sha256(path.name.encode()).digest())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:24]
