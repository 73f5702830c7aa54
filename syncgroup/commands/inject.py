"""`kubectl syncgroup inject -f pod.yaml`: the pod as the operator would make it. Needs no cluster."""

from __future__ import annotations

import argparse
import difflib
from typing import Any

import yaml

from sync_runtime.contract.names import SYNCGROUP_KIND
from syncgroup.commands.library import library_hash
from syncgroup.errors import BAD_INPUT_EXIT_CODE, CommandError
from syncgroup.looking.documents import add_output_option, rendered
from syncgroup.looking.inject import group_with, injected_pod, template_of
from syncgroup.looking.showing import has_colour
from syncgroup.manifests import read_documents
from syncgroup.output import complain, say
from syncgroup.terminal import Tone, painted
from syncgroup_operator.settings import DEFAULT_IMAGE


def configure(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.description = (
        "Print a pod as the operator would make it: with the sidecar, the library, their volumes and labels. Needs no "
        "cluster. Exit code 0: printed, 2: the operator would refuse it, and why."
    )
    parser.add_argument("-f", "--filename", required=True, metavar="FILE", help="a Pod or a workload; - for stdin")
    parser.add_argument("--group", metavar="FILE", help="a SyncGroup whose settings hold (every default)")
    parser.add_argument("--role", metavar="NAME", help="trainer, or the rollout that it is a pod of (the first)")
    parser.add_argument("--image", default=DEFAULT_IMAGE, help=f"of the runtime ({DEFAULT_IMAGE})")
    parser.add_argument("--diff", action="store_true", help="print what is added, as a unified diff")
    add_output_option(parser, ("yaml", "json"))


def run(options: argparse.Namespace) -> int:
    """Print it."""
    given = _only(options.filename, None)
    template = template_of(given, options.filename)
    group = None if options.group is None else _only(options.group, SYNCGROUP_KIND)
    resource, role = group_with(group, options.role, template)
    pod, problems = injected_pod(resource, role, image=options.image, library_hash=library_hash())
    for problem in problems:
        complain(f"{problem.field}: {problem.message} ({problem.reason})")
    if pod is None:
        return BAD_INPUT_EXIT_CODE
    if options.diff:
        before = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]}
        say("\n".join(_diff(before, pod, options.filename)))
    else:
        say(rendered(pod, options.output or "yaml"))
    return 0


def _only(source: str, kind: str | None) -> dict[str, Any]:
    found = [one.content for one in read_documents(source) if isinstance(one.content, dict)]
    found = [one for one in found if kind is None or one.get("kind") == kind]
    if len(found) != 1:
        raise CommandError(f"{source} must hold one {kind or 'Pod or workload'}, and holds {len(found)}")
    return found[0]


def _diff(before: dict[str, Any], after: dict[str, Any], source: str) -> list[str]:
    old, new = (yaml.safe_dump(one, sort_keys=True, allow_unicode=True).splitlines() for one in (before, after))
    lines = difflib.unified_diff(old, new, source, "as the operator makes it", lineterm="", n=3)
    tones: dict[str, Tone] = {"+": "good", "-": "bad", "@": "dim"}
    return [painted(line, tones.get(line[:1], "plain"), colour=has_colour()) for line in lines]
