"""`syncgroup sidecar`: runs the sync runtime of one member, from group.toml or, in a pod, from the environment."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sync_runtime.errors import SyncError
from sync_runtime.sidecar import run_sidecar
from syncgroup.errors import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "--config", type=Path, metavar="group.toml", help="the group's file; in a pod the environment is used instead"
    )
    parser.add_argument("--member", metavar="NAME", help="which member of the file this is")


def run(options: argparse.Namespace) -> int:
    """Runs until it is told to stop."""
    if (options.config is None) != (options.member is None):
        raise CommandError("--config and --member belong together: which member of the file is this?")
    try:
        return run_sidecar(config=options.config, member=options.member, environment=os.environ)
    except SyncError as error:
        raise CommandError(str(error)) from error
