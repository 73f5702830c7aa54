"""Writes docs/metrics.md's tables from the lists of figures: `python -m tools.metricdocs docs/metrics.md [--check]`.

The text between two marks is ours, the rest of the page is written by people. Knows the contract alone: who counts,
and how, is not its business.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sync_runtime.contract.figures import Figure
from sync_runtime.contract.figures import operator as of_operator
from sync_runtime.contract.figures import runtime as of_runtime
from tools.errors import ToolError
from tools.marked import filled

TOOL: Final = "python -m tools.metricdocs"
HEAD: Final = ("| figure | kind | unit | labels | meaning |", "|---|---|---|---|---|")


def table(figures: Iterable[Figure]) -> str:
    """One list as a table."""
    return "\n".join([*HEAD, *(_row(figure) for figure in figures)])


def _row(figure: Figure) -> str:
    labels = ", ".join(f"`{label}`" for label in figure.labels)
    return f"| `{figure.name}` | {figure.kind} | {figure.unit} | {labels} | {figure.meaning} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or with --check only compare."""
    parser = argparse.ArgumentParser(prog=TOOL, description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true", help="exit 1 where the page differs")
    options = parser.parse_args(arguments)
    tables = {"operator": table(of_operator.FIGURES), "runtime": table(of_runtime.FIGURES)}
    try:
        before = options.page.read_text(encoding="utf-8")
        after = filled(before, tables, TOOL)
    except (ToolError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if not options.check:
        options.page.write_text(after, encoding="utf-8")
    elif before != after:
        sys.stderr.write(f"error: {options.page} is not what the lists of figures say; run `{TOOL}`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
