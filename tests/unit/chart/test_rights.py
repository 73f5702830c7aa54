"""The chart grants what the operator's code says, to the operator and to members, and nothing else to anybody."""

from __future__ import annotations

from typing import Any

import pytest

from syncgroup_operator.manifests import roles
from tests.support.helm import NAMESPACE, Helm, Objects, key_of
from tests.unit.chart import samples

ACCOUNT = "syncgroup-operator"
ALL_ACCOUNTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": roles.MEMBER_ROLE},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": roles.MEMBER_ROLE},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"}],
}


def granted(objects: Objects) -> Objects:
    """Roles and bindings without the labels that the chart adds to everything."""
    found = {key: one for key, one in objects.items() if one["apiVersion"].startswith("rbac.authorization.k8s.io/")}
    return {key: {**one, "metadata": _bare(one["metadata"])} for key, one in found.items()}


def _bare(metadata: dict[str, Any]) -> dict[str, Any]:
    labels = metadata.get("labels", {})
    kept = {key: value for key, value in labels.items() if key.startswith("rbac.authorization.k8s.io/")}
    rest = {key: value for key, value in metadata.items() if key != "labels"}
    return {**rest, "labels": kept} if kept else rest


def expected(*bindings: dict[str, Any], files: tuple[str, ...] = ("hub.yaml", "member.yaml", "people.yaml")) -> Objects:
    """What the code says, in the release's namespace, with the bindings that every installation has."""
    documents = [one for file in files for one in roles.role_documents()[file]]
    for document in documents:
        if document["kind"] == "Role":
            document["metadata"]["namespace"] = NAMESPACE
    always = (
        roles.cluster_role_binding(roles.OPERATOR_ROLE, ACCOUNT, NAMESPACE),
        roles.role_binding(roles.OPERATOR_ROLE, ACCOUNT, NAMESPACE, NAMESPACE, kind="Role"),
    )
    return {key_of(document): document for document in (*documents, *always, *bindings)}


def test_for_all_namespaces_the_rights_are_those_of_the_code(helm: Helm) -> None:
    groups = roles.cluster_role_binding(roles.GROUPS_ROLE, ACCOUNT, NAMESPACE)
    assert granted(helm.render()) == expected(groups, ALL_ACCOUNTS)


def test_for_some_namespaces_the_rights_over_groups_end_at_their_borders(helm: Helm) -> None:
    watched = samples.NAMESPACED["watchNamespaces"]
    groups = [roles.role_binding(roles.GROUPS_ROLE, ACCOUNT, NAMESPACE, one, kind="ClusterRole") for one in watched]
    members = [roles.member_binding(one) for one in watched]
    assert granted(helm.render(samples.NAMESPACED)) == expected(*groups, *members)


def test_rights_of_people_are_left_out_where_nobody_wants_them(helm: Helm) -> None:
    groups = roles.cluster_role_binding(roles.GROUPS_ROLE, ACCOUNT, NAMESPACE)
    found = granted(helm.render({"rbac": {"aggregate": False}}))
    assert found == expected(groups, ALL_ACCOUNTS, files=("hub.yaml", "member.yaml"))


@pytest.mark.parametrize("watched", [[], ["rl"]])
def test_secrets_of_object_stores_may_be_kept_only_where_somebody_says_so(helm: Helm, watched: list[str]) -> None:
    plain, further = granted(helm.render({"watchNamespaces": watched})), {"rbac": {"storeSecrets": True}}
    found = granted(helm.render({"watchNamespaces": watched, **further}))
    role = roles.STORE_SECRETS_ROLE
    bindings = [roles.role_binding(role, ACCOUNT, NAMESPACE, one, kind="ClusterRole") for one in watched]
    bindings = bindings or [roles.cluster_role_binding(role, ACCOUNT, NAMESPACE)]
    added = {key_of(one): one for one in (roles.store_secrets_role(), *bindings)}
    assert found == {**plain, **added}
    assert not set(plain) & set(added)


def test_without_rbac_nothing_is_granted(helm: Helm) -> None:
    assert granted(helm.render({"rbac": {"create": False}})) == {}


@pytest.mark.parametrize("create", [True, False])
def test_the_account_that_is_bound_is_the_one_that_the_pods_have(helm: Helm, create: bool) -> None:
    objects = helm.render({"serviceAccount": {"create": create, "name": "weights"}})
    pod = objects[f"Deployment {NAMESPACE}/syncgroup-operator"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("weights", True)
    subjects = [subject for one in granted(objects).values() for subject in one.get("subjects", [])]
    accounts = [one for one in subjects if one["kind"] == "ServiceAccount"]
    assert accounts
    assert all(one == {"kind": "ServiceAccount", "name": "weights", "namespace": NAMESPACE} for one in accounts)
    assert (f"ServiceAccount {NAMESPACE}/weights" in objects) == create


def test_nobody_gets_the_accounts_token_by_naming_it(helm: Helm) -> None:
    assert helm.render()[f"ServiceAccount {NAMESPACE}/{ACCOUNT}"]["automountServiceAccountToken"] is False
