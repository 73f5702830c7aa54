"""What `replace` and `scrub` have in common: an id, a request in the spec, and waiting for its end."""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sync_runtime.contract import patterns
from sync_runtime.contract.requests import Request, RequestStatus
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup.errors import CommandError
from syncgroup.looking.documents import add_output_option, rendered
from syncgroup.looking.reading import ask, read_group
from syncgroup.looking.requests import Asked, asked, progress
from syncgroup.looking.targets import Target
from syncgroup.output import complain, say
from syncgroup_operator.kube.client import Cluster

NOT_DONE_EXIT_CODE = 1
DEFAULT_TIMEOUT_S = 300.0
POLL_S = 0.5


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """How to ask."""
    parser.add_argument("--id", metavar="ID", help="of the request (a random one); the same id is carried out once")
    parser.add_argument("--wait", action="store_true", help="until it is over")
    parser.add_argument(
        "--timeout", type=float, default=DEFAULT_TIMEOUT_S, metavar="SECONDS",
        help=f"how long to wait ({DEFAULT_TIMEOUT_S:g})",
    )  # fmt: skip
    add_output_option(parser, ("json", "yaml"))


def request_id(options: argparse.Namespace, prefix: str) -> str:
    """The id that was given, or a new one."""
    if options.id is None:
        return f"{prefix}-{secrets.token_hex(4)}"
    if not re.fullmatch(patterns.DNS_LABEL, options.id) or len(options.id) > 63:
        raise CommandError(f"--id {options.id} must be at most 63 lower-case letters, digits and '-'")
    return str(options.id)


async def begin(cluster: Cluster, target: Target, name: str, wanted: Request, options: argparse.Namespace) -> int:
    """Write the request, and wait for its end if that is wanted."""
    done: list[Asked] = []

    def change(group: SyncGroup) -> Sequence[Mapping[str, Any]]:
        done[:] = [asked(group, wanted, own_id=options.id is not None)]  # the last try counts
        return done[0].requests

    group = await ask(cluster, target, name, change)
    found = done[0]
    what = f"{wanted.type} of {wanted.member}" if wanted.member else f"{wanted.type} of {group.key.name}"
    if options.output is None:
        verb = "was asked for before" if found.again else "is asked for"
        say(f"{what} {verb}: request {found.id}")
    state = progress(group, found.id)
    if options.wait:
        state = await _wait(cluster, target, name, found.id, options)
    if options.output is not None:
        document = (
            state.to_document() if state is not None else {"id": found.id, "type": wanted.type, "state": "Waiting"}
        )
        say(rendered(document, options.output))
    if not options.wait:
        return 0
    return 0 if state is not None and state.state == "Done" else NOT_DONE_EXIT_CODE


async def _wait(
    cluster: Cluster, target: Target, name: str, wanted_id: str, options: argparse.Namespace
) -> RequestStatus | None:
    end_s = asyncio.get_running_loop().time() + options.timeout
    told = ""
    while True:
        state = progress(await read_group(cluster, target, name), wanted_id)
        line = "the operator has not seen it yet" if state is None else f"{state.state}: {state.message}"
        if line != told and options.output is None:
            told = line
            say(f"  {line}")
        if state is not None and state.state in ("Done", "Refused"):
            return state
        if asyncio.get_running_loop().time() >= end_s:
            complain(f"it is not over after {options.timeout:g} s; it goes on: see `kubectl syncgroup why {name}`")
            return state
        await asyncio.sleep(POLL_S)
