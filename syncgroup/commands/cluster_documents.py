"""Everything that a registered cluster consists of, as documents: in the remote cluster, and on the hub.

Pure: no client, no clock. Names hold the cluster's name and the hub's, so that several hubs may register one cluster,
or one hub twice, and each registration can be taken back alone. Roles come from `syncgroup_operator.manifests.roles`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from sync_runtime.contract import names
from syncgroup_operator.manifests import roles

Document = dict[str, Any]

REGISTRATION_LABEL: Final = f"{names.API_GROUP}/registration"
HUB_LABEL: Final = f"{names.API_GROUP}/hub"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "syncgroup-register"
TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 a type, no secret
ACCOUNT_ANNOTATION: Final = "kubernetes.io/service-account.name"
STORE_SUFFIX: Final = "-store"
"""Of the bindings that let the operator keep copies of object stores' Secrets."""
_HUB_LENGTH: Final = 8


@dataclass(frozen=True)
class Allowed:
    """One `--allow`: a namespace of the hub, where its groups land, and as whom their pods may run."""

    local: str
    remote: str
    service_accounts: tuple[str, ...] = ("default",)


@dataclass(frozen=True)
class Registration:
    """One cluster as it is to be registered."""

    name: str
    region: str
    hub_id: str
    hub_namespace: str
    """The operator's own, on the hub."""
    remote_namespace: str
    """Where the operator's account lives in the remote cluster."""
    allowed: tuple[Allowed, ...] = ()
    store_secrets: bool = False
    """Whether the operator may keep copies of object stores' Secrets in the mapped namespaces."""

    @property
    def account(self) -> str:
        """The operator's service account there; its token's Secret and its bindings have the same name."""
        return f"syncgroup-{self.name}-{self.hub_id[:_HUB_LENGTH]}"

    @property
    def secret(self) -> str:
        """The kubeconfig's Secret on the hub."""
        return f"{self.name}-kubeconfig"

    @property
    def labels(self) -> dict[str, str]:
        """On all that belongs to this registration alone."""
        return {MANAGED_BY_LABEL: MANAGER, REGISTRATION_LABEL: self.name, HUB_LABEL: self.hub_id}

    @property
    def mapped(self) -> tuple[str, ...]:
        """The remote namespaces, each once."""
        return tuple(sorted({one.remote for one in self.allowed}))


@dataclass(frozen=True)
class Endpoint:
    """How the hub reaches the API server of the remote cluster."""

    server: str
    authority_pem: str | None = None
    """None: the server's certificate is of an authority that everybody trusts."""
    tls_server_name: str | None = None


def remote_documents(registration: Registration) -> tuple[Document, ...]:
    """What the remote cluster needs, in the order of creation."""
    spaces = sorted({registration.remote_namespace, *registration.mapped})
    files = roles.role_documents()
    return (
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in spaces),
        *files["remote.yaml"],
        *files["member.yaml"],
        *(files["store.yaml"] if registration.store_secrets else ()),
        _owned(registration, "v1", "ServiceAccount", registration.remote_namespace),
        token_secret(registration),
        *bindings(registration),
    )


def token_secret(registration: Registration) -> Document:
    """The Secret that the remote cluster fills with a token."""
    document = _owned(registration, "v1", "Secret", registration.remote_namespace)
    document["metadata"]["annotations"] = {ACCOUNT_ANNOTATION: registration.account}
    return {**document, "type": TOKEN_TYPE}


def bindings(registration: Registration) -> tuple[Document, ...]:
    """The account's rights, and those of members to ask for certificates."""
    account, space = registration.account, registration.remote_namespace
    everywhere = _named(roles.cluster_role_binding(roles.REMOTE_ROLE, account, space), registration)
    local = (
        _named(roles.role_binding(roles.REMOTE_MEMBERS_ROLE, account, space, one, kind="ClusterRole"), registration)
        for one in registration.mapped
    )
    stores = (
        _named(
            roles.role_binding(roles.STORE_SECRETS_ROLE, account, space, one, kind="ClusterRole"),
            registration,
            STORE_SUFFIX,
        )
        for one in (registration.mapped if registration.store_secrets else ())
    )
    # Not this registration's alone: every hub that uses the namespace wants the same one.
    members = (roles.member_binding(one) for one in registration.mapped)
    return (everywhere, *local, *stores, *members)


def kubeconfig(registration: Registration, endpoint: Endpoint, token: str) -> str:
    """Server, authority and token, and nothing that could run a program."""
    cluster: Document = {"server": endpoint.server}
    if endpoint.authority_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(endpoint.authority_pem.encode()).decode()
    if endpoint.tls_server_name is not None:
        cluster["tls-server-name"] = endpoint.tls_server_name
    name = registration.name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": registration.account, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": registration.account}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def hub_documents(registration: Registration, kubeconfig_text: str) -> tuple[Document, ...]:
    """What the hub needs: the Secret first, so that the SyncCluster never points at nothing."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": registration.secret,
            "namespace": registration.hub_namespace,
            "labels": registration.labels,
        },
        "type": "Opaque",
        "data": {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig_text.encode()).decode()},
    }
    return (secret, sync_cluster(registration))


def sync_cluster(registration: Registration) -> Document:
    """The SyncCluster."""
    allowed = [
        {"local": one.local, "remote": one.remote, "serviceAccounts": list(one.service_accounts)}
        for one in registration.allowed
    ]
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCCLUSTER_KIND,
        "metadata": {"name": registration.name},
        "spec": {
            "kubeconfigSecretRef": {"name": registration.secret, "key": names.KUBECONFIG_KEY},
            "region": registration.region,
            "allowedNamespaces": allowed,
        },
    }


def stale(found: Iterable[Mapping[str, Any]], registration: Registration) -> list[tuple[str, str, str]]:
    """Bindings of this registration in namespaces that it no longer maps, or of rights that it no longer gives.

    As (namespace, name, uid).
    """
    without = None if registration.store_secrets else f"{registration.account}{STORE_SUFFIX}"
    return [
        (one["namespace"], one["name"], one["uid"])
        for one in (body["metadata"] for body in found)
        if one["namespace"] not in registration.mapped or one["name"] == without
    ]


def selector(registration: Registration) -> str:
    """Finds what belongs to this registration."""
    return ",".join(f"{key}={value}" for key, value in registration.labels.items())


def _owned(registration: Registration, api_version: str, kind: str, namespace: str) -> Document:
    metadata = {"name": registration.account, "namespace": namespace, "labels": registration.labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _named(binding: Document, registration: Registration, suffix: str = "") -> Document:
    """A binding under the registration's own name; subjects are one list, which two hubs would take from each other."""
    metadata = binding["metadata"] | {"name": f"{registration.account}{suffix}", "labels": registration.labels}
    return {**binding, "metadata": metadata}
