"""`kubectl syncgroup why NAME`: why a group is not Ready, in sentences, with the next command to type."""

from __future__ import annotations

import argparse
import asyncio

from syncgroup.commands.top import add_others_option, others_of
from syncgroup.looking.documents import add_output_option, rendered
from syncgroup.looking.facts import GroupFacts
from syncgroup.looking.reading import find_group, reached, read_facts
from syncgroup.looking.showing import has_colour, show
from syncgroup.looking.targets import add_target_options, target_of
from syncgroup.looking.why import answer_document, answer_lines, why
from syncgroup.output import say

NOT_HEALTHY_EXIT_CODE = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Which group."""
    parser.description = (
        "Say why a SyncGroup is not Ready, from its conditions, pods, leases, events and clusters, and what to type "
        "next. Exit code 0: healthy, 1: not, 2: it cannot be told."
    )
    parser.add_argument("name", metavar="NAME", help="of the SyncGroup")
    add_others_option(parser)
    add_output_option(parser, ("json", "yaml"))
    add_target_options(parser)


def run(options: argparse.Namespace) -> int:
    """Look, and say."""
    facts = asyncio.run(_look(options))
    answer = why(facts)
    if options.output:
        say(rendered(answer_document(facts, answer), options.output))
    else:
        show(answer_lines(answer, colour=has_colour()))
    return 0 if answer.healthy else NOT_HEALTHY_EXIT_CODE


async def _look(options: argparse.Namespace) -> GroupFacts:
    target = target_of(options)
    others = others_of(options, target)
    async with reached(target) as cluster:
        body = await find_group(cluster, target, options.name)
        return await read_facts(cluster, body, events=True, others=others)
