"""`syncgroup sidecar`: runs the sync runtime of one member, from group.toml or, in a pod, from the environment.

The runtime is imported when it is run: `--help` and a slip of the pen answer at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

from sync_runtime.contract import names
from sync_runtime.errors import SyncError
from syncgroup import selftest
from syncgroup.commands import version
from syncgroup.errors import CommandError

RUNTIME = "sync_runtime.sidecar"
OURS = ("sync_runtime", "syncgroup")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = "Run the sync runtime of one member until it is told to stop (SIGTERM, SIGINT)."
    parser.add_argument(
        "--config", type=Path, metavar="group.toml", help="the group's file; in a pod the environment is used instead"
    )
    parser.add_argument("--member", metavar="NAME", help="which member of the file this is")
    parser.add_argument("--version", action="store_true", help="print the version and do nothing else")
    parser.add_argument("--self-test", action="store_true", help="say whether this installation is whole, and end")


def run(options: argparse.Namespace) -> int:
    """Runs until it is told to stop; what keeps it from starting is one sentence."""
    if options.version:
        return version.run(options)
    if options.self_test:
        return selftest.run(dict(os.environ))
    if (options.config is None) != (options.member is None):
        raise CommandError("--config and --member belong together: which member of the file is this?")
    if options.config is None and names.ENV_GROUP not in os.environ:
        raise CommandError(
            "which member is this? Give --config group.toml and --member NAME; only in a pod that the operator made "
            "does the environment say it."
        )
    try:
        runtime = importlib.import_module(RUNTIME)
        return int(runtime.run_sidecar(config=options.config, member=options.member, environment=os.environ))
    except SyncError as error:
        raise CommandError(_sentence(error)) from error
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OURS:
            raise  # a defect, not a missing extra
        raise CommandError(
            f"`sidecar` needs the Python package {missing}, which is not installed: pip install 'syncgroup[sidecar]'"
        ) from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise CommandError(f"{place}{error.strerror or error}.") from error


def _sentence(error: Exception) -> str:
    text = str(error).rstrip(".")
    return text if text.endswith("?") else f"{text}."
