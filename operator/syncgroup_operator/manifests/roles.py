"""Who may do what: the operator, its accounts in remote clusters, members, and people. One source for all of it.

Pure documents; `crdgen` writes them to files for the chart, `syncgroup cluster register` applies some of them remotely.

    syncgroup-operator            hub, cluster-scoped: what exists once per cluster
    syncgroup-operator-groups     hub, in every namespace with SyncGroups: bound cluster-wide, or by a RoleBinding in
                                  each watched namespace
    syncgroup-operator (Role)     the operator's own namespace: kubeconfigs, authorities, the leader's lease
    syncgroup-remote              a remote cluster, cluster-scoped
    syncgroup-remote-members      a remote cluster, bound in each mapped namespace
    syncgroup-store-secrets       any cluster, bound only where an administrator says so: the Secrets of object stores
    syncgroup-member              every cluster, bound to the service accounts of a namespace with members
    syncgroup-editor, -viewer     people, aggregated to admin, edit and view

No rule has a wildcard. The operator makes roles for members, and Kubernetes lets nobody grant what they do not hold: so
it holds what it grants (`objects.member_role`), and never `escalate` or `bind`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sync_runtime.contract import names
from syncgroup_operator.manifests.objects import LEASE_GROUP, RBAC_GROUP

Document = dict[str, Any]
Rule = dict[str, Any]

OPERATOR_ROLE: Final = "syncgroup-operator"
GROUPS_ROLE: Final = "syncgroup-operator-groups"
REMOTE_ROLE: Final = "syncgroup-remote"
REMOTE_MEMBERS_ROLE: Final = "syncgroup-remote-members"
STORE_SECRETS_ROLE: Final = "syncgroup-store-secrets"
MEMBER_ROLE: Final = "syncgroup-member"
EDITOR_ROLE: Final = "syncgroup-editor"
VIEWER_ROLE: Final = "syncgroup-viewer"

_READ: Final = ("get", "list", "watch")
_OWN: Final = (*_READ, "create", "patch", "delete")
"""Everything that server-side apply and a deletion with a precondition need."""
_CERTIFICATES: Final = "certificates.k8s.io"
_REQUESTS: Final = "certificatesigningrequests"


def role_documents() -> dict[str, tuple[Document, ...]]:
    """Every role by the name of its file."""
    return {
        "hub.yaml": (
            _cluster_role(OPERATOR_ROLE, _hub_cluster_rules()),
            _cluster_role(GROUPS_ROLE, _hub_group_rules()),
            operator_namespace_role(),
        ),
        "remote.yaml": (
            _cluster_role(REMOTE_ROLE, _any_cluster_rules()),
            _cluster_role(REMOTE_MEMBERS_ROLE, _children_rules()),
        ),
        "store.yaml": (store_secrets_role(),),
        "member.yaml": (member_cluster_role(),),
        "people.yaml": (
            _cluster_role(EDITOR_ROLE, _editor_rules(), aggregate_to=("admin", "edit")),
            _cluster_role(VIEWER_ROLE, _viewer_rules(), aggregate_to=("view",)),
        ),
    }


def operator_namespace_role() -> Document:
    """Secrets are read here and nowhere else, but for `store_secrets_role`; namespace and binding: the installer's."""
    rules = [
        _rule("", ["secrets"], (*_OWN, "update")),
        _rule(LEASE_GROUP, ["leases"], ("get", "create", "update", "patch")),
    ]
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "Role", "metadata": {"name": OPERATOR_ROLE}, "rules": rules}


def store_secrets_role() -> Document:
    """For groups whose object store names a Secret: it is read on the hub, and copied to where members are.

    Kubernetes cannot restrict this to the Secrets that groups name, so that nobody has it who did not ask for it. No
    `list` and no `watch`: whoever holds the operator's token must know a Secret's name.
    """
    return _cluster_role(STORE_SECRETS_ROLE, [_rule("", ["secrets"], ("get", "create", "patch", "delete"))])


def member_cluster_role() -> Document:
    """What members need besides their group's own role: a certificate. The operator checks who asks for which."""
    return _cluster_role(MEMBER_ROLE, [_rule(_CERTIFICATES, [_REQUESTS], ("create", "get"))])


def cluster_role_binding(role: str, account: str, namespace: str) -> Document:
    """Gives a ClusterRole to one service account, everywhere."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        **_given("ClusterRole", role, [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]),
    }


def role_binding(role: str, account: str, account_namespace: str, namespace: str, *, kind: str) -> Document:
    """Gives a ClusterRole or Role to one service account, in one namespace."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        **_given(kind, role, [{"kind": "ServiceAccount", "name": account, "namespace": account_namespace}]),
    }


def member_binding(namespace: str) -> Document:
    """Lets the service accounts of one namespace ask for certificates, which are no namespaced objects."""
    group = {"apiGroup": RBAC_GROUP, "kind": "Group", "name": f"system:serviceaccounts:{namespace}"}
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{MEMBER_ROLE}-{namespace}"},
        **_given("ClusterRole", MEMBER_ROLE, [group]),
    }


def _hub_cluster_rules() -> list[Rule]:
    return [
        *_any_cluster_rules(),
        _rule(names.API_GROUP, [names.SYNCCLUSTER_PLURAL], (*_READ, "patch")),
        _rule(names.API_GROUP, [f"{names.SYNCCLUSTER_PLURAL}/status"], ("get", "patch")),
        _rule("apiextensions.k8s.io", ["customresourcedefinitions"], _READ),
        _rule("", ["namespaces"], _READ),
    ]


def _hub_group_rules() -> list[Rule]:
    return [
        *_children_rules(),
        _rule(names.API_GROUP, [names.SYNCGROUP_PLURAL], (*_READ, "patch")),
        _rule(names.API_GROUP, [f"{names.SYNCGROUP_PLURAL}/status"], ("get", "patch")),
        # Whoever sets an owner reference that blocks deletion must be allowed to hold up that deletion.
        _rule(names.API_GROUP, [f"{names.SYNCGROUP_PLURAL}/finalizers"], ("update",)),
        _rule("", ["events"], ("create", "patch")),
        _rule("events.k8s.io", ["events"], ("create", "patch")),
    ]


def _any_cluster_rules() -> list[Rule]:
    """Cluster-scoped: why a node's pods died, and certificates for members."""
    return [
        _rule("", ["nodes"], _READ),
        _rule(_CERTIFICATES, [_REQUESTS], (*_READ, "delete")),
        _rule(_CERTIFICATES, [f"{_REQUESTS}/approval"], ("update",)),
        _rule(_CERTIFICATES, [f"{_REQUESTS}/status"], ("update", "patch")),
        {**_rule(_CERTIFICATES, ["signers"], ("approve", "sign")), "resourceNames": [names.SIGNER_NAME]},
    ]


def _children_rules() -> list[Rule]:
    """The objects of a group, in its namespace. `update` where compare-and-swap or a member's role needs it."""
    return [
        _rule("", ["pods", "services", "persistentvolumeclaims"], _OWN),
        _rule("", ["configmaps"], (*_OWN, "update")),
        _rule(LEASE_GROUP, ["leases"], (*_OWN, "update")),
        _rule(RBAC_GROUP, ["roles", "rolebindings"], _OWN),
    ]


def _editor_rules() -> list[Rule]:
    verbs = (*_READ, "create", "update", "patch", "delete", "deletecollection")
    return [
        _rule(names.API_GROUP, [names.SYNCGROUP_PLURAL], verbs),
        *_looking_rules(),
    ]


def _viewer_rules() -> list[Rule]:
    return [_rule(names.API_GROUP, [names.SYNCGROUP_PLURAL], _READ), *_looking_rules()]


def _looking_rules() -> list[Rule]:
    """What `kubectl syncgroup` looks at besides the groups. Pods, ConfigMaps and Events are in `view` already."""
    return [
        _rule(names.API_GROUP, [f"{names.SYNCGROUP_PLURAL}/status"], ("get",)),
        # Cluster-scoped: counts where the role is bound by a ClusterRoleBinding. It holds names, no kubeconfig.
        _rule(names.API_GROUP, [names.SYNCCLUSTER_PLURAL], _READ),
        _rule(LEASE_GROUP, ["leases"], _READ),
        _rule("", ["pods", "configmaps"], _READ),
        _rule("events.k8s.io", ["events"], _READ),
    ]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Rule:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _cluster_role(name: str, rules: list[Rule], aggregate_to: Sequence[str] = ()) -> Document:
    metadata: Document = {"name": name}
    if aggregate_to:
        metadata["labels"] = {f"{RBAC_GROUP}/aggregate-to-{role}": "true" for role in aggregate_to}
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _given(kind: str, role: str, subjects: list[Document]) -> Document:
    return {"roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role}, "subjects": subjects}
