"""`kubectl syncgroup scrub NAME`: ask every member to compare its live weights with the version that it serves."""

from __future__ import annotations

import argparse
import asyncio

from sync_runtime.contract.requests import Request
from syncgroup.commands.requesting import add_request_options, begin, request_id
from syncgroup.looking.reading import reached
from syncgroup.looking.targets import add_target_options, target_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Which group."""
    parser.description = (
        "Ask every member to compare its live weights with the version that it serves, once. The number of the request "
        "travels in the plan; members report it back. Exit code 0: asked (with --wait: done), 1: not done in time."
    )
    parser.add_argument("name", metavar="NAME", help="of the SyncGroup")
    add_request_options(parser)
    add_target_options(parser)


def run(options: argparse.Namespace) -> int:
    """Ask."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    target = target_of(options)
    wanted = Request(id=request_id(options, "scrub"), type="Scrub")
    async with reached(target) as cluster:
        return await begin(cluster, target, options.name, wanted, options)
