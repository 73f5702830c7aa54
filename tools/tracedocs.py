"""Writes docs/tracing.md's tables from the list of names: `python -m tools.tracedocs docs/tracing.md [--check]`.

The text between two marks is ours, the rest of the page is written by people. Knows the contract alone: who makes
spans, and how, is not its business.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sync_runtime.contract.traces import ATTRIBUTES, SPANS
from tools.errors import ToolError
from tools.marked import filled

TOOL: Final = "python -m tools.tracedocs"
WHERE: Final = {"span": "span", "resource": "resource", "both": "resource; span of the operator"}


def spans_table() -> str:
    """Every span."""
    rows = [
        f"| `{span.name}` | {', '.join(span.made_by)} | {span.text} | {_names(span.attributes)} |" for span in SPANS
    ]
    return "\n".join(["| span | made by | meaning | attributes |", "|---|---|---|---|", *rows])


def attributes_table() -> str:
    """Every attribute."""
    rows = [f"| `{one.name}` | {WHERE[one.where]} | {one.type} | {one.text} |" for one in ATTRIBUTES]
    return "\n".join(["| attribute | on | type | meaning |", "|---|---|---|---|", *rows])


def _names(attributes: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in attributes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or with --check only compare."""
    parser = argparse.ArgumentParser(prog=TOOL, description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true", help="exit 1 where the page differs")
    options = parser.parse_args(arguments)
    try:
        before = options.page.read_text(encoding="utf-8")
        after = filled(before, {"spans": spans_table(), "attributes": attributes_table()}, TOOL)
    except (ToolError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if not options.check:
        options.page.write_text(after, encoding="utf-8")
    elif before != after:
        sys.stderr.write(f"error: {options.page} is not what the list of names says; run `{TOOL}`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
