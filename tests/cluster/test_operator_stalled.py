"""Every example of a group that cannot run says so in a condition, in words that name the field and the remedy.

All are applied at once to one hub with a running operator. kwok plays the kubelet; where a real one would complain, the
test writes its words into the pod's status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from sync_runtime.contract import names
from tests.support import clusters
from tests.support.operators import OperatorHub, apply, condition, group_of, items
from tests.unit.contract.samples import STALLED_EXAMPLES
from tools.devcluster.api import MERGE, wait_until
from tools.devcluster.client import RegionHandle
from tools.devcluster.config import Level
from tools.devcluster.region import kwok_node
from tools.errors import ClusterError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PATIENCE_S = 180.0
REGIONS = ("us-east-1", "us-west-2")
ENGINE = "spec.rollouts[west].template.spec.containers[0]"


class Pinned(NamedTuple):
    """What a group must end in."""

    condition: str
    """`Stalled` that is True, or another one that is False."""
    reason: str
    words: tuple[str, ...]


def stalled(reason: str, *words: str) -> Pinned:
    return Pinned("Stalled", reason, words)


def unready(reason: str, *words: str) -> Pinned:
    return Pinned("RolloutsReady", reason, words)


PINNED = {
    "cluster-missing": stalled("ClusterNotFound", "spec.rollouts[west].cluster", "syncgroup cluster register atlantis"),
    "cluster-namespace-not-allowed": stalled(
        "NamespaceNotAllowed", "SyncCluster closed does not allow namespace post-training", "spec.allowedNamespaces"
    ),
    "cluster-secret-missing": stalled(
        "KubeconfigMissing", "no Secret no-secret-kubeconfig in namespace syncgroup-system", "must hold the kubeconfig"
    ),
    "cluster-secret-other-key": stalled(
        "KubeconfigRefused", "Secret other-key-kubeconfig has no key kubeconfig", "name another key"
    ),
    "cluster-kubeconfig-broken": stalled("KubeconfigRefused", "is not YAML in UTF-8", "check the Secret's key"),
    "cluster-kubeconfig-exec": stalled(
        "KubeconfigRefused", "users[operator].user.exec is refused", "syncgroup cluster register"
    ),
    "cluster-kubeconfig-insecure": stalled(
        "KubeconfigRefused", "insecure-skip-tls-verify is refused", "give certificate-authority-data instead"
    ),
    "cluster-unreachable": Pinned(
        "ClustersReachable", "Unreachable", ("cluster away", "no answer", "Connect call failed")
    ),
    "service-account-not-allowed": stalled(
        "ServiceAccountNotAllowed",
        "spec.rollouts[west].template.spec.serviceAccountName",
        "(allowed: default, engine): name an allowed one",
    ),
    "container-not-found": stalled(
        "ContainerNotFound", "spec.rollouts[west].container: the template has no container vllm: name one of engine"
    ),
    "container-is-init": stalled(
        "ContainerNotFound", "spec.rollouts[west].container: prepare is an init container", "name a container"
    ),
    "containers-empty": stalled(
        "ContainerNotFound", "spec.rollouts[west].template.spec.containers: is empty: add the container"
    ),
    "containers-not-a-list": stalled("InvalidSpec", "spec.rollouts[west].template.spec.containers", "must be a list"),
    "container-name-conflict": stalled(
        "TemplateConflict",
        "spec.rollouts[west].template.spec.initContainers[0].name: the name sync-runtime belongs to",
        "choose another name",
    ),
    "container-name-refused": stalled("TemplateRefused", "apply Pod", "containers[0].name", "Engine"),
    "port-conflict": stalled(
        "TemplateConflict",
        f"{ENGINE}.ports[0].containerPort: the runtime listens on port 7443",
        "let your process listen on another one",
    ),
    "volume-conflict": stalled(
        "TemplateConflict",
        "spec.rollouts[west].template.spec.volumes[0].name: the name syncgroup-run",
        "choose another name",
    ),
    "mount-conflict": stalled(
        "TemplateConflict", f"{ENGINE}.volumeMounts[0].mountPath: the folder /run/syncgroup", "mount this elsewhere"
    ),
    "python-path-set": stalled("TemplateConflict", f"{ENGINE}.env[0].name: PYTHONPATH is set here", "choose Mount"),
    "host-network": stalled("TemplateConflict", "spec.rollouts[west].template.spec.hostNetwork", "remove it"),
    "host-name-set": stalled("TemplateConflict", "spec.rollouts[west].template.spec.hostname", "remove it"),
    "cuda-ipc-without-claim": stalled(
        "NoDeviceSharing", "spec.trainer.template.spec.containers[0].resources.claims", "or choose InProcess"
    ),
    "cuda-ipc-without-user": stalled(
        "TemplateConflict", f"{ENGINE}.securityContext.runAsUser", "one user that is not root", "or choose InProcess"
    ),
    "runtime-limit-below-request": stalled(
        "InvalidSpec", "spec.runtime.resources.limits[cpu]: is below the request of 4: raise it"
    ),
    "runtime-memory-too-small": stalled(
        "InvalidSpec", "spec.runtime.resources.limits[memory]: must exceed spec.runtime.storage.sharedMemoryBytes"
    ),
    "fallback-pinned-by-label": stalled(
        "TemplateConflict", "nodeSelector[topology.kubernetes.io/region]", "local/us-east-1", "remove it"
    ),
    "no-node-fits": unready(
        "Unschedulable", "Insufficient nvidia.com/gpu", "add nodes, or change nodeSelector, tolerations or resources"
    ),
    "image-missing": unready(
        "ImagePullBackOff",
        "container engine",
        "correct image or imagePullSecrets in spec.rollouts[west].template",
    ),
    "object-store-secret-missing": stalled(
        "SecretNotFound",
        "spec.sync.objectStore.secretRef.name: there is no Secret no-such-credentials in namespace post-training",
        "create it with the store's credentials, or remove secretRef",
    ),
    "object-store-secret-without-keys": stalled(
        "SecretUnusable",
        "spec.sync.objectStore.secretRef.name: Secret half-credentials",
        "it has no AWS_SECRET_ACCESS_KEY: add what s3:// stores are opened with",
    ),
    "secret-absent": unready(
        "CreateContainerConfigError",
        'secret "hugging-face" not found',
        "create the Secret or ConfigMap that is missing, or correct its name in spec.rollouts[west].template",
    ),
    "quota-exceeded": Pinned("Ready", "Denied", ("apply Pod", "exceeded quota: pods, requested: pods=1")),
}

KUBELET = {
    "image-missing": {
        "reason": "ImagePullBackOff",
        "message": 'Back-off pulling image "registry.example/my-rollout:no-such-tag": not found',
    },
    "secret-absent": {"reason": "CreateContainerConfigError", "message": 'secret "hugging-face" not found'},
}
"""What a kubelet would say of the container `engine`."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionHandle]:
    """A hub to which every example is applied, with an operator."""
    cluster = clusters.start(Level.PLANES, "1", kwok_nodes=1)
    region = next(iter(cluster.regions.values()))
    _nodes_with_the_regions_of_the_examples(region)
    prepared = OperatorHub(region, tmp_path_factory.mktemp("stalled"), store_secrets=True)
    region.kubectl("create", "namespace", "post-training")
    for path in STALLED_EXAMPLES:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            apply(region, document)
    with prepared.operator(check_clusters_s="1", cluster_lost_s="2", leader_election="false"):
        yield region
    cluster.down()


def _nodes_with_the_regions_of_the_examples(region: RegionHandle) -> None:
    for number, name in enumerate(REGIONS):
        node = kwok_node(region.region, number + 1)
        node["metadata"]["name"] = f"node-in-{name}"
        node["metadata"]["labels"] |= {"topology.kubernetes.io/region": name, "kubernetes.io/hostname": f"node-{name}"}
        status, answer = region.api("POST", "/api/v1/nodes", node)
        assert status == 201, answer


def _kubelet_says(region: RegionHandle, name: str) -> bool:
    """Put a container's trouble on the pods of a rollout; whether there was one."""
    query = f"labelSelector={names.LABEL_GROUP}={name},{names.LABEL_ROLE}=west"
    pods = [pod for pod in items(region, f"/api/v1/namespaces/post-training/pods?{query}") if _runs(pod)]
    for pod in pods:
        container = {"name": "engine", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        status = {
            "phase": "Pending",
            "containerStatuses": [{**container, "state": {"waiting": KUBELET[name]}}],
            "conditions": [{"type": "Ready", "status": "False"}],
        }
        path = f"/api/v1/namespaces/post-training/pods/{pod['metadata']['name']}/status"
        assert region.api("PATCH", path, {"status": status}, content_type=MERGE)[0] == 200
    return bool(pods)


def _runs(pod: Mapping[str, Any]) -> bool:
    return bool(pod["status"].get("podIP")) and "deletionTimestamp" not in pod["metadata"]


def test_every_example_is_pinned() -> None:
    assert {path.stem for path in STALLED_EXAMPLES} == set(PINNED)
    assert len(PINNED) >= 15


@pytest.mark.parametrize("name", sorted(PINNED))
def test_an_example_ends_in_a_condition_that_names_field_and_remedy(hub: RegionHandle, name: str) -> None:
    pinned = PINNED[name]
    namespace = "small-quota" if name == "quota-exceeded" else "post-training"
    if name in KUBELET:
        wait_until(lambda: _kubelet_says(hub, name), f"{name} has its pod", PATIENCE_S)
    wanted = "True" if pinned.condition == "Stalled" else "False"

    def ends() -> bool:
        found = condition(group_of(hub, namespace, name), pinned.condition)
        text = found.get("message", "")
        fits = (found.get("status"), found.get("reason")) == (wanted, pinned.reason)
        return fits and all(words in text for words in pinned.words)

    try:
        wait_until(ends, f"{name} ends as pinned", PATIENCE_S)
    except ClusterError:
        status = group_of(hub, namespace, name).get("status") or {}
        pytest.fail(f"{name} ended otherwise: {yaml.safe_dump(status.get('conditions'))}")
    assert condition(group_of(hub, namespace, name), "Ready")["status"] == "False"
