"""The documents of a group on a real API server: with the operator's own rights, in a restricted namespace."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.manifests import roles
from syncgroup_operator.manifests.children import children_of
from syncgroup_operator.manifests.parts import parts_of
from syncgroup_operator.manifests.problems import problems_of
from syncgroup_operator.planning.decision import Decision, Seat
from syncgroup_operator.planning.observation import ClusterView, Observation, Slot
from syncgroup_operator.planning.state import GroupState
from tests.unit.manifests.samples import EXTRAS, IMAGE, NOW, plan, template
from tools.devcluster.api import APPLY, ApiClient
from tools.devcluster.client import RegionHandle

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [
    path for path in sorted((ROOT / "crds" / "examples").glob("*.yaml")) if "kind: SyncGroup" in path.read_text()
]
ROLES = ROOT / "charts" / "syncgroup" / "files" / "roles"
OPERATOR_NAMESPACE = "syncgroup-operator-tests"
RESTRICTED_POD = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
CLUSTER_PATHS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
Answer = tuple[int, dict[str, Any]]


def apply(api: Any, document: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
    """Server-side apply as the operator does it, and strict besides."""
    kind, metadata = document["kind"], document["metadata"]
    folder = CLUSTER_PATHS.get(kind) or PATHS[kind].format(metadata["namespace"])
    options = f"fieldManager={names.FIELD_MANAGER}&force=true&fieldValidation=Strict{'&dryRun=All' if dry_run else ''}"
    path = f"{folder}/{metadata['name']}?{options}"
    request = getattr(api, "request", None) or api.api
    status, answer = request("PATCH", path, document, content_type=APPLY)
    return status, answer


def must_accept(api: Any, documents: list[Mapping[str, Any]]) -> None:
    """A dry run, except of roles: a binding is only accepted when its role is really there."""
    for document in documents:
        is_role = document["kind"] in ("Role", "RoleBinding")
        status, answer = apply(api, without_owner(document) if is_role else document, dry_run=not is_role)
        assert status in (200, 201), f"{document['kind']} {document['metadata']['name']}: {answer.get('message')}"


def without_owner(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """For groups that do not exist: the garbage collector would take everything of theirs away."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "ownerReferences"}
    return {**document, "metadata": metadata}


def must_apply(api: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    status, answer = apply(api, document)
    assert status in (200, 201), f"{document['kind']} {document['metadata']['name']}: {answer.get('message')}"
    return answer


@contextlib.contextmanager
def client_of(region: RegionHandle, folder: Path, namespace: str, account: str) -> Iterator[ApiClient]:
    """A client that acts as a service account."""
    path = folder / f"{namespace}-{account}"
    path.write_text(region.service_account_kubeconfig(namespace, account))
    client = ApiClient(path)
    yield client
    client.close()


@pytest.fixture(scope="module")
def operator(region: RegionHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    """A client with the rights that the generated roles give to an operator, bound cluster-wide."""
    region.kubectl("create", "namespace", OPERATOR_NAMESPACE)
    region.kubectl("create", "serviceaccount", "operator", "-n", OPERATOR_NAMESPACE)
    for path in sorted(ROLES.glob("*.yaml")):
        region.kubectl("apply", "--server-side", "-n", OPERATOR_NAMESPACE, "-f", str(path))
    for role in (roles.OPERATOR_ROLE, roles.GROUPS_ROLE):
        must_apply(region, roles.cluster_role_binding(role, "operator", OPERATOR_NAMESPACE))
    own = roles.role_binding(roles.OPERATOR_ROLE, "operator", OPERATOR_NAMESPACE, OPERATOR_NAMESPACE, kind="Role")
    must_apply(region, own)
    with client_of(region, tmp_path_factory.mktemp("operator"), OPERATOR_NAMESPACE, "operator") as client:
        yield client
    region.kubectl("delete", "namespace", OPERATOR_NAMESPACE, "--wait=false")
    for role in (roles.OPERATOR_ROLE, roles.GROUPS_ROLE):
        region.kubectl("delete", "clusterrolebinding", role)


@pytest.fixture
def restricted(region: RegionHandle, namespace: str) -> str:
    """A namespace in which Pod Security enforces its strictest standard."""
    region.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    wait_for_account(region, namespace)
    return namespace


def wait_for_account(region: RegionHandle, namespace: str) -> None:
    """The controller manager makes it a moment after the namespace; without it no pod is admitted."""
    deadline_s = time.monotonic() + 30
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    while region.api("GET", path)[0] != 200:
        assert time.monotonic() < deadline_s, "no default service account"
        time.sleep(0.05)


def restrict(pod_template: dict[str, Any]) -> None:
    """What a user adds whose namespace is restricted."""
    spec = pod_template["spec"]
    spec["securityContext"] = RESTRICTED_POD
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container["securityContext"] = RESTRICTED


def observed(
    document: dict[str, Any], namespace: str, uid: str = "00000000-0000-4000-8000-000000000001"
) -> Observation:
    """A pass over a group whose clusters all are the one API server of the test."""
    whole = copy.deepcopy(document)
    whole["metadata"] = {"name": document["metadata"]["name"], "namespace": namespace}
    group = SyncGroup.parse(whole)
    clusters = {place.cluster for part in parts_of(group.spec) for place in part.places}
    views = {name: ClusterView(name, namespace, connected_s=0.0, shares_devices=True) for name in clusters}
    return Observation(
        group=group, uid=uid, generation=1, deleting=False, now_s=1.0, now=NOW, clusters=views, default_image=IMAGE
    )


def documents_of(seen: Observation) -> list[Mapping[str, Any]]:
    """Everything that the group wants: the trainer, and each rollout's first member at home and in its fallbacks."""
    seats = [
        Seat(Slot(part.role, index), place, avoid_nodes=("node-1", "node-2"), term=3 if index == 0 else None)
        for part in parts_of(seen.group.spec)
        for index, place in enumerate(part.places)
    ]
    plans = {place: plan(place) for place in {seat.place for seat in seats}}
    state = GroupState(group_uid=seen.uid, term=3, revision=7)
    assert problems_of(seen) == ()
    wanted = children_of(seen, Decision(state=state, seats=tuple(seats), plans=plans), EXTRAS)
    return [item.document for item in wanted]


def example(path: Path, *, is_restricted: bool = True) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["spec"]["suspend"] = False
    document["metadata"].pop("labels", None)
    # Anchors of YAML make one object of several templates.
    document = json.loads(json.dumps(document))
    for part in (document["spec"]["trainer"], *document["spec"]["rollouts"]):
        if is_restricted:
            restrict(part["template"])
    return document


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_all_children_of_every_example_are_accepted_from_the_operator_in_a_restricted_namespace(
    operator: ApiClient, restricted: str, path: Path
) -> None:
    documents = documents_of(observed(example(path), restricted))
    assert {document["kind"] for document in documents} >= {
        "Role",
        "RoleBinding",
        "Service",
        "ConfigMap",
        "Lease",
        "Pod",
    }
    must_accept(operator, documents)


def test_in_a_restricted_namespace_only_the_users_own_container_is_complained_about(
    operator: ApiClient, restricted: str
) -> None:
    seen = observed(example(ROOT / "crds/examples/two-regions.yaml", is_restricted=False), restricted)
    pods = [document for document in documents_of(seen) if document["kind"] == "Pod"]
    for pod in pods:
        status, answer = apply(operator, pod, dry_run=True)
        assert status == 403
        assert pod["spec"]["containers"][0]["name"] in answer["message"]
        assert names.RUNTIME_CONTAINER not in answer["message"]
        assert names.LIBRARY_CONTAINER not in answer["message"]


def test_a_claim_for_a_shared_gpu_is_accepted(operator: ApiClient, restricted: str) -> None:
    document = example(ROOT / "crds/examples/two-regions.yaml")
    document["spec"]["sync"] = {"gpuAccess": "CudaIpc"}
    document["spec"]["runtime"] = {"library": "PythonPath", "storage": {"type": "PersistentVolumeClaim"}}
    for part in (document["spec"]["trainer"], *document["spec"]["rollouts"]):
        part["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
        part["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    must_accept(operator, documents_of(observed(document, restricted)))


def version_of(operator: ApiClient, document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    status, found = operator.request(
        "GET", f"{PATHS[document['kind']].format(metadata['namespace'])}/{metadata['name']}"
    )
    assert status == 200, found
    return str(found["metadata"]["resourceVersion"])


@pytest.mark.usefixtures("crds")
def test_what_is_applied_a_second_time_changes_nothing(
    operator: ApiClient, region: RegionHandle, restricted: str
) -> None:
    document = example(ROOT / "crds/examples/two-regions.yaml")
    document["spec"]["runtime"] = {"storage": {"type": "PersistentVolumeClaim"}}
    path = f"/apis/{names.GROUP_VERSION}/namespaces/{restricted}/{names.SYNCGROUP_PLURAL}"
    status, group = region.api("POST", path, document)
    assert status == 201, group
    documents = documents_of(observed(document, restricted, group["metadata"]["uid"]))
    for wanted in documents:
        must_apply(operator, wanted)
    for wanted in documents:
        # The scheduler or a volume controller may write in between, so a difference counts only if it stays.
        pairs = ((version_of(operator, wanted), _applied_version(operator, wanted)) for _ in range(5))
        assert any(before == after for before, after in pairs), f"{wanted['kind']} {wanted['metadata']['name']}"


def _applied_version(operator: ApiClient, document: Mapping[str, Any]) -> str:
    return str(must_apply(operator, document)["metadata"]["resourceVersion"])


def test_the_operator_can_neither_read_secrets_nor_give_away_what_it_does_not_have(
    operator: ApiClient, restricted: str
) -> None:
    assert operator.request("GET", f"/api/v1/namespaces/{restricted}/secrets")[0] == 403
    assert operator.request("GET", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets")[0] == 200
    greedy = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "greedy", "namespace": restricted},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }
    status, answer = apply(operator, greedy)
    assert status == 403
    assert "not currently held" in answer["message"]
    assert operator.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles")[0] == 403


@pytest.mark.usefixtures("operator")  # which puts the roles there
def test_a_remote_account_reaches_its_own_namespace_and_no_other(
    region: RegionHandle, restricted: str, tmp_path: Path
) -> None:
    region.kubectl("create", "serviceaccount", "hub", "-n", restricted)
    for binding in (
        {**roles.cluster_role_binding(roles.REMOTE_ROLE, "hub", restricted), "metadata": {"name": f"hub-{restricted}"}},
        roles.role_binding(roles.REMOTE_MEMBERS_ROLE, "hub", restricted, restricted, kind="ClusterRole"),
    ):
        must_apply(region, binding)
    with client_of(region, tmp_path, restricted, "hub") as hub:
        must_accept(hub, documents_of(observed(example(ROOT / "crds/examples/object-store.yaml"), restricted)))
        for path in ("/api/v1/nodes", "/apis/certificates.k8s.io/v1/certificatesigningrequests"):
            assert hub.request("GET", path)[0] == 200, path
        for path in ("/api/v1/namespaces/default/pods", f"/api/v1/namespaces/{restricted}/secrets"):
            assert hub.request("GET", path)[0] == 403, path


@pytest.mark.usefixtures("crds", "operator")
def test_a_namespaced_operator_reaches_the_namespaces_that_it_is_bound_in(
    region: RegionHandle, restricted: str, tmp_path: Path
) -> None:
    region.kubectl("create", "serviceaccount", "small", "-n", restricted)
    must_apply(region, roles.role_binding(roles.GROUPS_ROLE, "small", restricted, restricted, kind="ClusterRole"))
    groups = f"/apis/{names.GROUP_VERSION}/namespaces/{{}}/{names.SYNCGROUP_PLURAL}"
    with client_of(region, tmp_path, restricted, "small") as small:
        must_accept(small, documents_of(observed(example(ROOT / "crds/examples/two-regions.yaml"), restricted)))
        assert small.request("GET", groups.format(restricted))[0] == 200
        assert small.request("GET", groups.format("default"))[0] == 403
        assert small.request("GET", "/api/v1/pods")[0] == 403


def test_a_member_may_renew_its_lease_and_watch_its_plan_and_nothing_else(
    operator: ApiClient, region: RegionHandle, restricted: str, tmp_path: Path
) -> None:
    seen = observed(example(ROOT / "crds/examples/two-regions.yaml"), restricted)
    for document in documents_of(seen):
        if document["kind"] != "Pod":
            must_apply(operator, without_owner(document))
    must_apply(region, roles.member_binding(restricted))
    with client_of(region, tmp_path, restricted, "default") as member:
        key = GroupKey(restricted, "two-regions")
        leases, maps = PATHS["Lease"].format(restricted), PATHS["ConfigMap"].format(restricted)
        own = f"{leases}/{names.lease_name(key, 'west', 0)}"
        status, lease = member.request("GET", own)
        assert status == 200, lease
        lease["spec"] = {"holderIdentity": "me", "leaseDurationSeconds": 40}
        assert member.request("PUT", own, lease)[0] == 200
        plan_name = names.plan_name(key, "local", "us-west-2")
        watch = f"{maps}?watch=true&timeoutSeconds=1&fieldSelector={quote(f'metadata.name={plan_name}')}"
        events = list(member.watch(watch))
        assert [event["object"]["metadata"]["name"] for event in events] == [plan_name]
        forbidden = [
            ("POST", leases, {**lease, "metadata": {"name": "mine"}}),
            ("GET", leases, None),
            ("DELETE", own, None),
            ("GET", f"{maps}/{names.trust_bundle_name(key)}", None),
            ("GET", maps, None),
            ("GET", PATHS["Pod"].format(restricted), None),
            ("GET", f"/api/v1/namespaces/{restricted}/secrets", None),
            ("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests", None),
        ]
        for method, path, body in forbidden:
            assert member.request(method, path, body)[0] == 403, f"{method} {path}"


def test_a_template_that_has_no_problem_but_a_fault_is_left_to_the_api_server(
    operator: ApiClient, restricted: str
) -> None:
    """What only it can judge it judges, with the field in its answer."""
    document = example(ROOT / "crds/examples/two-regions.yaml")
    document["spec"]["rollouts"][0]["template"] = template(containers=[{"name": "Not A Name", "image": "x"}])
    restrict(document["spec"]["rollouts"][0]["template"])
    pods = [item for item in documents_of(observed(document, restricted)) if item["kind"] == "Pod"]
    status, answer = apply(operator, pods[-1], dry_run=True)
    assert status == 422
    assert "spec.containers[0].name" in answer["message"]
