"""The remote cluster's side of a registration: the operator's account, its rights and its token.

Knows clients and documents, not the command line.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from sync_runtime.contract.names import LABEL_CLUSTER, LABEL_GROUP_NAMESPACE, LABEL_GROUP_UID
from syncgroup.commands.cluster_documents import (
    MANAGER,
    Document,
    Registration,
    remote_documents,
    selector,
    stale,
    token_secret,
)
from syncgroup.errors import CommandError
from syncgroup.output import complain
from syncgroup_operator.errors import ApiError, ConflictError, DeniedError, NotFoundError
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.access import from_kubeconfig
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import Kind

TOKEN_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.2
CHECK_TIMEOUT_S: Final = 15.0
"""A token and its rights are known to every API server of a cluster after moments."""


async def refuse_moves(hub: Cluster, remote: Cluster, registration: Registration) -> None:
    """A mapping that changes would leave what runs in the old namespace behind, out of the operator's sight."""
    try:
        before = await hub.get(kinds.SYNC_CLUSTER, "", registration.name)
    except NotFoundError:
        return
    wanted = {one.local: one.remote for one in registration.allowed}
    for entry in before["spec"].get("allowedNamespaces") or ():
        local, old = entry["local"], entry["remote"]
        if wanted.get(local) == old:
            continue
        query = f"{LABEL_GROUP_NAMESPACE}={local},{LABEL_CLUSTER}={registration.name}"
        pods = await remote.list_all(kinds.POD, old, label_selector=query)
        if pods:
            raise CommandError(
                f"{len(pods)} pods of groups in {local} run in {registration.name}, namespace {old}: suspend or delete "
                f"these groups before you take --allow {local}:{old} back."
            )


async def write_remote(remote: Cluster, registration: Registration, *, renew: bool) -> str:
    if renew:
        secret = token_secret(registration)["metadata"]
        await delete_named(remote, kinds.SECRET, secret["namespace"], secret["name"], registration.labels)
    for document in remote_documents(registration):
        await remote.apply(document, manager=MANAGER)
    for namespace, name, uid in stale(await _role_bindings(remote, registration), registration):
        with contextlib.suppress(NotFoundError, ConflictError):
            await remote.delete(kinds.ROLE_BINDING, namespace, name, uid=uid)
    return await _token(remote, registration)


async def _role_bindings(remote: Cluster, registration: Registration) -> list[Document]:
    return await remote.list_all(kinds.ROLE_BINDING, label_selector=selector(registration))


async def _token(remote: Cluster, registration: Registration) -> str:
    """The token, once the cluster's controller has made it."""
    deadline_s = asyncio.get_running_loop().time() + TOKEN_TIMEOUT_S
    while asyncio.get_running_loop().time() < deadline_s:
        secret = await remote.get(kinds.SECRET, registration.remote_namespace, registration.account)
        encoded = (secret.get("data") or {}).get("token")
        if encoded:
            try:
                return base64.b64decode(encoded, validate=True).decode("ascii")
            except (binascii.Error, ValueError) as error:
                raise CommandError(f"Secret {registration.account} of {registration.name} holds no token.") from error
        await asyncio.sleep(POLL_S)
    raise CommandError(
        f"{registration.name} made no token for Secret {registration.account} in {TOKEN_TIMEOUT_S:.0f} s: its "
        "controller-manager must run the service account token controller."
    )


async def try_kubeconfig(text: str, registration: Registration) -> None:
    """Use the new kubeconfig as the operator will: one that it would refuse, or that has no rights, is no use."""
    cluster = Cluster(registration.name, from_kubeconfig(text))
    deadline_s = asyncio.get_running_loop().time() + CHECK_TIMEOUT_S
    try:
        while True:
            try:
                await cluster.list_all(kinds.CERTIFICATE_REQUEST)
                for namespace in registration.mapped:
                    await cluster.list_all(kinds.LEASE, namespace, label_selector=LABEL_GROUP_UID)
            except ApiError as error:
                if not isinstance(error, DeniedError) or asyncio.get_running_loop().time() > deadline_s:
                    raise CommandError(
                        f"the new kubeconfig does not work from here: {error}. The SyncCluster was not created; give "
                        "--server the address that the hub uses, or --skip-check if only the hub can reach it."
                    ) from error
                await asyncio.sleep(POLL_S)
            else:
                return
    finally:
        await cluster.close()


async def remove_remote(remote: Cluster, registration: Registration) -> None:
    for body in await _role_bindings(remote, registration):
        await delete(remote, kinds.ROLE_BINDING, body)
    name, space = registration.account, registration.remote_namespace
    await delete_named(remote, kinds.CLUSTER_ROLE_BINDING, "", name, registration.labels)
    await delete_named(remote, kinds.SECRET, space, name, registration.labels)
    await delete_named(remote, kinds.SERVICE_ACCOUNT, space, name, registration.labels)


async def delete_named(cluster: Cluster, kind: Kind, namespace: str, name: str, labels: Mapping[str, str]) -> None:
    """Delete an object if it is one of ours."""
    try:
        body = await cluster.get(kind, namespace, name)
    except NotFoundError:
        return
    found = body["metadata"].get("labels") or {}
    if all(found.get(key) == value for key, value in labels.items()):
        await delete(cluster, kind, body)
    else:
        complain(f"{kind.kind} {name} was not made by `cluster register` and stays")


async def delete(cluster: Cluster, kind: Kind, body: Mapping[str, Any]) -> None:
    metadata = body["metadata"]
    with contextlib.suppress(NotFoundError, ConflictError):
        await cluster.delete(kind, metadata.get("namespace") or "", metadata["name"], uid=metadata["uid"])
