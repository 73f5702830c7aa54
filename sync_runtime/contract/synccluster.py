"""SyncCluster: a remote cluster, and who may use it for what.

Whoever may create a SyncGroup must not thereby get pods everywhere: a cluster names the hub's namespaces that may use
it, the remote namespace that each lands in, and the service accounts that pods may run as there.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import DnsLabel, DnsSubdomain, ListMap, ListSet
from sync_runtime.contract.metadata import ObjectMeta, name_matches, name_matches_cel
from sync_runtime.contract.names import GROUP_VERSION, KUBECONFIG_KEY, LOCAL_CLUSTER, SYNCCLUSTER_KIND
from sync_runtime.contract.rules import Invariant, Rule
from sync_runtime.contract.status import SyncClusterStatus

MAX_NAMESPACES = 256
MAX_SERVICE_ACCOUNTS = 32


class KubeconfigSecretRef(Model):
    """A Secret in the operator's own namespace."""

    name: DnsSubdomain = Field(description="Name of the Secret, in the operator's namespace.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.DATA_KEY)] = Field(
        KUBECONFIG_KEY,
        description="Key of the kubeconfig inside it. Kubeconfigs that run a program to log in are refused.",
    )


class AllowedNamespace(Model):
    """A namespace of the hub that may use the cluster, and where its groups land."""

    local: DnsLabel = Field(description="Namespace of the SyncGroups, on the hub.")
    remote: DnsLabel = Field(description="Namespace that their objects are created in, in this cluster.")
    service_accounts: Annotated[list[DnsSubdomain], Field(max_length=MAX_SERVICE_ACCOUNTS), ListSet()] = Field(
        default_factory=lambda: ["default"],
        description="Service accounts of the remote namespace that pod templates may name.",
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="!self.remote.startsWith('kube-')",
            message="remote must not be a namespace of Kubernetes itself (kube-…)",
            holds=lambda self: not self.remote.startswith("kube-"),
            field="remote",
            reason="FieldValueForbidden",
        ),
    )


class SyncClusterSpec(Model):
    """How to reach a cluster, and who may use it for what."""

    kubeconfig_secret_ref: KubeconfigSecretRef = Field(description="Secret with the kubeconfig of the cluster.")
    region: DnsLabel = Field(description="Region of the cluster, for nodes that do not say otherwise by their label.")
    allowed_namespaces: Annotated[list[AllowedNamespace], Field(max_length=MAX_NAMESPACES), ListMap(("local",))] = (
        Field(default_factory=list, description="Namespaces of the hub that may use the cluster. Empty: none may.")
    )


class SyncCluster(Model):
    """A remote cluster that SyncGroups may run members in."""

    api_version: Literal["syncgroup.dev/v1alpha1"] = Field(GROUP_VERSION, description="Version of the API.")
    kind: Literal["SyncCluster"] = Field(SYNCCLUSTER_KIND, description="Kind of the object.")
    metadata: ObjectMeta = Field(description="Kubernetes' own.")
    spec: SyncClusterSpec = Field(description="How to reach the cluster, and who may use it.")
    status: SyncClusterStatus | None = Field(None, description="What the operator last saw. Written by it alone.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel=name_matches_cel(patterns.DNS_LABEL),
            message="a SyncCluster's name is a label value: at most 63 characters, lower-case letters, digits and '-'",
            holds=lambda self: name_matches(self.metadata.name, patterns.DNS_LABEL),
            field="metadata.name",
        ),
        Rule(
            cel=f"self.metadata.name != '{LOCAL_CLUSTER}'",
            message=f"the name {LOCAL_CLUSTER} means the operator's own cluster; choose another name",
            holds=lambda self: self.metadata.name != LOCAL_CLUSTER,
            field="metadata.name",
        ),
    )
