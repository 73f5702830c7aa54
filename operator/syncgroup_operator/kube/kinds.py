"""The kinds that the operator touches, and where the API serves them.

A static table and not discovery: the operator knows what it creates, and discovery is one more thing that can be stale
or slow on a remote cluster. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from sync_runtime.contract import names
from syncgroup_operator.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def root(self) -> str:
        """The path of its group and version."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    @property
    def group(self) -> str:
        """The API group; empty for the core one."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a collection, an object or one of its subresources.

        A namespaced kind without a namespace means all namespaces, which only a collection can have.
        """
        if namespace and not self.namespaced:
            raise RefusedError(f"{self.kind} {name} is cluster-scoped; leave the namespace {namespace!r} out")
        if name and self.namespaced and not namespace:
            raise RefusedError(f"{self.kind} {name} lives in a namespace; say which")
        parts = [self.root]
        if namespace:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def _segment(text: str) -> str:
    """One segment of a path: no name may lead to another object."""
    if text in (".", ".."):
        raise RefusedError(f"{text!r} is no name of an object")
    return quote(text, safe="")


RBAC: Final = "rbac.authorization.k8s.io/v1"
POD: Final = Kind("v1", "Pod", "pods")
SERVICE: Final = Kind("v1", "Service", "services")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
SECRET: Final = Kind("v1", "Secret", "secrets")
VOLUME_CLAIM: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SERVICE_ACCOUNT: Final = Kind("v1", "ServiceAccount", "serviceaccounts")
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", namespaced=False)
NODE: Final = Kind("v1", "Node", "nodes", namespaced=False)
LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases")
ROLE: Final = Kind(RBAC, "Role", "roles")
ROLE_BINDING: Final = Kind(RBAC, "RoleBinding", "rolebindings")
CLUSTER_ROLE: Final = Kind(RBAC, "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING: Final = Kind(RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
EVENT: Final = Kind("events.k8s.io/v1", "Event", "events")
CERTIFICATE_REQUEST: Final = Kind(
    "certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", namespaced=False
)
RESOURCE_CLAIM: Final = Kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims")
RESOURCE_CLAIM_TEMPLATE: Final = Kind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
SYNC_GROUP: Final = Kind(names.GROUP_VERSION, names.SYNCGROUP_KIND, names.SYNCGROUP_PLURAL)
SYNC_CLUSTER: Final = Kind(names.GROUP_VERSION, names.SYNCCLUSTER_KIND, names.SYNCCLUSTER_PLURAL, namespaced=False)

KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.api_version, kind.kind): kind
    for kind in (
        POD, SERVICE, CONFIG_MAP, SECRET, VOLUME_CLAIM, SERVICE_ACCOUNT, NAMESPACE, NODE, LEASE, ROLE, ROLE_BINDING,
        CLUSTER_ROLE, CLUSTER_ROLE_BINDING, EVENT, CERTIFICATE_REQUEST, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE,
        SYNC_GROUP, SYNC_CLUSTER,
    )
}  # fmt: skip
BY_NAME: Final[Mapping[str, Kind]] = {kind.kind: kind for kind in KINDS.values()}
"""Kind names are unique in the table, so an `ObjectKey` needs no API version."""


def kind_of(document: Mapping[str, Any]) -> Kind:
    """The kind of a document that names it itself."""
    key = (document.get("apiVersion"), document.get("kind"))
    found = KINDS.get(key) if isinstance(key[0], str) and isinstance(key[1], str) else None  # type: ignore[arg-type]
    if found is None:
        raise RefusedError(f"the operator has no use for {key[1]!r} of {key[0]!r}; add it to the table of kinds")
    return found


def path_of(document: Mapping[str, Any], subresource: str = "") -> str:
    """The path of the object that a document describes."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise RefusedError(f"a {document.get('kind')} without metadata.name cannot be addressed")
    return kind_of(document).path(metadata.get("namespace") or "", name, subresource)
