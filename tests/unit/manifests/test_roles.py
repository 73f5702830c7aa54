from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sync_runtime.contract import names
from syncgroup_operator.crdgen.__main__ import main
from syncgroup_operator.crdgen.writing import outdated_files, rendered_roles
from syncgroup_operator.manifests import roles
from syncgroup_operator.manifests.children import children_of
from tests.unit.manifests.samples import EXTRAS, decision, observation

pytestmark = pytest.mark.timeout(20)
ROLES_DIR = Path(__file__).resolve().parents[3] / "charts" / "syncgroup" / "files" / "roles"
ALL = {
    f"{document['kind']} {document['metadata']['name']}": document
    for documents in roles.role_documents().values()
    for document in documents
}


def rights(rules: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb


def test_the_roles_in_the_tree_are_those_of_the_code() -> None:
    assert outdated_files(ROLES_DIR, rendered_roles()) == []


@pytest.mark.parametrize("name", ALL)
def test_no_role_has_a_wildcard_or_a_way_round_its_own_rights(name: str) -> None:
    for group, resource, verb in rights(ALL[name]["rules"]):
        assert "*" not in (group, resource, verb)
        assert verb not in ("escalate", "bind", "impersonate")


STORE_ROLE = f"ClusterRole {roles.STORE_SECRETS_ROLE}"


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("ClusterRole ") and name != STORE_ROLE])
def test_secrets_are_read_in_the_operators_own_namespace_only(name: str) -> None:
    assert all(resource != "secrets" for _, resource, _ in rights(ALL[name]["rules"]))


def test_the_role_for_secrets_of_stores_lists_none_of_them() -> None:
    assert set(rights(ALL[STORE_ROLE]["rules"])) == {
        ("", "secrets", verb) for verb in ("get", "create", "patch", "delete")
    }


@pytest.mark.parametrize("name", [roles.GROUPS_ROLE, roles.REMOTE_MEMBERS_ROLE])
def test_the_operator_holds_what_it_grants_to_members(name: str) -> None:
    granted = [
        right
        for item in children_of(observation(), decision(), EXTRAS)
        if item.document["kind"] == "Role"
        for right in rights(item.document["rules"])
    ]
    assert granted
    assert set(granted) <= set(rights(ALL[f"ClusterRole {name}"]["rules"]))


def test_only_our_own_signer_may_be_used() -> None:
    for name in (roles.OPERATOR_ROLE, roles.REMOTE_ROLE):
        (rule,) = [rule for rule in ALL[f"ClusterRole {name}"]["rules"] if rule["resources"] == ["signers"]]
        assert (rule["resourceNames"], rule["verbs"]) == ([names.SIGNER_NAME], ["approve", "sign"])


def test_members_may_ask_for_certificates_and_approve_none() -> None:
    assert set(rights(roles.member_cluster_role()["rules"])) == {
        ("certificates.k8s.io", "certificatesigningrequests", verb) for verb in ("create", "get")
    }


def test_files_hold_one_document_per_role_and_are_written_and_compared(tmp_path: Path) -> None:
    arguments = ["--output", str(tmp_path / "crds"), "--roles", str(tmp_path / "roles")]
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    written = [document for path in (tmp_path / "roles").iterdir() for document in yaml.safe_load_all(path.read_text())]
    assert sorted(f"{item['kind']} {item['metadata']['name']}" for item in written) == sorted(ALL)
    (tmp_path / "roles" / "hub.yaml").write_text("", encoding="utf-8")
    assert main([*arguments, "--check"]) == 1
