"""`python -m tools.checks.sizes`: Python files and functions that have grown too long to be read in one go.

The aim is 300 lines a file and 40 a function; this fails at the limits below, where a reader gives up. It counts
lines as they stand, docstrings and comments too, and knows nothing of what the code does.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.checks import report
from tools.checks.files import parse_python, python_sources
from tools.checks.report import Finding

FILE_LINES = 400
FUNCTION_LINES = 60

# A kernel is one function by nature: splitting it costs registers, not lines. On the CPU too, where numba compiles it.
KERNEL_FOLDERS = (Path("sync_runtime/delta/kernels"), Path("sync_runtime/codec/gpu"), Path("sync_runtime/codec/cpu"))

# What may be longer, each with its reason: "path" for a file, "path::function" for a function.
ALLOWED: Mapping[str, str] = {}


def check(root: Path, allowed: Mapping[str, str] = ALLOWED) -> Iterator[Finding]:
    """What is too long and not allowed to be, and what is allowed to be but is not."""
    used: set[str] = set()
    for path, text in python_sources(root):
        if any(path.is_relative_to(folder) for folder in KERNEL_FOLDERS):
            continue
        for name, finding in _too_long(path, text):
            if name in allowed:
                used.add(name)
            else:
                yield finding
    for name in sorted(set(allowed) - used):
        yield Finding(Path(name.partition("::")[0]), 1, f"{name} is short enough now: take it off the list in sizes.py")


def _too_long(path: Path, text: str) -> Iterator[tuple[str, Finding]]:
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        message = f"{lines} lines, more than {FILE_LINES}: split the file by what its parts know"
        yield path.as_posix(), Finding(path, 1, message)
    for node in ast.walk(parse_python(path, text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                message = f"{node.name} has {length} lines, more than {FUNCTION_LINES}: name its steps"
                yield f"{path.as_posix()}::{node.name}", Finding(path, node.lineno, message)


def main(arguments: list[str] | None = None) -> int:
    """Run as a command."""
    return report.run("sizes", "Python files and functions that are too long.", check, arguments)


if __name__ == "__main__":
    sys.exit(main())
