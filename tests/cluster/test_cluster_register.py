"""`syncgroup cluster register`, `list` and `remove` between two real API servers."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sync_runtime.contract import names
from syncgroup.cli import main
from tests.cluster import crd_fixtures
from tests.support.operators import NAMESPACE, free_port, items
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTERS = f"/apis/{names.GROUP_VERSION}/syncclusters"
RIGHTS_S = 30.0
"""An API server's authoriser learns of bindings a moment after they were written."""


@pytest.fixture(scope="module")
def hub(planes: Cluster) -> RegionHandle:
    region = next(iter(planes.regions.values()))
    crd_fixtures.apply_crds(region)
    region.kubectl("create", "namespace", NAMESPACE, check=False)
    return region


@pytest.fixture(scope="module")
def far(planes: Cluster) -> RegionHandle:
    return list(planes.regions.values())[1]


_numbers = iter(range(1000))


@pytest.fixture
def name(hub: RegionHandle, far: RegionHandle) -> Iterator[str]:
    """A name for one test's registration, which is taken back afterwards."""
    found = f"far-{next(_numbers)}"
    yield found
    main(["cluster", "remove", found, *kubeconfigs(hub, far), "--force"])


def kubeconfigs(hub: RegionHandle, far: RegionHandle) -> list[str]:
    return ["--hub-kubeconfig", str(hub.kubeconfig), "--kubeconfig", str(far.kubeconfig)]


def register(hub: RegionHandle, far: RegionHandle, name: str, *words: str) -> int:
    return main(["cluster", "register", name, *kubeconfigs(hub, far), "--region", "eu", *words])


def stored(hub: RegionHandle, name: str) -> dict[str, Any]:
    """The kubeconfig in the hub's Secret."""
    status, secret = hub.api("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}-kubeconfig")
    assert status == 200, secret
    document: dict[str, Any] = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
    return document


def token(hub: RegionHandle, name: str) -> str:
    return str(stored(hub, name)["users"][0]["user"]["token"])


def can(far: RegionHandle, account: str, verb: str, resource: str, namespace: str) -> bool:
    """Whether the operator's account may do something; `resource` with its group after a dot."""
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    answer = far.kubectl("auth", "can-i", verb, resource, "-n", namespace, who, check=False)
    return answer.stdout.strip() == "yes"


def account_of(far: RegionHandle, name: str) -> str:
    query = f"labelSelector=syncgroup.dev/registration={name}"
    [found] = items(far, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts?{query}")
    return str(found["metadata"]["name"])


def test_a_registered_cluster_gives_the_operator_its_rights_in_the_mapped_namespaces_and_no_others(
    hub: RegionHandle, far: RegionHandle, name: str
) -> None:
    assert register(hub, far, name, "--allow", f"team:{name}:default,engine") == 0
    _, resource = hub.api("GET", f"{CLUSTERS}/{name}")
    assert resource["spec"]["allowedNamespaces"] == [
        {"local": "team", "remote": name, "serviceAccounts": ["default", "engine"]}
    ]
    kubeconfig = stored(hub, name)
    assert set(kubeconfig["clusters"][0]["cluster"]) == {"server", "certificate-authority-data"}
    assert set(kubeconfig["users"][0]["user"]) == {"token"}
    account = account_of(far, name)
    wait_until(lambda: can(far, account, "create", "pods", name), "its rights", RIGHTS_S)
    assert can(far, account, "update", "leases.coordination.k8s.io", name)
    assert not can(far, account, "create", "pods", "default")
    assert not can(far, account, "get", "secrets", name)
    assert not can(far, account, "get", "secrets", NAMESPACE)
    assert not can(far, account, "create", "serviceaccounts/token", NAMESPACE)
    member = f"--as=system:serviceaccount:{name}:default"
    groups = f"--as-group=system:serviceaccounts:{name}"
    asked = far.kubectl("auth", "can-i", "create", "certificatesigningrequests", member, groups, check=False)
    assert asked.stdout.strip() == "yes"


def test_registering_again_changes_what_is_said_and_keeps_the_token(
    hub: RegionHandle, far: RegionHandle, name: str
) -> None:
    assert register(hub, far, name, "--allow", f"a:{name}-a", "--allow", f"b:{name}-b") == 0
    before, account = token(hub, name), account_of(far, name)
    _, resource = hub.api("GET", f"{CLUSTERS}/{name}")
    assert register(hub, far, name, "--allow", f"a:{name}-a", "--allow", f"b:{name}-b") == 0
    _, again = hub.api("GET", f"{CLUSTERS}/{name}")
    assert again["metadata"]["generation"] == resource["metadata"]["generation"]
    assert token(hub, name) == before
    assert register(hub, far, name, "--allow", f"a:{name}-a") == 0
    assert [one["local"] for one in hub.api("GET", f"{CLUSTERS}/{name}")[1]["spec"]["allowedNamespaces"]] == ["a"]
    assert can(far, account, "create", "pods", f"{name}-a")
    wait_until(lambda: not can(far, account, "create", "pods", f"{name}-b"), "what is no longer said ends", RIGHTS_S)
    assert register(hub, far, name, "--allow", f"a:{name}-a", "--new-token") == 0
    assert token(hub, name) != before


def test_a_mapping_is_not_moved_while_pods_run_there(
    hub: RegionHandle, far: RegionHandle, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(hub, far, name, "--allow", f"team:{name}") == 0
    labels = {names.LABEL_GROUP_NAMESPACE: "team", names.LABEL_CLUSTER: name}
    pod = {
        "metadata": {"name": "left", "labels": labels},
        "spec": {"containers": [{"name": "a", "image": "registry.example/a:1"}], "nodeName": "nowhere"},
    }
    status, answer = far.api("POST", f"/api/v1/namespaces/{name}/pods", pod)
    assert status == 201, answer
    assert register(hub, far, name, "--allow", f"team:{name}-new") == 2
    assert f"1 pods of groups in team run in {name}, namespace {name}: suspend or delete" in capsys.readouterr().err
    far.kubectl("delete", "pod", "left", "-n", name, "--force", "--grace-period=0")
    assert register(hub, far, name, "--allow", f"team:{name}-new") == 0


def test_a_dry_run_prints_everything_and_changes_nothing(
    hub: RegionHandle, far: RegionHandle, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(hub, far, name, "--allow", f"team:{name}", "--dry-run") == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    kinds = [one["kind"] for one in documents]
    assert kinds[0] == "Namespace"
    assert kinds[-2:] == ["Secret", "SyncCluster"]
    assert "TOKEN-OF-THE-REMOTE-CLUSTER" in documents[-2]["stringData"]["kubeconfig"]
    assert far.api("GET", f"/api/v1/namespaces/{name}")[0] == 404
    assert hub.api("GET", f"{CLUSTERS}/{name}")[0] == 404


def test_a_plug_in_of_the_persons_own_kubeconfig_is_used_and_not_stored(
    hub: RegionHandle, far: RegionHandle, name: str, tmp_path: Path
) -> None:
    """The plug-in hands out an administrator's token, as a cloud's would."""
    far.kubectl("create", "serviceaccount", "person", "-n", "default", check=False)
    far.kubectl("create", "clusterrolebinding", "person", "--clusterrole=cluster-admin",
                "--serviceaccount=default:person", check=False)  # fmt: skip
    own = json.loads(far.service_account_kubeconfig("default", "person"))
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": own["users"][0]["user"]["token"]},
    }
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(credential)}\nEND\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    own["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(own))
    words = ["--hub-kubeconfig", str(hub.kubeconfig), "--kubeconfig", str(path), "--region", "eu"]
    assert main(["cluster", "register", name, *words, "--allow", f"team:{name}"]) == 0
    assert set(stored(hub, name)["users"][0]["user"]) == {"token"}
    assert token(hub, name) != credential["status"]["token"]  # type: ignore[index]


def test_a_remote_cluster_that_is_away_is_named(
    hub: RegionHandle, far: RegionHandle, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = json.loads(far.kubeconfig.read_text())
    away["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(away))
    words = ["--hub-kubeconfig", str(hub.kubeconfig), "--kubeconfig", str(path), "--region", "eu"]
    assert main(["cluster", "register", name, *words, "--allow", f"team:{name}"]) == 2
    told = capsys.readouterr().err
    assert f"the remote cluster {name} cannot be reached" in told
    assert f"Is {path} the right file?" in told
    assert hub.api("GET", f"{CLUSTERS}/{name}")[0] == 404


def test_somebody_without_rights_there_is_told_whom_to_ask(
    hub: RegionHandle, far: RegionHandle, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far.kubectl("create", "serviceaccount", "nobody", "-n", "default", check=False)
    path = tmp_path / "kubeconfig"
    path.write_text(far.service_account_kubeconfig("default", "nobody"))
    words = ["--hub-kubeconfig", str(hub.kubeconfig), "--kubeconfig", str(path), "--region", "eu"]
    assert main(["cluster", "register", name, *words, "--allow", f"team:{name}"]) == 2
    told = capsys.readouterr().err
    assert f"you lack rights in the remote cluster {name}" in told
    assert "ask an administrator of that cluster" in told


def test_an_address_that_does_not_work_leaves_no_sync_cluster(
    hub: RegionHandle, far: RegionHandle, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = f"https://127.0.0.1:{free_port()}"
    assert register(hub, far, name, "--allow", f"team:{name}", "--server", server) == 2
    assert "the new kubeconfig does not work from here" in capsys.readouterr().err
    assert hub.api("GET", f"{CLUSTERS}/{name}")[0] == 404
    assert register(hub, far, name, "--allow", f"team:{name}", "--server", server, "--skip-check") == 0
    assert stored(hub, name)["clusters"][0]["cluster"]["server"] == server


def test_a_cluster_in_use_is_not_removed_and_a_removed_one_has_no_token_left(
    hub: RegionHandle, far: RegionHandle, name: str, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(hub, far, name, "--allow", f"{namespace}:{name}") == 0
    account = account_of(far, name)
    template = {"spec": {"containers": [{"name": "a", "image": "registry.example/a:1"}]}}
    group = {
        "apiVersion": names.GROUP_VERSION,
        "kind": "SyncGroup",
        "metadata": {"name": "user"},
        "spec": {
            "trainer": {"region": "a", "template": template, "exposure": {"type": "LoadBalancer"}},
            "rollouts": [{"name": "r", "cluster": name, "region": "b", "template": template}],
        },
    }
    collection = f"/apis/{names.GROUP_VERSION}/namespaces/{namespace}/syncgroups"
    status, answer = hub.api("POST", collection, group)
    assert status == 201, answer
    assert main(["cluster", "remove", name, *kubeconfigs(hub, far)]) == 2
    assert f"{name} is used by {namespace}/user" in capsys.readouterr().err
    hub.api("DELETE", f"{collection}/user")
    assert main(["cluster", "remove", name, *kubeconfigs(hub, far)]) == 0
    assert hub.api("GET", f"{CLUSTERS}/{name}")[0] == 404
    assert hub.api("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}-kubeconfig")[0] == 404
    assert far.api("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{account}")[0] == 404
    assert far.api("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}")[0] == 404
    assert far.api("GET", f"{RBAC}/clusterrolebindings/{account}")[0] == 404
    assert far.api("GET", f"/api/v1/namespaces/{name}")[0] == 200, "namespaces stay"


def test_the_list_shows_what_the_operator_said(
    hub: RegionHandle, far: RegionHandle, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(hub, far, name, "--allow", f"team:{name}") == 0
    capsys.readouterr()
    assert main(["cluster", "list", "--hub-kubeconfig", str(hub.kubeconfig), "--json"]) == 1
    [row] = [row for row in json.loads(capsys.readouterr().out) if row["name"] == name]
    assert (row["connected"], row["region"], row["allowed"]) == ("Unknown", "eu", [f"team:{name}"])
    assert main(["cluster", "list", "--hub-kubeconfig", str(hub.kubeconfig)]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{name} ")]
    assert line.split()[:4] == [name, "eu", "Unknown", f"team:{name}"]


def test_a_hub_without_the_operator_is_told_so(
    hub: RegionHandle, far: RegionHandle, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(hub, far, name, "--namespace", "elsewhere") == 2
    assert "the hub has no namespace elsewhere: install the operator first" in capsys.readouterr().err
    # Other tests may have made the kinds there, and may need them again.
    kinds = ("syncgroups.syncgroup.dev", "syncclusters.syncgroup.dev")
    far.kubectl("delete", "crd", "--ignore-not-found", *kinds)
    swapped = ["--hub-kubeconfig", str(far.kubeconfig), "--kubeconfig", str(hub.kubeconfig), "--region", "eu"]
    try:
        assert main(["cluster", "register", name, *swapped]) == 2
        assert "does not know the kind SyncCluster" in capsys.readouterr().err
    finally:
        crd_fixtures.apply_crds(far)
