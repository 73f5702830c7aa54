"""`syncgroup version`: which release this is and which API it speaks."""

from __future__ import annotations

import argparse
import importlib.metadata

from sync_runtime.contract.names import GROUP_VERSION
from syncgroup.output import say

DISTRIBUTION = "syncgroup"


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""
    parser.description = "Print the version and the version of the API."


def run(options: argparse.Namespace) -> int:
    """Print one line."""
    say(f"{DISTRIBUTION} {_installed_version()} (API {GROUP_VERSION})")
    return 0


def _installed_version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "from a folder that is not installed"
