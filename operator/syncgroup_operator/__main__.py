"""`python -m syncgroup_operator`: one replica of the operator, configured by its environment.

`--version` says which release it is, `--self-test` whether this installation is whole; both then end.
"""

from __future__ import annotations

import argparse
import os
import sys

from syncgroup_operator.handlers import selftest
from syncgroup_operator.handlers.run import main as run


def main(arguments: list[str] | None = None) -> int:
    """Runs a replica, or answers a question about this installation; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m syncgroup_operator", description="One replica of the operator; its environment configures it."
    )
    parser.add_argument("--version", action="store_true", help="print the version and do nothing else")
    parser.add_argument("--self-test", action="store_true", help="say whether this installation is whole, and end")
    options = parser.parse_args(arguments)
    if options.version:
        _say(selftest.version())
        return 0
    return selftest.run(os.environ, _say) if options.self_test else run(os.environ)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
