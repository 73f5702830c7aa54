"""`syncgroup explain -f group.yaml [--links links.yaml]`: the plan that the operator would make, and why."""

from __future__ import annotations

import argparse
from typing import Any

from pydantic import ValidationError

from sync_runtime.contract.documents import load_resource
from sync_runtime.contract.errors import InvalidDocumentError
from sync_runtime.contract.names import GROUP_VERSION, SYNCGROUP_KIND
from sync_runtime.contract.problems import problems_of
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup.errors import CommandError
from syncgroup.manifests import read_documents
from syncgroup.output import say
from syncgroup_operator.explain import LinkFile, MeasuredLink, explain


def configure(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.description = (
        "Print where members would be, who dials whom, and codec, streams and bucket size per link, with the reasons. "
        "Needs no cluster."
    )
    parser.add_argument(
        "-f", "--filename", required=True, metavar="FILE", help="YAML or JSON with one SyncGroup or more; - for stdin"
    )
    parser.add_argument(
        "--links",
        metavar="FILE",
        help="YAML with measured links: fromRegion, toRegion, capacityBitsPerSecond, rttMicros",
    )


def run(options: argparse.Namespace) -> int:
    """One explanation per SyncGroup of the file."""
    groups = _groups(options.filename)
    links = _links(options.links) if options.links else []
    for number, group in enumerate(groups):
        say("\n".join([*([""] if number else []), *explain(group, links)]))
    return 0


def _groups(source: str) -> list[SyncGroup]:
    found = []
    for document in read_documents(source):
        content = document.content
        if not _is_group(content):
            continue
        try:
            resource = load_resource(content)
        except InvalidDocumentError as error:
            raise CommandError(f"{source}: {error}") from error
        if isinstance(resource, SyncGroup):
            found.append(resource)
    if not found:
        raise CommandError(f"{source} holds no {SYNCGROUP_KIND} of {GROUP_VERSION}")
    return found


def _is_group(content: Any) -> bool:
    """Files often hold a Namespace or a SyncCluster beside the group; what names no kind is judged as one."""
    return not isinstance(content, dict) or content.get("kind", SYNCGROUP_KIND) == SYNCGROUP_KIND


def _links(source: str) -> list[MeasuredLink]:
    documents = list(read_documents(source))
    if len(documents) != 1 or not isinstance(documents[0].content, dict):
        raise CommandError(f"{source} must hold one document with `links:`, a list of measured links")
    try:
        return LinkFile.parse(documents[0].content).links
    except ValidationError as error:
        problems = "; ".join(str(problem) for problem in problems_of(error, LinkFile))
        raise CommandError(f"{source} is not valid: {problems}") from error
