"""`python -m tools.engines test vllm` and friends: the command line for environments of engines."""

from __future__ import annotations

import argparse
import sys

from tools.engines import environments, testing
from tools.errors import ToolError, sentence_for


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; a problem a person can mend is one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m tools.engines", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for word, told in (("build", "make environments that are missing"), ("lock", "pin packages anew")):
        commands.add_parser(word, help=told).add_argument("names", nargs="*", help="default: all")
    commands.add_parser("list", help="engines, and where they are")
    tester = commands.add_parser("test", help="run the tests of plug-ins, each in its engine's environment")
    tester.add_argument("names", nargs="*", help="default: all; what follows a dash goes to pytest")
    given = sys.argv[1:] if arguments is None else arguments
    at = next((at for at, word in enumerate(given) if word.startswith("-") and "test" in given[:at]), len(given))
    options, rest = parser.parse_args(given[:at]), [word for word in given[at:] if word != "--"]
    try:
        return _dispatch(options, rest)
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {sentence_for(error)}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted; run the same command again.\n")
        return 130


def _dispatch(options: argparse.Namespace, rest: list[str]) -> int:
    known = environments.names()
    match options.command:
        case "build":
            for name in options.names or known:
                environments.ensure(name)
        case "lock":
            for name in options.names or known:
                environments.lock(name)
        case "list":
            for name in known:
                home = environments.home_of(name)
                sys.stdout.write(f"{name:12} {home if home.exists() else 'not made'}\n")
        case "test":
            return max([testing.test(name, rest) for name in options.names or known], default=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
