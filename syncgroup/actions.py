"""Subcommands with several actions, such as `syncgroup certs init`: one shape for all of them.

Knows nothing of what an action does. The words of a subcommand stand in its module, its work in `<module>_actions`.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from syncgroup.errors import CommandError


class Action(NamedTuple):
    """One action, as `--help` lists it."""

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    """Adds its arguments."""
    work: Callable[..., Any]
    """Does it; the subcommand's own `run` knows what it wants besides the options."""


def add_actions(parser: argparse.ArgumentParser, description: str, actions: Sequence[Action]) -> None:
    """The actions of a subcommand; afterwards `options.action` is the work of the chosen one."""
    parser.description = description
    chosen = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for action in actions:
        one = chosen.add_parser(action.name, help=action.summary)
        action.configure(one)
        one.set_defaults(action=action.work)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The result for programs."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


@contextlib.contextmanager
def sentences(*expected: type[Exception]) -> Iterator[None]:
    """Every expected failure, and files that cannot be used, as one sentence."""
    try:
        yield
    except expected as error:
        raise CommandError(f"{error}.".replace("..", ".")) from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise CommandError(f"{place}{error.strerror or error}") from error
