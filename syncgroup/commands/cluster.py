"""`syncgroup cluster register|list|remove`: which remote clusters a hub may use, and for whom.

Only the words of the command line; the work is in `cluster_actions`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from pathlib import Path

from sync_runtime.contract import patterns
from sync_runtime.contract.names import LOCAL_CLUSTER
from syncgroup.actions import Action, add_actions, add_json, sentences
from syncgroup.commands import cluster_actions as actions
from syncgroup.commands.cluster_documents import Allowed
from syncgroup_operator.errors import OperatorError

NAMESPACE = "syncgroup-system"

_REGISTER = """Let the operator of this hub use another cluster.

In the remote cluster: a service account for the operator, its roles, the namespaces that are mapped, and a token. On
the hub: a Secret with a kubeconfig (server, CA and token, nothing else) and the SyncCluster. Everything is applied, so
that the same command may be given again; what it no longer says is taken back.

Your own kubeconfigs may log in by any plug-in: they are used by this command alone and stored nowhere.

The token is that of a Secret of type kubernetes.io/service-account-token. Such a token has no end. A token from the
TokenRequest API has one, often after an hour and at the latest when the API server says so, and the operator would need
the right to make tokens in order to renew it: whoever stole one token could then make more. This one dies with its
Secret: `--new-token` replaces it, `cluster remove` ends it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The three actions."""
    add_actions(
        parser,
        "Register, list and remove the remote clusters that SyncGroups may use.",
        (
            Action("register", "let the hub's operator use another cluster", _register, actions.register),
            Action("list", "the registered clusters, and whether they are connected", _list, actions.list_clusters),
            Action("remove", "take a registration back", _remove, actions.remove),
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Do it; every expected failure is one sentence."""
    with sentences(OperatorError):
        return int(asyncio.run(options.action(options)))


def _register(parser: argparse.ArgumentParser) -> None:
    parser.description = _REGISTER
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", type=_name, metavar="NAME", help="what SyncGroups call the cluster")
    _remote(parser, required=True)
    parser.add_argument("--region", type=_label, required=True, help="of the cluster, where its nodes have no label")
    parser.add_argument(
        "--allow", type=_allow, action="append", default=[], metavar="LOCAL[:REMOTE[:ACCOUNT,…]]",
        help="a namespace of the hub that may use the cluster, where its groups land there (the same name), and the "
        "service accounts that their pods may name (default); may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--store-secrets", action="store_true",
        help="let the operator keep copies of object stores' Secrets in those namespaces, for groups whose "
        "sync.objectStore names one; it can then read every Secret there",
    )  # fmt: skip
    parser.add_argument("--server", metavar="URL", help="address for the hub, where it is not that of your kubeconfig")
    parser.add_argument("--server-ca", type=Path, metavar="FILE", help="authority of that address, PEM")
    parser.add_argument("--new-token", action="store_true", help="replace the token; the old one ends at once")
    parser.add_argument(
        "--skip-check", action="store_true", help="do not try the new kubeconfig from here (another network)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be applied as YAML, and change nothing"
    )
    _hub(parser)


def _list(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the registered clusters; exit code 1 if one is not connected."
    add_json(parser)
    _hub(parser)


def _remove(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Remove the SyncCluster and its Secret from the hub, and, with --kubeconfig, the operator's account, token and "
        "rights from the remote cluster. Namespaces, roles and what runs there stay."
    )
    parser.add_argument("name", type=_name, metavar="NAME")
    _remote(parser, required=False)
    parser.add_argument("--force", action="store_true", help="although SyncGroups use it: their pods there run on")
    _hub(parser)


def _remote(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--kubeconfig", type=Path, required=required, metavar="FILE", help="your own, of the remote cluster"
    )
    parser.add_argument("--context", help="in that file (its current one)")
    parser.add_argument(
        "--remote-namespace", type=_label, default=NAMESPACE, metavar="NAME",
        help=f"of the operator's account in the remote cluster ({NAMESPACE})",
    )  # fmt: skip


def _hub(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hub-kubeconfig", type=Path, default=_own_kubeconfig(), metavar="FILE",
        help="your own, of the hub ($KUBECONFIG, or ~/.kube/config)",
    )  # fmt: skip
    parser.add_argument("--hub-context", help="in that file (its current one)")
    parser.add_argument("--namespace", type=_label, default=NAMESPACE, help=f"the operator's, on the hub ({NAMESPACE})")


def _own_kubeconfig() -> Path:
    first = next((path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path), "")
    return Path(first) if first else Path.home() / ".kube" / "config"


def _label(text: str) -> str:
    if not re.fullmatch(patterns.DNS_LABEL, text) or len(text) > 63:
        raise argparse.ArgumentTypeError(f"{text!r} must be at most 63 lower-case letters, digits and '-'")
    return text


def _name(text: str) -> str:
    if text == LOCAL_CLUSTER:
        raise argparse.ArgumentTypeError(f"{LOCAL_CLUSTER} means the hub itself: choose another name")
    return _label(text)


def _allow(text: str) -> Allowed:
    local, _, rest = text.partition(":")
    remote, _, accounts = rest.partition(":")
    remote = remote or local
    if remote.startswith("kube-"):
        raise argparse.ArgumentTypeError(f"{remote} is a namespace of Kubernetes itself: choose another one")
    named = tuple(dict.fromkeys(one for one in accounts.split(",") if one))
    for one in named:
        if not re.fullmatch(patterns.DNS_SUBDOMAIN, one):
            raise argparse.ArgumentTypeError(f"{one!r} is no name of a service account")
    return Allowed(_label(local), _label(remote), named or ("default",))
