"""Operator and sidecar from our images on a real node, installed by the chart: a group gets ready, and its bits agree.

The user's containers run this machine's Python, as a user's image would hold its own; what is ours comes from images.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sync_runtime.contract import names
from tests.support import clusters, helm
from tests.support.helm import CHART, NAMESPACE, RELEASE
from tests.support.operators import ACCOUNT, apply, condition, group_of, items
from tests.support.podsync import GROUP, SPACE, Member, group_document, rollout
from tools.devcluster import hostcheck
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle
from tools.devcluster.config import Level
from tools.errors import ClusterError
from tools.images import Images

pytestmark = [pytest.mark.bubble]
PATIENCE_S = 180.0
RUNTIME = {  # and no image: the operator has that from the chart
    "imagePullPolicy": "Never",
    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    "storage": {"sizeBytes": 256 << 20, "sharedMemoryBytes": 16 << 20},
}


@pytest.fixture(scope="module")
def region(built: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionHandle]:
    """A node that has the images, the chart installed, a group applied."""
    reason = hostcheck.why_impossible(Level.NODES)
    if reason is not None:
        pytest.skip(reason)
    program = helm.find("helm", tmp_path_factory.mktemp("helm"))
    cluster: Cluster = clusters.start(Level.NODES, "1", images=built.archives)
    try:
        (found,) = cluster.regions.values()
        for name in (NAMESPACE, SPACE):
            found.kubectl("create", "namespace", name)
        found.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        where = ("--namespace", NAMESPACE, "--kubeconfig", str(found.kubeconfig))
        try:
            program.run(
                "install", RELEASE, str(CHART), "--wait", "--timeout", f"{PATIENCE_S:.0f}s", *where,
                values={**built.chart_values(), "replicas": 2}, timeout_s=PATIENCE_S + 60,
            )  # fmt: skip
        except helm.HelmError as error:
            raise AssertionError(f"{error}\n{_describe(found)}") from error
        apply(found, group_document(found.name, [rollout("near", found.name)], runtime=RUNTIME))
        yield found
    finally:
        cluster.down()


def test_the_chart_runs_the_operator_from_its_image(region: RegionHandle, built: Images) -> None:
    pods = items(region, f"/api/v1/namespaces/{NAMESPACE}/pods")
    assert len(pods) == 2
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["image"] == built.operator.reference
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        (status,) = pod["status"]["containerStatuses"]
        assert status["ready"] is True
        assert status["restartCount"] == 0


def test_a_group_under_it_gets_ready_with_sidecars_from_the_runtime_s_image(
    region: RegionHandle, built: Images
) -> None:
    members = [Member(region, SPACE, role) for role in (names.TRAINER_ROLE, "near")]
    _wait(region, lambda: _ready(region), "a group that is ready")
    for member in members:
        pod = member.pod()
        added = {one["name"]: one for one in pod["spec"]["initContainers"]}
        assert {one["image"] for one in added.values()} == {built.runtime.reference}
        assert added[names.RUNTIME_CONTAINER]["securityContext"]["readOnlyRootFilesystem"] is True
        states = {one["name"]: one for one in pod["status"]["initContainerStatuses"]}
        assert states[names.RUNTIME_CONTAINER]["restartCount"] == 0


def test_a_version_reaches_the_rollout_bit_for_bit(region: RegionHandle) -> None:
    trainer, near = Member(region, SPACE, names.TRAINER_ROLE), Member(region, SPACE, "near")

    def agree() -> bool:
        told = {(line.lineage, line.seq): line.sum for line in trainer.versions() if line.seq > 0}
        seen = [line for line in near.versions() if (line.lineage, line.seq) in told]
        assert all(line.sum == told[line.lineage, line.seq] for line in seen), "other bits than the trainer's"
        return bool(seen)

    _wait(region, agree, "a version of the trainer's at the rollout")
    library = next(line["library"] for line in near.told() if "library" in line)
    assert library.startswith(f"{names.LIBRARY_DIR}/"), "the library that the image handed over"


def _ready(region: RegionHandle) -> bool:
    return condition(group_of(region, SPACE, GROUP), "Ready").get("status") == "True"


def _wait(region: RegionHandle, check: Callable[[], bool], what: str) -> None:
    try:
        wait_until(check, what, PATIENCE_S, every_s=0.5)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{_describe(region)}") from error


def _describe(region: RegionHandle) -> str:
    """Everything that helps."""
    status: dict[str, Any] = group_of(region, SPACE, GROUP).get("status") or {}
    parts = [
        json.dumps(status)[:3000],
        region.kubectl("get", "pods,csr,leases", "-A", "-o", "wide", check=False).stdout,
    ]
    parts.append(region.kubectl("logs", "-n", NAMESPACE, f"deployment/{ACCOUNT}", "--tail=40", check=False).stdout)
    for role in (names.TRAINER_ROLE, "near"):
        member = Member(region, SPACE, role)
        parts += [f"--- {role} {one}\n{member.log(one, 20)}" for one in (names.RUNTIME_CONTAINER, "main")]
    return "\n".join([*parts, region.kubectl("get", "events", "-A", check=False).stdout[-3000:]])
