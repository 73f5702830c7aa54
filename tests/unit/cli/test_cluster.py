"""The words of `syncgroup cluster`, and the documents of a registration."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from sync_runtime.contract.documents import load_resource
from sync_runtime.identity.ca import make_ca
from syncgroup import cli
from syncgroup.commands import cluster_documents as documents
from syncgroup.commands.cluster_documents import Allowed, Endpoint, Registration
from syncgroup_operator.kube.access import from_kubeconfig
from syncgroup_operator.kube.kinds import kind_of, path_of
from tests.support.identities import now

HUB = "75441696-34c8-4fc2-ad64-850e3e0c168f"


def registration(name: str = "frankfurt", **changes: Any) -> Registration:
    allowed = (Allowed("ml", "guests"), Allowed("research", "guests", ("engine",)), Allowed("rl", "rl"))
    plain = {"region": "eu", "hub_id": HUB, "hub_namespace": "sg", "remote_namespace": "sg-remote", "allowed": allowed}
    return Registration(name, **(plain | changes))


def test_the_kubeconfig_on_the_hub_holds_server_authority_and_token_and_the_operator_takes_it() -> None:
    authority = make_ca(HUB, now=now(), lifetime=datetime.timedelta(days=1)).certificate_pem.decode()
    text = documents.kubeconfig(registration(), Endpoint("https://10.0.0.1:6443", authority, "inside"), "abc.def")
    found = from_kubeconfig(text)
    assert (found.server, found.authority, found.token) == ("https://10.0.0.1:6443", authority, "abc.def")
    assert found.tls_server_name == "inside"
    assert list(yaml.safe_load(text)["users"][0]["user"]) == ["token"]


def test_a_sync_cluster_maps_every_namespace_and_is_valid() -> None:
    document = documents.sync_cluster(registration())
    assert load_resource(document).to_document()["spec"]["allowedNamespaces"] == [
        {"local": "ml", "remote": "guests", "serviceAccounts": ["default"]},
        {"local": "research", "remote": "guests", "serviceAccounts": ["engine"]},
        {"local": "rl", "remote": "rl", "serviceAccounts": ["default"]},
    ]


def test_rights_over_members_are_given_in_the_mapped_namespaces_only() -> None:
    bindings = [one for one in documents.remote_documents(registration()) if one["kind"] == "RoleBinding"]
    assert [(one["metadata"]["namespace"], one["roleRef"]["name"]) for one in bindings] == [
        ("guests", "syncgroup-remote-members"),
        ("rl", "syncgroup-remote-members"),
    ]
    everywhere = [one for one in documents.remote_documents(registration()) if one["kind"] == "ClusterRoleBinding"]
    assert {one["roleRef"]["name"] for one in everywhere} == {"syncgroup-remote", "syncgroup-member"}


def test_copies_of_object_stores_secrets_need_a_word_of_their_own_and_it_can_be_taken_back() -> None:
    plain, more = registration(), registration(store_secrets=True)
    known = {path_of(one) for one in documents.remote_documents(plain)}
    added = [one for one in documents.remote_documents(more) if path_of(one) not in known]
    assert [(one["kind"], one["metadata"].get("namespace")) for one in added] == [
        ("ClusterRole", None), ("RoleBinding", "guests"), ("RoleBinding", "rl"),
    ]  # fmt: skip
    assert {one["roleRef"]["name"] for one in added[1:]} == {"syncgroup-store-secrets"}
    found = [{"metadata": {**one["metadata"], "uid": str(at)}} for at, one in enumerate(added[1:])]
    assert documents.stale(found, more) == []
    assert [uid for _, _, uid in documents.stale(found, plain)] == ["0", "1"]


def test_two_hubs_and_two_names_share_no_account_and_no_binding() -> None:
    mine, other, second = registration(), registration(hub_id="0" * 36), registration("paris")
    own = [{path_of(one) for one in documents.remote_documents(every) if "labels" in one["metadata"]} for every in
           (mine, other, second)]  # fmt: skip
    assert own[0]
    assert not own[0] & own[1]
    assert not own[0] & own[2]


def test_every_document_is_of_a_kind_that_the_client_knows() -> None:
    for document in documents.remote_documents(registration()):
        kind_of(document)
    for document in documents.hub_documents(registration(), "x"):
        kind_of(document)


def test_bindings_of_namespaces_that_are_no_longer_mapped_are_stale() -> None:
    found = [{"metadata": {"namespace": one, "name": "b", "uid": one}} for one in ("guests", "old")]
    assert documents.stale(found, registration()) == [("old", "b", "old")]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--allow", "ml:kube-system"], "kube-system is a namespace of Kubernetes itself"),
        (["--allow", "ML"], "'ML' must be at most 63 lower-case letters"),
        (["--allow", "ml:guests:Admin"], "'Admin' is no name of a service account"),
        (["--allow", "ml:a", "--allow", "ml:b"], "a namespace of the hub is given twice"),
    ],
    ids=["kube", "case", "account", "twice"],
)
def test_a_wrong_allow_is_refused_before_anything_is_asked(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["cluster", "register", "far", "--kubeconfig", "/nowhere", "--region", "eu", *words]
    try:
        code = cli.main(command)
    except SystemExit as error:  # argparse
        code = int(error.code or 0)
    assert code == 2
    assert complaint in capsys.readouterr().err


def test_the_hubs_own_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["cluster", "remove", "local"])
    assert "local means the hub itself" in capsys.readouterr().err


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster", "list", "--hub-kubeconfig", str(tmp_path / "none")]) == 2
    assert f"the kubeconfig {tmp_path / 'none'} is not there." in capsys.readouterr().err


def test_help_says_why_the_token_has_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["cluster", "register", "--help"])
    assert "Such a token has no end" in capsys.readouterr().out
