"""What `syncgroup cluster` does, with the operator's own client: first everything is looked at, then it is written.

Every write is a server-side apply or a deletion bound to a uid, so that a command that was cut off may be given again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from sync_runtime.contract.names import SYNCCLUSTER_KIND
from syncgroup.commands.cluster_documents import (
    MANAGER,
    Document,
    Endpoint,
    Registration,
    hub_documents,
    kubeconfig,
    remote_documents,
    sync_cluster,
)
from syncgroup.commands.cluster_remote import (
    delete,
    delete_named,
    refuse_moves,
    remove_remote,
    try_kubeconfig,
    write_remote,
)
from syncgroup.errors import CommandError
from syncgroup.output import complain, say
from syncgroup_operator.errors import DeniedError, NotFoundError, UnreachableError
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.access import KubeconfigFile
from syncgroup_operator.kube.client import Cluster

NOT_CONNECTED_EXIT_CODE: Final = 1
_NO_TOKEN: Final = "TOKEN-OF-THE-REMOTE-CLUSTER"  # noqa: S105 stands for one in a dry run


async def register(options: argparse.Namespace) -> int:
    """Both sides, the remote one first: a SyncCluster that is there can be used."""
    locals_ = [one.local for one in options.allow]
    if len(set(locals_)) < len(locals_):
        raise CommandError("--allow: a namespace of the hub is given twice; it can land in one remote namespace only.")
    async with _hub(options) as hub:
        registration = await _registration(hub, options)
        remote_access = KubeconfigFile(options.kubeconfig, options.context)
        endpoint = _own_endpoint(options, await _endpoint(remote_access))
        if options.dry_run:
            _print_plan(registration, endpoint)
            return 0
        await _check_hub(hub, registration)
        async with _cluster(options.name, remote_access) as remote:
            await refuse_moves(hub, remote, registration)
            token = await write_remote(remote, registration, renew=options.new_token)
        text = kubeconfig(registration, endpoint, token)
        if not options.skip_check:
            await try_kubeconfig(text, registration)
        for document in hub_documents(registration, text):
            await hub.apply(document, manager=MANAGER)
    allowed = ", ".join(f"{one.local} → {one.remote}" for one in registration.allowed) or "no namespace (give --allow)"
    say(f"{options.name} is registered; it may be used by {allowed}")
    return 0


async def list_clusters(options: argparse.Namespace) -> int:
    """One line per cluster."""
    async with _hub(options) as hub:
        found = await _sync_clusters(hub)
    rows = [_row(body) for body in sorted(found, key=lambda body: str(body["metadata"]["name"]))]
    if options.json:
        say(json.dumps(rows, indent=1))
    else:
        say(_table(rows) if rows else "no cluster is registered: syncgroup cluster register NAME …")
    return 0 if all(row["connected"] == "True" for row in rows) else NOT_CONNECTED_EXIT_CODE


async def remove(options: argparse.Namespace) -> int:
    """The hub's side first: an operator that no longer looks there cannot be surprised."""
    async with _hub(options) as hub:
        registration = await _registration(hub, options)
        found = next((one for one in await _sync_clusters(hub) if one["metadata"]["name"] == options.name), None)
        users = await _users(hub, options.name)
        if users and not options.force:
            raise CommandError(
                f"{options.name} is used by {', '.join(users[:8])}: change these SyncGroups first, or give --force; "
                "their pods there would run on, out of reach."
            )
        if found is None:
            complain(f"the hub has no SyncCluster {options.name}")
        else:
            await delete(hub, kinds.SYNC_CLUSTER, found)
            secret = found["spec"]["kubeconfigSecretRef"]["name"]
            await delete_named(hub, kinds.SECRET, options.namespace, secret, registration.labels)
    if options.kubeconfig is None:
        say(f"{options.name} is removed from the hub. Its token still works: in the remote cluster, delete Secret and")
        say(f"ServiceAccount {registration.account} in namespace {registration.remote_namespace}, or give --kubeconfig")
        return 0
    async with _cluster(options.name, KubeconfigFile(options.kubeconfig, options.context)) as remote:
        await remove_remote(remote, registration)
    say(f"{options.name} is removed from the hub, and the operator's account from the cluster")
    return 0


# --- connections ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _cluster(name: str, access: KubeconfigFile) -> AsyncIterator[Cluster]:
    """A client whose errors are sentences for a person."""
    cluster = Cluster(name, access)
    try:
        yield cluster
    except UnreachableError as error:
        if error.cluster != name:
            raise
        raise CommandError(f"{_which(name)} cannot be reached: {error}. Is {access.path} the right file?") from error
    except DeniedError as error:
        if error.cluster != name:
            raise
        hint = "log in again" if error.status == 401 else "ask an administrator of that cluster to run this command"
        raise CommandError(f"you lack rights in {_which(name)}: {error}; {hint}.") from error
    finally:
        await cluster.close()


def _hub(options: argparse.Namespace) -> contextlib.AbstractAsyncContextManager[Cluster]:
    return _cluster("hub", KubeconfigFile(options.hub_kubeconfig, options.hub_context))


def _which(name: str) -> str:
    return "the hub" if name == "hub" else f"the remote cluster {name}"


async def _endpoint(access: KubeconfigFile) -> tuple[Endpoint, bool]:
    """Server and authority of a person's kubeconfig, whatever else is in it; whether it checks the server at all."""
    client = await access.open()
    try:
        found = client.configuration
        authority = _text(Path(found.ssl_ca_cert)) if found.ssl_ca_cert else None
        return Endpoint(found.host.rstrip("/"), authority, found.tls_server_name or None), bool(found.verify_ssl)
    except (OSError, ValueError) as error:
        raise CommandError(f"the authority of {access.path} cannot be read: {error}") from error
    finally:
        await client.close()  # type: ignore[no-untyped-call]


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii")


def _own_endpoint(options: argparse.Namespace, found: tuple[Endpoint, bool]) -> Endpoint:
    endpoint, verified = found
    server, authority = options.server or endpoint.server, endpoint.authority_pem
    if options.server_ca is not None:
        try:
            authority = _text(options.server_ca)
        except (OSError, ValueError) as error:
            raise CommandError(f"--server-ca {options.server_ca} cannot be read: {error}") from error
    if not verified and options.server_ca is None:
        raise CommandError(
            f"{options.kubeconfig} does not check who the API server is (insecure-skip-tls-verify): the operator must. "
            "Give its authority with --server-ca FILE."
        )
    if not server.startswith("https://"):
        raise CommandError(f"the API server's address {server} must start with https://; see --server.")
    return Endpoint(server.rstrip("/"), authority, None if options.server else endpoint.tls_server_name)


# --- the hub ----------------------------------------------------------------------------------------------------------


async def _registration(hub: Cluster, options: argparse.Namespace) -> Registration:
    system = await hub.get(kinds.NAMESPACE, "", "kube-system")
    return Registration(
        name=options.name,
        region=getattr(options, "region", ""),
        hub_id=str(system["metadata"]["uid"]),
        hub_namespace=options.namespace,
        remote_namespace=options.remote_namespace,
        allowed=tuple(getattr(options, "allow", ())),
        store_secrets=getattr(options, "store_secrets", False),
    )


async def _check_hub(hub: Cluster, registration: Registration) -> None:
    """What would fail at the end, found at the beginning."""
    await _sync_clusters(hub)
    try:
        await hub.get(kinds.NAMESPACE, "", registration.hub_namespace)
    except NotFoundError as error:
        raise CommandError(
            f"the hub has no namespace {registration.hub_namespace}: install the operator first, or name its namespace "
            "with --namespace."
        ) from error


async def _sync_clusters(hub: Cluster) -> list[Document]:
    try:
        return await hub.list_all(kinds.SYNC_CLUSTER)
    except NotFoundError as error:
        raise CommandError(
            f"the hub does not know the kind {SYNCCLUSTER_KIND}: apply what `syncgroup crds` prints there first."
        ) from error


async def _users(hub: Cluster, name: str) -> list[str]:
    found = []
    for body in await hub.list_all(kinds.SYNC_GROUP):
        spec = body["spec"]
        rollouts = spec.get("rollouts") or ()
        places = [spec["trainer"], *rollouts]
        places += [one for rollout in rollouts for one in (rollout.get("placement") or {}).get("fallback") or ()]
        if any(place.get("cluster") == name for place in places):
            found.append(f"{body['metadata']['namespace']}/{body['metadata']['name']}")
    return sorted(found)


def _row(body: Mapping[str, Any]) -> dict[str, Any]:
    status, spec = body.get("status") or {}, body["spec"]
    conditions = status.get("conditions") or ()
    connected: Mapping[str, Any] = next((one for one in conditions if one["type"] == "Connected"), {})
    return {
        "name": body["metadata"]["name"],
        "region": spec["region"],
        "connected": connected.get("status", "Unknown"),
        "version": status.get("kubernetesVersion", ""),
        "lostTime": status.get("lostTime", ""),
        "allowed": [f"{one['local']}:{one['remote']}" for one in spec.get("allowedNamespaces") or ()],
        "message": connected.get("message", "the operator has not looked at it yet"),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("NAME", "REGION", "CONNECTED", "VERSION", "ALLOWED", "MESSAGE")
    cells = [
        (row["name"], row["region"], row["connected"], row["version"], ",".join(row["allowed"]) or "-", row["message"])
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (head, *cells)) for column in range(len(head))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in (head, *cells))
    return "\n".join(line.rstrip() for line in lines)


def _print_plan(registration: Registration, endpoint: Endpoint) -> None:
    """Documents as YAML, with a word in the token's place: a dry run makes none."""
    say(f"# in the remote cluster {registration.name}")
    say(_yaml(remote_documents(registration)))
    say("---\n# on the hub")
    text = kubeconfig(registration, endpoint, _NO_TOKEN)
    secret, _ = hub_documents(registration, text)
    plain = {key: value for key, value in secret.items() if key != "data"} | {"stringData": {"kubeconfig": text}}
    say(_yaml((plain, sync_cluster(registration))))


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as such."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _yaml(documents: Iterable[Document]) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)
