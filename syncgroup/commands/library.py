"""`syncgroup library --output DIR`: copies the library out of this installation, for another container to import.

The init container of every pod runs it. Standard library only.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from syncgroup.errors import CommandError
from syncgroup.output import say

PACKAGE = "sync_runtime"


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to."""
    parser.description = f"Copy the package {PACKAGE} into a folder that can then be added to sys.path."
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="made if it is missing; one that is there is left"
    )


def run(options: argparse.Namespace) -> int:
    """Copies whole or not at all: the folder appears when everything is in it."""
    output: Path = options.output
    if output.exists():
        say(f"{output} is there already")
        return 0
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as partial:
            whole = Path(partial, "whole")
            shutil.copytree(_source(), whole / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
            os.replace(whole, output)
    except (OSError, shutil.Error) as error:
        raise CommandError(f"the library cannot be copied to {output}: {error}") from error
    say(str(output))
    return 0


def _source() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise CommandError(f"the package {PACKAGE} is not installed here: pip install syncgroup")
    return Path(found.origin).parent
