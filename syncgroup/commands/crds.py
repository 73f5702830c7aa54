"""`syncgroup crds [--output DIR]`: the CustomResourceDefinitions of this release, to apply before the operator."""

from __future__ import annotations

import argparse
from pathlib import Path

from syncgroup.errors import CommandError
from syncgroup.output import say
from syncgroup_operator.crdgen.writing import rendered_files, write_files


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to."""
    parser.description = (
        "Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`, or write them to a folder."
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="write one file per kind into this folder")


def run(options: argparse.Namespace) -> int:
    """Print or write."""
    if options.output is None:
        say("---\n".join(rendered_files().values()))
        return 0
    try:
        written = write_files(options.output)
    except OSError as error:
        raise CommandError(f"cannot write to {options.output}: {error.strerror or error}") from error
    for path in written:
        say(str(path))
    return 0
