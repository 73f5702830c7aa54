"""Completion for `kubectl syncgroup <TAB>`: kubectl runs `kubectl_complete-syncgroup` with the words typed so far.

It prints one candidate per line, then `:4`, cobra's word for "and no file names". Names of groups and members come from
the cluster where it answers at once; a completion never complains and never waits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import sys
from collections.abc import Iterable, Sequence

from syncgroup.cli import SUBCOMMANDS
from syncgroup.errors import CommandError
from syncgroup.output import say

NO_FILES = ":4"
FILES = ":0"
PATIENCE_S = 2.0
_OF_A_GROUP = ("top", "why", "links", "scrub", "trace")
_OF_A_MEMBER = ("replace",)
_FILE_OPTIONS = ("-f", "--filename", "--group", "--kubeconfig", "--links")


def main(arguments: Sequence[str] | None = None) -> int:
    """The last word is the one that is being typed; it may be empty."""
    words = list(sys.argv[1:] if arguments is None else arguments) or [""]
    candidates, directive = completed(words)
    say("\n".join([*candidates, directive]))
    return 0


def completed(words: Sequence[str]) -> tuple[list[str], str]:
    """Candidates for the last word, and whether file names are wanted."""
    *before, typed = words
    named = [word for word in before if not word.startswith("-")]
    if not named:
        return _starting(SUBCOMMANDS, typed), NO_FILES
    command = named[0]
    if command not in SUBCOMMANDS:
        return [], NO_FILES
    if before[-1] in _FILE_OPTIONS:
        return [], FILES
    if typed.startswith("-"):
        return _starting(options_of(command), typed), NO_FILES
    if before[-1] in ("-o", "--output"):
        return _starting(_choices(command), typed), NO_FILES
    return _starting(_names(command, before[1:]), typed), NO_FILES


def options_of(command: str) -> list[str]:
    """Every option of a subcommand."""
    return [option for action in _parser(command)._actions for option in action.option_strings]


def _choices(command: str) -> list[str]:
    actions = (one for one in _parser(command)._actions if "--output" in one.option_strings)
    return [str(choice) for action in actions for choice in action.choices or ()]


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    try:
        importlib.import_module(SUBCOMMANDS[command].module).configure(parser)
    except ModuleNotFoundError:
        return argparse.ArgumentParser(add_help=False)  # its extra is not installed
    return parser


def _names(command: str, typed_options: Sequence[str]) -> list[str]:
    if command not in (*_OF_A_GROUP, *_OF_A_MEMBER):
        return []
    with contextlib.suppress(CommandError, ModuleNotFoundError, TimeoutError, SystemExit):
        return asyncio.run(asyncio.wait_for(_ask(command, typed_options), PATIENCE_S))
    return []


async def _ask(command: str, typed_options: Sequence[str]) -> list[str]:
    reading = importlib.import_module("syncgroup.looking.reading")
    targets = importlib.import_module("syncgroup.looking.targets")
    parser = argparse.ArgumentParser(add_help=False)
    targets.add_target_options(parser, all_namespaces=True)
    options, _ = parser.parse_known_args(list(typed_options))
    target = targets.target_of(options)
    async with reading.reached(target) as cluster:
        groups = await reading.list_groups(cluster, target)
    if command in _OF_A_GROUP:
        return [str(group.key.name) for group in groups]
    requests = importlib.import_module("syncgroup.looking.requests")
    return [name for group in groups for name in requests.members_of(group)]


def _starting(candidates: Iterable[str], typed: str) -> list[str]:
    return sorted(one for one in candidates if one.startswith(typed))


if __name__ == "__main__":
    sys.exit(main())
