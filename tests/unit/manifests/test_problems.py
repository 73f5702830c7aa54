from __future__ import annotations

from typing import Any

import pytest

from syncgroup_operator import reasons
from syncgroup_operator.manifests.problems import problems_of
from syncgroup_operator.planning.problems import TemplateProblem
from tests.unit.manifests.samples import clusters, group, observation, template

ENGINE = {"name": "engine", "image": "registry.example/engine:1"}
TEMPLATE = "spec.rollouts[eu].template"
FIRST = f"{TEMPLATE}.spec.containers[0]"


def with_engine(**changes: Any) -> dict[str, Any]:
    return template(containers=[{**ENGINE, **changes}])


def found(rollout: dict[str, Any], **spec: Any) -> list[TemplateProblem]:
    return list(problems_of(observation(group(rollout=rollout, **spec))))


def test_a_plain_template_has_no_problem() -> None:
    assert problems_of(observation()) == ()


CONFLICTS = {
    "a container's name": (template(containers=[{**ENGINE, "name": "sync-runtime"}]), f"{FIRST}.name", "sync-runtime"),
    "an init container's name": (
        template(initContainers=[{"name": "sync-library"}]), f"{TEMPLATE}.spec.initContainers[0].name", "sync-library",
    ),
    "a volume's name": (
        template(volumes=[{"name": "syncgroup-run"}]), f"{TEMPLATE}.spec.volumes[0].name", "syncgroup-run",
    ),
    "the data port": (with_engine(ports=[{"containerPort": 7443}]), f"{FIRST}.ports[0].containerPort", "7443"),
    "the control port of a helper": (
        template(containers=[ENGINE, {"name": "b", "ports": [{"containerPort": 1}, {"containerPort": 7480}]}]),
        f"{TEMPLATE}.spec.containers[1].ports[1].containerPort", "7480",
    ),
    "a port's name": (
        with_engine(ports=[{"containerPort": 1, "name": "sync-data"}]), f"{FIRST}.ports[0].name", "sync-data",
    ),
    "the socket's folder": (
        with_engine(volumeMounts=[{"name": "x", "mountPath": "/run//syncgroup/./"}]),
        f"{FIRST}.volumeMounts[0].mountPath", "/run/syncgroup",
    ),
    "a folder below the library": (
        with_engine(volumeMounts=[{"name": "x", "mountPath": "/opt/a/../syncgroup/library/mine"}]),
        f"{FIRST}.volumeMounts[0].mountPath", "elsewhere",
    ),
    "the token's volume in a helper": (
        template(containers=[ENGINE, {"name": "b", "volumeMounts": [{"name": "syncgroup-token", "mountPath": "/t"}]}]),
        f"{TEMPLATE}.spec.containers[1].volumeMounts[0].name", "syncgroup-token",
    ),
    "the socket's variable": (
        with_engine(env=[{"name": "A"}, {"name": "SYNCGROUP_SOCKET"}]), f"{FIRST}.env[1].name", "remove",
    ),
    "hostname": (template(hostname="me"), f"{TEMPLATE}.spec.hostname", "remove"),
    "subdomain": (template(subdomain="mine"), f"{TEMPLATE}.spec.subdomain", "remove"),
    "the host's network": (template(hostNetwork=True), f"{TEMPLATE}.spec.hostNetwork", "ports"),
    "a full name as hostname": (template(setHostnameAsFQDN=True), f"{TEMPLATE}.spec.setHostnameAsFQDN", "longer"),
    "the DNS of the node": (template(dnsPolicy="Default"), f"{TEMPLATE}.spec.dnsPolicy", "DNS"),
    "another system": (template(os={"name": "windows"}), f"{TEMPLATE}.spec.os.name", "Linux"),
    "a label of ours": (
        {**template(), "metadata": {"labels": {"syncgroup.dev/role": "x"}}},
        f"{TEMPLATE}.metadata.labels[syncgroup.dev/role]", "remove",
    ),
    "an annotation of ours": (
        {**template(), "metadata": {"annotations": {"syncgroup.dev/term": "9"}}},
        f"{TEMPLATE}.metadata.annotations[syncgroup.dev/term]", "remove",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFLICTS)
def test_what_is_ours_is_refused_with_its_field(case: str) -> None:
    changed, field, word = CONFLICTS[case]
    (problem,) = found({"template": changed})
    assert (problem.reason, problem.field) == (reasons.TEMPLATE_CONFLICT, field)
    assert word in problem.message


HARMLESS = {
    "our port over UDP": with_engine(ports=[{"containerPort": 7443, "protocol": "UDP"}]),
    "a folder above ours": with_engine(volumeMounts=[{"name": "x", "mountPath": "/run"}]),
    "a folder that only looks like ours": with_engine(volumeMounts=[{"name": "x", "mountPath": "/run/syncgroup-x"}]),
    "the socket's folder in a helper": template(
        containers=[ENGINE, {"name": "b", "volumeMounts": [{"name": "x", "mountPath": "/run/syncgroup"}]}]
    ),
    "PYTHONPATH with a mounted library": with_engine(env=[{"name": "PYTHONPATH", "value": "/app"}]),
    "nulls": {"metadata": {"labels": None, "creationTimestamp": None}, **template(volumes=None, affinity=None)},
    "the host's network switched off": template(hostNetwork=False, hostname=""),
    "a service account that is allowed": template(serviceAccountName="default"),
    "one port over two protocols": with_engine(ports=[{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_does_not_clash_is_allowed(case: str) -> None:
    assert found({"template": HARMLESS[case]}) == []


def test_pythonpath_is_refused_where_the_operator_sets_it() -> None:
    (problem,) = found(
        {"template": with_engine(env=[{"name": "PYTHONPATH", "value": "/app"}])}, runtime={"library": "PythonPath"}
    )
    assert problem.field == f"{FIRST}.env[0].name"
    assert "Mount" in problem.message


def test_without_a_library_its_folder_is_free() -> None:
    changed = with_engine(volumeMounts=[{"name": "x", "mountPath": "/opt/syncgroup/library"}])
    assert found({"template": changed}, runtime={"library": "None"}) == []


@pytest.mark.parametrize(
    ("rollout", "field", "word"),
    [
        ({"template": template(containers=[])}, f"{TEMPLATE}.spec.containers", "add the container"),
        ({"container": "engin"}, "spec.rollouts[eu].container", "engine"),
        (
            {"container": "load", "template": template(initContainers=[{"name": "load"}])},
            "spec.rollouts[eu].container",
            "init container",
        ),
    ],
)
def test_a_container_that_is_not_there_is_named_with_those_that_are(
    rollout: dict[str, Any], field: str, word: str
) -> None:
    (problem,) = found(rollout)
    assert (problem.reason, problem.field) == (reasons.CONTAINER_NOT_FOUND, field)
    assert word in problem.message


@pytest.mark.parametrize("key", ["serviceAccountName", "serviceAccount"])
def test_a_service_account_must_be_allowed_wherever_pods_may_go(key: str) -> None:
    changed = {"template": template(**{key: "engine"}), "placement": {"fallback": [{"region": "us-east-1"}]}}
    seen = observation(
        group(rollout=changed), clusters(frankfurt={"service_accounts": frozenset({"default", "engine"})})
    )
    (problem,) = problems_of(seen)
    assert problem.reason == reasons.SERVICE_ACCOUNT_NOT_ALLOWED
    assert problem.field == f"{TEMPLATE}.spec.serviceAccountName"
    assert "cluster local" in problem.message
    assert "(allowed: default)" in problem.message


def test_two_spellings_of_the_service_account_are_both_judged() -> None:
    (problem,) = found({"template": template(serviceAccountName="default", serviceAccount="admin")})
    assert "admin" in problem.message


CLAIMED = {
    **template(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]),
}
OWNER = {"securityContext": {"runAsUser": 1000}}
CLAIMED["spec"]["containers"] = [{**ENGINE, **OWNER, "resources": {"claims": [{"name": "gpu"}]}}]
SHARING = {"frankfurt": {"shares_devices": True}, "local": {"shares_devices": True}}


def sharing(rollout: dict[str, Any], **views: Any) -> list[TemplateProblem]:
    whole = group(trainer={"template": CLAIMED}, rollout=rollout, sync={"gpuAccess": "CudaIpc"})
    return list(problems_of(observation(whole, clusters(**{**SHARING, **views}))))


def test_a_shared_gpu_needs_a_claim_and_a_cluster_that_has_claims() -> None:
    assert sharing({"template": CLAIMED}) == []
    (no_claim,) = sharing({"template": template(**OWNER)})
    assert (no_claim.reason, no_claim.field) == (reasons.NO_DEVICE_SHARING, f"{FIRST}.resources.claims")
    (no_cluster,) = sharing({"template": CLAIMED}, frankfurt={"shares_devices": False})
    assert (no_cluster.reason, no_cluster.field) == (reasons.NO_DEVICE_SHARING, "spec.sync.gpuAccess")
    assert "frankfurt" in no_cluster.message


def test_a_cluster_that_is_away_is_not_said_to_lack_claims() -> None:
    assert sharing({"template": CLAIMED}, frankfurt={"shares_devices": False, "connected_s": None}) == []


def test_a_shared_gpu_needs_a_shared_process_namespace() -> None:
    apart = {**CLAIMED, "spec": {**CLAIMED["spec"], "shareProcessNamespace": False}}
    (problem,) = sharing({"template": apart})
    assert (problem.reason, problem.field) == (reasons.TEMPLATE_CONFLICT, f"{TEMPLATE}.spec.shareProcessNamespace")


@pytest.mark.parametrize("context", [None, {}, {"runAsUser": 0}])
def test_a_shared_gpu_needs_one_user_that_is_not_root(context: dict[str, int] | None) -> None:
    """torch shares its reference counts in files that only their owner may open."""
    (container,) = CLAIMED["spec"]["containers"]
    unknown = {**CLAIMED, "spec": {**CLAIMED["spec"], "containers": [{**container, "securityContext": context}]}}
    (problem,) = sharing({"template": unknown})
    field = f"{FIRST}.securityContext.runAsUser"
    assert (problem.reason, problem.field) == (reasons.TEMPLATE_CONFLICT, field)
    assert "set it to the user of this image" in problem.message
    of_the_pod = {**unknown, "spec": {**unknown["spec"], **OWNER}}
    assert (sharing({"template": of_the_pod}) == []) is (not context)


def test_metadata_that_no_template_has_is_refused() -> None:
    problems = found({"template": {**template(), "metadata": {"name": "x", "finalizers": ["a/b"]}}})
    assert [problem.field for problem in problems] == [f"{TEMPLATE}.metadata.finalizers", f"{TEMPLATE}.metadata.name"]


def test_a_template_that_pins_its_region_cannot_have_a_fallback_elsewhere() -> None:
    pinned = template(nodeSelector={"topology.kubernetes.io/region": "eu-central-1"})
    fallback = {"fallback": [{"cluster": "frankfurt", "region": "eu-north-1"}]}
    (problem,) = found({"template": pinned, "placement": fallback})
    assert problem.field == f"{TEMPLATE}.spec.nodeSelector[topology.kubernetes.io/region]"
    assert found({"template": pinned}) == []
    own_words = template(nodeSelector={"topology.kubernetes.io/region": "fra1"})
    assert found({"template": own_words, "placement": fallback}) == []


def test_resources_that_kill_the_sidecar_are_refused() -> None:
    low = {"resources": {"requests": {"cpu": 1}, "limits": {"memory": "256Mi"}}}
    (problem,) = found({}, runtime=low)
    assert problem.field == "spec.runtime.resources.limits[memory]"
    assert "sharedMemoryBytes" in problem.message
    (problem,) = found({}, runtime={"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}})
    assert problem.field == "spec.runtime.resources.limits[cpu]"
    assert found({}, runtime={"resources": {"requests": {"cpu": "1e0"}, "limits": {"cpu": "1000m"}}}) == []


def test_annotations_of_the_service_may_not_be_ours() -> None:
    exposure = {"type": "LoadBalancer", "annotations": {"syncgroup.dev/hub": "mine"}}
    (problem,) = problems_of(observation(group(trainer={"exposure": exposure})))
    assert problem.field == "spec.trainer.exposure.annotations[syncgroup.dev/hub]"


MISSHAPEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "containers that are text": (template(containers="engine"), f"{TEMPLATE}.spec.containers", "list"),
    "a container that is text": (template(containers=["engine"]), FIRST, "object"),
    "ports that are a map": (with_engine(ports={"http": 80}), f"{FIRST}.ports", "list"),
    "a port that is text": (with_engine(ports=[{"containerPort": "80"}]), f"{FIRST}.ports[0].containerPort", "number"),
    "a port that is true": (with_engine(ports=[{"containerPort": True}]), f"{FIRST}.ports[0].containerPort", "number"),
    "variables that are a map": (with_engine(env={"A": "b"}), f"{FIRST}.env", "list"),
    "a variable twice": (with_engine(env=[{"name": "A"}, {"name": "A"}]), f"{FIRST}.env[1]", "keep one"),
    "a port twice": (
        with_engine(ports=[{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]),
        f"{FIRST}.ports[1]", "keep one",
    ),
    "a container twice": (template(containers=[ENGINE, ENGINE]), f"{TEMPLATE}.spec.containers[1]", "keep one"),
    "affinity that is a list": (template(affinity=[]), f"{TEMPLATE}.spec.affinity", "object"),
    "a node selector with a number": (template(nodeSelector={"a": 1}), f"{TEMPLATE}.spec.nodeSelector[a]", "quotes"),
    "a label that is true": (
        {**template(), "metadata": {"labels": {"a": True}}}, f"{TEMPLATE}.metadata.labels[a]", "quotes",
    ),
    "a service account that is a list": (
        template(serviceAccountName=["a"]), f"{TEMPLATE}.spec.serviceAccountName", "text",
    ),
    "a user that is text": (
        with_engine(securityContext={"runAsUser": "me"}), f"{FIRST}.securityContext.runAsUser", "number",
    ),
    "volumes with a null": (template(volumes=[None]), f"{TEMPLATE}.spec.volumes[0]", "object"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSHAPEN)
def test_what_kubernetes_could_not_read_is_refused_with_its_field(case: str) -> None:
    changed, field, word = MISSHAPEN[case]
    (problem,) = found({"template": changed})
    assert (problem.reason, problem.field) == (reasons.INVALID_SPEC, field)
    assert word in problem.message


def test_a_tower_of_lists_is_refused_before_anybody_climbs_it() -> None:
    tower: Any = []
    for _ in range(500):
        tower = [tower]
    (problem,) = found({"template": template(tolerations=tower)})
    assert problem.field == TEMPLATE


def test_a_flood_of_problems_is_cut() -> None:
    ports = [{"containerPort": 7443, "protocol": "TCP", "name": "sync-data", "hostPort": at} for at in range(1000)]
    many = [{"name": f"c{at}", "ports": [port]} for at, port in enumerate(ports)]
    assert len(found({"template": template(containers=many)})) == 100


SERVED = {"volume": "models", "base": "base"}


def test_a_folder_is_served_in_a_volume_that_can_be_written() -> None:
    there = template(volumes=[{"name": "models", "emptyDir": {}}])
    assert found({"template": there, "servedFolder": SERVED}) == []
    (missing,) = found({"servedFolder": SERVED})
    assert missing.field == "spec.rollouts[eu].servedFolder.volume"
    assert "no volume models (it has none)" in missing.message
    fixed = template(volumes=[{"name": "models", "configMap": {"name": "weights"}}])
    (read_only,) = found({"template": fixed, "servedFolder": SERVED})
    assert "cannot be written" in read_only.message
