"""`python -m syncgroup_operator.crdgen --output crds [--check]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from syncgroup_operator.crdgen.writing import outdated_files, write_files


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the CRDs, or with --check compare them and exit 1 where they differ."""
    parser = argparse.ArgumentParser(prog="python -m syncgroup_operator.crdgen", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=Path("crds"), help="folder of the CRDs (default: crds)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that differ")
    options = parser.parse_args(arguments)
    if not options.check:
        for path in write_files(options.output):
            sys.stdout.write(f"{path}\n")
        return 0
    outdated = outdated_files(options.output)
    for path in outdated:
        sys.stderr.write(f"{path} differs from the contract; run python -m syncgroup_operator.crdgen\n")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
