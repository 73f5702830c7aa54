"""The entry point: finds the subcommand, imports that one alone, runs it.

A subcommand is a module of `syncgroup.commands` with `configure(parser)` and `run(options) -> int`. It is imported only
when it is asked for: `syncgroup version` needs no dependency at all. A missing dependency ends in a sentence that names
the extra to install.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple, Protocol, cast

from syncgroup.errors import BAD_INPUT_EXIT_CODE, CommandError
from syncgroup.output import complain

PLUGIN_PROGRAM = "kubectl-syncgroup"


class Subcommand(NamedTuple):
    """A subcommand as far as it is known without importing it."""

    summary: str
    module: str
    extra: str
    """The extra whose packages it imports."""


class CommandModule(Protocol):
    """What a module of `syncgroup.commands` offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the subcommand's arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


SUBCOMMANDS = {
    "version": Subcommand("print the version", "syncgroup.commands.version", ""),
    "validate": Subcommand("check SyncGroup and SyncCluster files offline", "syncgroup.commands.validate", "operator"),
    "delta": Subcommand("lossless deltas between checkpoints", "syncgroup.commands.delta", "sidecar"),
    "certs": Subcommand("keys and certificates for members without Kubernetes", "syncgroup.commands.certs", "sidecar"),
    "sidecar": Subcommand("run the sync runtime of one member", "syncgroup.commands.sidecar", "sidecar"),
    "library": Subcommand("copy the library for another container", "syncgroup.commands.library", ""),
    "cluster": Subcommand("remote clusters that a hub may use", "syncgroup.commands.cluster", "operator"),
    "explain": Subcommand("print the plan for a SyncGroup, and why", "syncgroup.commands.explain", "operator"),
    "top": Subcommand("versions, lag, links and leases of groups, live", "syncgroup.commands.top", "operator"),
    "why": Subcommand("why a group is not Ready, and what to type next", "syncgroup.commands.why", "operator"),
    "links": Subcommand("every link: rate, loss, streams, codec, and why", "syncgroup.commands.links", "operator"),
    "replace": Subcommand("ask for another pod of a member", "syncgroup.commands.replace", "operator"),
    "scrub": Subcommand("ask all members to compare their weights", "syncgroup.commands.scrub", "operator"),
    "trace": Subcommand("one version's way as a waterfall", "syncgroup.commands.trace", "operator"),
    "inject": Subcommand("a pod as the operator would make it", "syncgroup.commands.inject", "operator"),
    "crds": Subcommand("print or write the CustomResourceDefinitions", "syncgroup.commands.crds", "operator"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, where a reader that went away can still be dealt with
    except CommandError as error:
        complain(f"{_program()}: {error}")
        return BAD_INPUT_EXIT_CODE
    except BrokenPipeError:
        # The reader went away (`syncgroup crds | head`). Python would complain again while it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _dispatch(words: list[str]) -> int:
    asked = next((word for word in words if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog=_program(), description="Keeps the weights of one trainer and many rollout workers bit-identical."
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, subcommand in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(name, help=subcommand.summary, description=subcommand.summary.capitalize())
        if name == asked:
            module = _load(name, subcommand)
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    options = parser.parse_args(words)
    return int(options.run(options))


def _load(name: str, subcommand: Subcommand) -> CommandModule:
    try:
        return cast(CommandModule, importlib.import_module(subcommand.module))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        # A module of our own that is missing is a defect, not a missing extra: let it show.
        if missing in ("", "syncgroup", "sync_runtime", "syncgroup_operator"):
            raise
        raise CommandError(
            f"`{name}` needs the Python package {missing}, which is not installed: "
            f"pip install 'syncgroup[{subcommand.extra}]'"
        ) from error


def _program() -> str:
    """How the user called us: kubectl finds its plug-ins under a name with a dash and shows it with a space."""
    return "kubectl syncgroup" if PurePath(sys.argv[0]).name == PLUGIN_PROGRAM else "syncgroup"


if __name__ == "__main__":
    sys.exit(main())
