"""`kubectl syncgroup links NAME`: every link's rate, round-trip time, loss, streams, bucket size, codec, and why."""

from __future__ import annotations

import argparse
import asyncio

from syncgroup.commands.top import add_others_option, others_of
from syncgroup.looking.documents import add_output_option, rendered
from syncgroup.looking.facts import GroupFacts
from syncgroup.looking.links import link_documents, link_lines
from syncgroup.looking.reading import find_group, reached, read_facts
from syncgroup.looking.showing import has_colour, show
from syncgroup.looking.targets import add_target_options, target_of
from syncgroup.output import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Which group."""
    parser.description = "Print what was measured of every link, what was chosen for it, and why. Exit code 0."
    parser.add_argument("name", metavar="NAME", help="of the SyncGroup")
    add_others_option(parser)
    add_output_option(parser)
    add_target_options(parser)


def run(options: argparse.Namespace) -> int:
    """Look, and print."""
    facts = asyncio.run(_look(options))
    if options.output in ("json", "yaml"):
        say(rendered({"links": link_documents(facts), "unseen": list(facts.unseen)}, options.output))
    else:
        show(link_lines(facts, wide=options.output == "wide", colour=has_colour()))
    return 0


async def _look(options: argparse.Namespace) -> GroupFacts:
    target = target_of(options)
    others = others_of(options, target)
    async with reached(target) as cluster:
        body = await find_group(cluster, target, options.name)
        return await read_facts(cluster, body, plans=True, others=others)
