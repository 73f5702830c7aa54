"""`kubectl syncgroup trace NAME [VERSION]`: one version's way from extraction to activation, as a waterfall."""

from __future__ import annotations

import argparse
import asyncio
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from sync_runtime.contract.syncgroup import SyncGroup
from sync_runtime.telemetry.waterfall import (
    Trace,
    TraceDocumentError,
    newest,
    read_traces,
    search_path,
    to_svg,
    to_text,
)
from syncgroup.errors import CommandError
from syncgroup.looking.documents import rendered
from syncgroup.looking.reading import find_group, parsed, reached
from syncgroup.looking.showing import width
from syncgroup.looking.targets import add_target_options, target_of
from syncgroup.output import say

QUERY_PORT = 16686
TIMEOUT_S = 20.0
MAX_ANSWER_BYTES = 64 << 20
_FORWARD = (
    "an address inside the cluster is not one of yours: `kubectl port-forward service/NAME 16686`, then "
    f"--backend http://127.0.0.1:{QUERY_PORT}"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Which version, and where."""
    parser.description = (
        "Find the trace of a version in the group's trace backend (Jaeger's query API) and print it as a waterfall. "
        "Exit code 0: printed, 1: the backend has none, 2: it cannot be asked."
    )
    parser.add_argument("name", metavar="NAME", help="of the SyncGroup")
    parser.add_argument("version", nargs="?", type=_seq, metavar="VERSION", help="its number (the newest that has one)")
    parser.add_argument(
        "--backend", metavar="URL",
        help="of the query API (spec.telemetry.queryEndpoint, or the OTLP endpoint's host at port 16686)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", choices=("json", "yaml", "svg"), metavar="json|yaml|svg", help="how to print it"
    )
    parser.add_argument("--ascii", action="store_true", help="bars without Unicode")
    add_target_options(parser)


def run(options: argparse.Namespace) -> int:
    """Ask, and print."""
    group = asyncio.run(_group(options))
    base = backend_of(group, options.backend)
    document = fetched(base, search_path(group_uid=str(group.metadata.uid), seq=options.version))
    try:
        trace = newest(read_traces(document))
    except TraceDocumentError as error:
        raise CommandError(f"{base} answers with something that is no trace: {error}") from error
    if trace is None:
        which = "any version" if options.version is None else f"version {options.version}"
        say(f"{base} has no trace of {which} of {group.key.namespace}/{group.key.name} from the last two days")
        return 1
    say("\n".join(_shown(trace, document, options)))
    return 0


def backend_of(group: SyncGroup, given: str | None) -> str:
    """The base URL of the query API."""
    telemetry = group.spec.telemetry
    base = given or telemetry.query_endpoint
    if base is None and telemetry.endpoint is None:
        raise CommandError(
            f"{group.key.name} sends no traces: set spec.telemetry.endpoint, or name a backend with --backend URL"
        )
    if base is None:
        host = urlsplit(telemetry.endpoint or "").hostname or ""
        base = f"http://{f'[{host}]' if ':' in host else host}:{QUERY_PORT}"
    if urlsplit(base).scheme not in ("http", "https") or not urlsplit(base).hostname:
        raise CommandError(f"--backend {base} must be a URL such as http://127.0.0.1:{QUERY_PORT}")
    return base.rstrip("/")


def fetched(base: str, path: str) -> Any:
    """What the backend answers; raises CommandError."""
    try:
        with urllib.request.urlopen(base + path, timeout=TIMEOUT_S) as answer:  # noqa: S310 the scheme was checked
            data = answer.read(MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise CommandError(f"{base} answers {error.code}: is it a Jaeger query API?") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise CommandError(f"{base} cannot be asked ({reason}); {_FORWARD}") from error
    if len(data) > MAX_ANSWER_BYTES:
        raise CommandError(f"{base} answers with more than {MAX_ANSWER_BYTES >> 20} MiB: ask for one VERSION")
    try:
        return json.loads(data)
    except ValueError as error:
        raise CommandError(f"{base} answers with something that is no JSON: is it a Jaeger query API?") from error


def _shown(trace: Trace, document: Any, options: argparse.Namespace) -> tuple[str, ...]:
    if options.output == "svg":
        return (to_svg(trace),)
    if options.output is not None:
        return (rendered(document, options.output),)
    return to_text(trace, width=width(), ascii_only=options.ascii)


async def _group(options: argparse.Namespace) -> SyncGroup:
    target = target_of(options)
    async with reached(target) as cluster:
        return parsed(await find_group(cluster, target, options.name))


def _seq(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise argparse.ArgumentTypeError(f"{text!r} is no version: give its number, such as 128")
    return int(text)
