"""`python -m tools.kube build planes nodes` and friends: the command line of the tool builder."""

from __future__ import annotations

import argparse
import sys

from tools.errors import ToolError, sentence_for
from tools.kube import build, catalog, lock


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; a problem a person can mend is one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m tools.kube", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="build what is missing")
    builder.add_argument("names", nargs="*", default=["planes"], help=f"programs or sets: {', '.join(catalog.SETS)}")
    builder.add_argument("--kube", default=catalog.DEFAULT_KUBE, help="Kubernetes release, for example 1.36")
    commands.add_parser("list", help="programs, versions, where they are")
    locker = commands.add_parser("lock", help="write go.mod and go.sum anew from tools.toml")
    locker.add_argument("families", nargs="*", help="default: the families whose go.mod is out of step")
    commands.add_parser("check", help="compare go.mod files with tools.toml")
    options = parser.parse_args(arguments)
    try:
        return _dispatch(options, catalog.load())
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {sentence_for(error)}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted; run the same command again, it goes on where it stopped.\n")
        return 130


def _dispatch(options: argparse.Namespace, known: catalog.Catalog) -> int:
    match options.command:
        case "build":
            build.ensure(known, options.names or ["planes"], options.kube)
        case "list":
            for family in known.families:
                for name in family.binaries:
                    path = build.installed_at(family, name)
                    state = str(path) if path.exists() else "not built"
                    sys.stdout.write(f"{name:26} {family.version:10} {state}\n")
        case "lock":
            families = [known.family(name) for name in options.families]
            for family in families or [f for f in known.families if not f.local and any(lock.problems(f))]:
                sys.stderr.write(f"  locking {family.name} {family.version}\n")
                lock.relock(known, family)
        case "check":
            found = lock.check(known)
            for problem in found:
                sys.stderr.write(f"error: {problem}\n")
            return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
