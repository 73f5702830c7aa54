"""`syncgroup library --output DIR | --hash`: hands the library of this installation to another container.

The init container of every pod copies it; a release tells its operator the hash, which names the folder in pods.
Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from syncgroup.errors import CommandError
from syncgroup.output import say

PACKAGE = "sync_runtime"
LEFT_OUT = ("__pycache__", "*.md")


def configure(parser: argparse.ArgumentParser) -> None:
    """What to do."""
    parser.description = f"Copy the package {PACKAGE} into a folder that can then be added to sys.path, or hash it."
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument(
        "--output", type=Path, metavar="DIR", help="made if it is missing; one that is there is left alone"
    )
    choice.add_argument("--hash", action="store_true", help="print the SHA-256 over all names and bytes")


def run(options: argparse.Namespace) -> int:
    """Copy or print."""
    try:
        say(library_hash() if options.hash else str(copied(options.output)))
    except (OSError, shutil.Error) as error:
        what = "read" if options.hash else f"copied to {options.output}"
        raise CommandError(f"the library cannot be {what}: {error}") from error
    return 0


def library_hash() -> str:
    """Of this installation's library."""
    return hash_of(source())


def hash_of(folder: Path) -> str:
    """One hash over what `--output` would copy."""
    whole = hashlib.sha256()
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - left_out(place, folders))
        for name in sorted(set(files) - left_out(place, files)):
            path = Path(place, name)
            data = path.read_bytes()
            # Lengths in front, so that no two sets of files give the same bytes.
            inside = path.relative_to(folder).as_posix()
            whole.update(f"{len(inside)}:{inside}:{len(data)}:".encode())
            whole.update(data)
    return whole.hexdigest()


def copied(output: Path) -> Path:
    """The copy, whole or not at all: the folder appears when everything is in it."""
    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as partial:
            whole = Path(partial, "whole")
            shutil.copytree(source(), whole / PACKAGE, ignore=shutil.ignore_patterns(*LEFT_OUT))
            whole.rename(output)
    return output


def source() -> Path:
    """The package of this installation."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise CommandError(f"the package {PACKAGE} is not installed here: pip install syncgroup")
    return Path(found.origin).parent
