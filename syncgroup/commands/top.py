"""`kubectl syncgroup top [NAME]`: versions, lag, links and leases of groups, live on a terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Mapping

from syncgroup.errors import CommandError
from syncgroup.looking.documents import add_output_option, rendered
from syncgroup.looking.facts import GroupFacts
from syncgroup.looking.reading import find_group, list_bodies, reached, read_facts
from syncgroup.looking.showing import has_colour, is_terminal, show, show_live
from syncgroup.looking.targets import Target, add_target_options, target_of
from syncgroup.looking.top import group_document, group_lines, groups_lines
from syncgroup.output import say
from syncgroup_operator.kube.client import Cluster

EVERY_S = 2.0
LEAST_S = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    """What to look at, and how."""
    parser.description = (
        "Regions, members, versions, lag, links, streams, bucket sizes and lease ages. Live on a terminal (Ctrl-C ends "
        "it); once where the output is piped. Exit code 0."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="of a SyncGroup: its members too (all groups)")
    parser.add_argument("--once", action="store_true", help="print once, also on a terminal")
    parser.add_argument(
        "--every", type=_seconds, default=EVERY_S, metavar="SECONDS", help=f"between looks ({EVERY_S:g})"
    )
    add_others_option(parser)
    add_output_option(parser)
    add_target_options(parser, all_namespaces=True)


def run(options: argparse.Namespace) -> int:
    """Look."""
    live = is_terminal() and not options.once and options.output in (None, "wide")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options, target_of(options), live=live))
    return 0


async def _run(options: argparse.Namespace, target: Target, *, live: bool) -> None:
    others = others_of(options, target)
    async with reached(target) as cluster:
        wide = options.output == "wide"

        async def lines() -> list[str]:
            groups = await _look(cluster, target, options, others)
            if options.name is not None:
                return group_lines(groups[0], wide=wide, colour=has_colour())
            if not groups:
                where = f"in namespace {target.namespace}" if target.namespace else "in this cluster"
                return [f"there is no SyncGroup {where}"]
            return groups_lines(groups, wide=wide, colour=has_colour())

        if live:
            await show_live(lines, options.every)
        elif options.output in ("json", "yaml"):
            documents = [group_document(one) for one in await _look(cluster, target, options, others)]
            say(rendered(documents[0] if options.name is not None else {"groups": documents}, options.output))
        else:
            show(await lines())


async def _look(
    cluster: Cluster, target: Target, options: argparse.Namespace, others: Mapping[str, Target]
) -> list[GroupFacts]:
    if options.name is not None:
        return [await read_facts(cluster, await find_group(cluster, target, options.name), others=others)]
    bodies = await list_bodies(cluster, target)
    # Leases of many groups are many requests: the table of all groups has them for programs and `wide` alone.
    members = options.output is not None or len(bodies) <= 10
    return [await read_facts(cluster, body, members=members, others=others if members else {}) for body in bodies]


def add_others_option(parser: argparse.ArgumentParser) -> None:
    """Members of other clusters."""
    parser.add_argument(
        "--remote", action="append", default=[], metavar="CLUSTER=CONTEXT",
        help="see the members in a SyncCluster through this context of yours; may be given again",
    )  # fmt: skip


def others_of(options: argparse.Namespace, target: Target) -> dict[str, Target]:
    """Where members of other clusters can be seen; in all namespaces, since the mapping is not the person's to know."""
    found = {}
    for text in options.remote:
        cluster, equals, context = text.partition("=")
        if not equals or not cluster or not context:
            raise CommandError(f"--remote {text}: give CLUSTER=CONTEXT, for example --remote eu=gke-eu")
        found[cluster] = Target(target.kubeconfig, context, "")
    return found


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not LEAST_S <= found <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} must be {LEAST_S:g} to 3600 seconds")
    return found
