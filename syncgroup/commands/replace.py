"""`kubectl syncgroup replace MEMBER`: ask for another pod of a member. The request stands in the group's spec."""

from __future__ import annotations

import argparse
import asyncio

from sync_runtime.contract.requests import Request
from syncgroup.commands.requesting import add_request_options, begin, request_id
from syncgroup.looking.reading import list_groups, reached
from syncgroup.looking.requests import find_member
from syncgroup.looking.targets import add_target_options, target_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Whom."""
    parser.description = (
        "Ask for another pod of a member: its present one ends in its own time, its successor prefers another node. "
        "The limits of spec.lease hold. Exit code 0: asked (with --wait: done), 1: refused or not done in time."
    )
    parser.add_argument("member", metavar="MEMBER", help="as its pod is called, or ROLE-INDEX such as west-0")
    add_request_options(parser)
    add_target_options(parser)


def run(options: argparse.Namespace) -> int:
    """Ask."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    target = target_of(options)
    wanted_id = request_id(options, "replace")
    async with reached(target) as cluster:
        group, member = find_member(await list_groups(cluster, target), options.member)
        wanted = Request(id=wanted_id, type="Replace", member=member)
        return await begin(cluster, target, group.key.name, wanted, options)
