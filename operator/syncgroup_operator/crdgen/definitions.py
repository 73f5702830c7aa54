"""The CustomResourceDefinitions: names, columns, subresources around the structural schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sync_runtime.contract import names
from sync_runtime.contract.synccluster import SyncCluster
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.crdgen.schema import Schema, structural_schema

Column = dict[str, Any]


def custom_resource_definitions() -> dict[str, dict[str, Any]]:
    """Every CRD by the name of its file."""
    return {
        f"{names.SYNCGROUP_PLURAL}.yaml": _definition(
            kind=names.SYNCGROUP_KIND,
            plural=names.SYNCGROUP_PLURAL,
            short_names=names.SYNCGROUP_SHORT_NAMES,
            categories=(names.SYNCGROUP_CATEGORY, names.SHARED_CATEGORY),
            scope="Namespaced",
            columns=_SYNCGROUP_COLUMNS,
            schema=structural_root(SyncGroup),
        ),
        f"{names.SYNCCLUSTER_PLURAL}.yaml": _definition(
            kind=names.SYNCCLUSTER_KIND,
            plural=names.SYNCCLUSTER_PLURAL,
            short_names=names.SYNCCLUSTER_SHORT_NAMES,
            categories=(names.SHARED_CATEGORY,),
            scope="Cluster",
            columns=_SYNCCLUSTER_COLUMNS,
            schema=structural_root(SyncCluster),
        ),
    }


def structural_root(model: type[SyncGroup | SyncCluster]) -> Schema:
    """The schema of a whole resource; apiVersion, kind and metadata are the API server's own."""
    schema = structural_schema(model, leave_out=("apiVersion", "kind", "metadata"))
    plain = {"type": "string", "maxLength": 128}
    standard = {
        "apiVersion": {"description": "Version of the API, as in every Kubernetes object.", **plain},
        "kind": {"description": "Kind of the object, as in every Kubernetes object.", **plain},
        # Nothing but the name may be restricted here; it must be named, for a rule to point at it.
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
    }
    return {**schema, "properties": {**standard, **schema["properties"]}}


def _definition(
    *,
    kind: str,
    plural: str,
    short_names: Sequence[str],
    categories: Sequence[str],
    scope: Literal["Namespaced", "Cluster"],
    columns: list[Column],
    schema: Schema,
) -> dict[str, Any]:
    version = {
        "name": names.API_VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.API_GROUP}"},
        "spec": {
            "group": names.API_GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": list(short_names),
                "categories": list(categories),
            },
            "versions": [version],
        },
    }


def _column(name: str, path: str, description: str, kind: str = "string", *, wide: bool = False) -> Column:
    column = {"name": name, "type": kind, "description": description, "jsonPath": path}
    return {**column, "priority": 1} if wide else column


def _condition(kind: str, part: str) -> str:
    return f".status.conditions[?(@.type=='{kind}')].{part}"


_AGE = _column("Age", ".metadata.creationTimestamp", "Time since creation.", "date")

_SYNCGROUP_COLUMNS = [
    _column("Ready", _condition("Ready", "status"), "Whether trainer, rollouts and links are as wanted."),
    _column("Reason", _condition("Ready", "reason"), "Why, or why not."),
    _column("Rollouts", ".status.rolloutsReady", "Members that serve / members wanted."),
    _column("Version", ".status.version.seq", "Newest version that the trainer published.", "integer"),
    _column("Lag", ".status.lagVersions", "Versions that the slowest member is behind.", "integer"),
    _column("Sync-ms", ".status.syncMillis", "How long the last version took to the slowest member.", "integer"),
    _AGE,
    _column("Trainer", _condition("TrainerReady", "status"), "Whether the trainer is ready.", wide=True),
    _column("Links", _condition("LinksHealthy", "status"), "Whether the links are healthy.", wide=True),
    _column("Step", ".status.version.step", "The trainer's own step.", "integer", wide=True),
    _column("Term", ".status.term", "The trainer's incarnation.", "integer", wide=True),
    _column("Plan", ".status.planRevision", "Number of the plan in force.", "integer", wide=True),
    _column("Suspended", ".spec.suspend", "Whether the group is suspended.", "boolean", wide=True),
    _column("Message", _condition("Ready", "message"), "Why, in a sentence.", wide=True),
]

_SYNCCLUSTER_COLUMNS = [
    _column("Connected", _condition("Connected", "status"), "Whether the cluster can be reached."),
    _column("Reason", _condition("Connected", "reason"), "Why, or why not."),
    _column("Region", ".spec.region", "Region of the cluster."),
    _column("Version", ".status.kubernetesVersion", "Version of its API server."),
    _AGE,
    _column("Secret", ".spec.kubeconfigSecretRef.name", "Secret with its kubeconfig.", wide=True),
    _column("Lost", ".status.lostTime", "When it was lost.", "date", wide=True),
    _column("Message", _condition("Connected", "message"), "Why, in a sentence.", wide=True),
]
