"""Which API server and which namespace a person means: the options of kubectl, read as kubectl reads them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from syncgroup.errors import CommandError

DEFAULT_NAMESPACE = "default"
_HOW = "give --kubeconfig FILE, set KUBECONFIG, or make one with your cluster's own tool"


class Target(NamedTuple):
    """An API server as a person names it."""

    kubeconfig: str
    """One file, or several with the system's separator between them, as in KUBECONFIG."""
    context: str
    namespace: str
    """The chosen one; empty: all of them."""


def add_target_options(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    """kubectl's own words."""
    group = parser.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", metavar="NAME", help="of the SyncGroup (that of the context)")
    if all_namespaces:
        group.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    group.add_argument("--context", metavar="NAME", help="in the kubeconfig (its current one)")
    group.add_argument("--kubeconfig", metavar="FILE", help="yours ($KUBECONFIG, or ~/.kube/config)")


def target_of(options: argparse.Namespace) -> Target:
    """What the options and the kubeconfig say together; raises CommandError."""
    paths = _paths(options.kubeconfig)
    documents = [_read(path) for path in paths]
    current = next((str(one["current-context"]) for one in documents if one.get("current-context")), "")
    context = options.context or current
    if not context:
        raise CommandError(f"{paths[0]} has no current context: give --context NAME, or `kubectl config use-context`.")
    contexts = dict(_contexts(documents))
    if context not in contexts:
        known = ", ".join(sorted(contexts)[:8]) or "none"
        raise CommandError(f"the kubeconfig has no context {context}; it has: {known}.")
    everywhere = getattr(options, "all_namespaces", False)
    named = options.namespace or contexts[context].get("namespace") or DEFAULT_NAMESPACE
    return Target(os.pathsep.join(map(str, paths)), context, "" if everywhere else str(named))


def _paths(given: str | None) -> list[Path]:
    if given is not None:
        path = Path(given)
        if not path.is_file():
            raise CommandError(f"there is no kubeconfig {path}: {_HOW}.")
        return [path]
    named = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    wanted = named or [Path.home() / ".kube" / "config"]
    found = [path for path in wanted if path.is_file()]
    if not found:
        raise CommandError(f"there is no kubeconfig ({', '.join(map(str, wanted))}): {_HOW}.")
    return found


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"the kubeconfig {path} cannot be read: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise CommandError(f"the kubeconfig {path} is no mapping: is it another file?")
    return found


def _contexts(documents: list[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in reversed(documents):  # the first file that names a context wins
        for entry in document.get("contexts") or ():
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                context = entry.get("context")
                yield entry["name"], context if isinstance(context, dict) else {}
