"""`python -m syncgroup_operator.crdgen --output crds [--copy DIR] [--roles DIR] [--check]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from syncgroup_operator.crdgen.writing import outdated_files, rendered_files, rendered_roles, write_files


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the CRDs and roles, or with --check compare them and exit 1 where they differ."""
    parser = argparse.ArgumentParser(prog="python -m syncgroup_operator.crdgen", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=Path("crds"), help="folder of the CRDs (default: crds)")
    parser.add_argument("--roles", type=Path, help="folder of the roles; they are left alone if not given")
    parser.add_argument("--copy", type=Path, metavar="DIR", help="a second folder with the CRDs: the chart's")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that differ")
    options = parser.parse_args(arguments)
    wanted = {options.output: rendered_files()}
    if options.copy is not None:
        wanted[options.copy] = rendered_files()
    if options.roles is not None:
        wanted[options.roles] = rendered_roles()
    if not options.check:
        for folder, files in wanted.items():
            for path in write_files(folder, files):
                sys.stdout.write(f"{path}\n")
        return 0
    outdated = [path for folder, files in wanted.items() for path in outdated_files(folder, files)]
    for path in outdated:
        sys.stderr.write(f"{path} differs from its source; run python -m syncgroup_operator.crdgen\n")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
