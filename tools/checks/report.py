"""How a check ends: one line per finding on standard output, exit code 1 if there is one, 2 if it could not run.

Knows no check; each hands in a function from a folder to its findings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tools.checks.files import REPOSITORY
from tools.errors import ToolError


class Finding(NamedTuple):
    """Something to mend: where it is and what to do."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def run(name: str, description: str, check: Callable[[Path], Iterable[Finding]], arguments: list[str] | None) -> int:
    """Run one check as a command; `arguments` is None for those of the process."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.checks.{name}", description=description)
    parser.add_argument(
        "root", nargs="?", type=Path, default=REPOSITORY, help="folder to check; default: the repository"
    )
    root = parser.parse_args(arguments).root
    try:
        findings = sorted(check(root))
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"{name}: {len(findings)} to mend\n" if findings else f"{name}: clean\n")
    return 1 if findings else 0
