"""The chart on a real API server: installed, upgraded, rolled back and uninstalled by Helm, with `--wait`.

kwok runs the pods, so that they become ready without an image; their namespace enforces the Pod Security level
`restricted`, so that a pod which does not fit it never appears.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.crd_fixtures import CRD_API
from tests.support import clusters
from tests.support import helm as support
from tests.support.helm import CHART, NAMESPACE, RELEASE, Helm, HelmError, Values, figures
from tests.support.operator_groups import beating_group
from tests.support.operators import ACCOUNT, OperatorHub, OperatorProcess, items
from tests.support.pages import REPOSITORY, blocks, pages, run_block
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle
from tools.devcluster.config import Level
from tools.errors import ClusterError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
GROUPS = "/apis/syncgroup.dev/v1alpha1/namespaces/default/syncgroups"
GROUP_FILE = CHART.parents[1] / "crds" / "examples" / "two-regions.yaml"


class Installation:
    """A release of the chart on one control plane."""

    def __init__(self, helm: Helm, region: RegionHandle) -> None:
        self.helm = helm
        self.region = region

    def run(self, *arguments: str, values: Values | None = None) -> str:
        where = ("--namespace", NAMESPACE, "--kubeconfig", str(self.region.kubeconfig))
        return self.helm.run(*arguments, *where, values=values, timeout_s=180)

    def install(self, values: Values | None = None, chart: Path = CHART, release: str = RELEASE) -> str:
        return self.run("install", release, str(chart), "--wait", "--timeout", "120s", values=values or {})

    def upgrade(self, values: Values | None = None) -> str:
        return self.run("upgrade", RELEASE, str(CHART), "--wait", "--timeout", "120s", values=values or {})

    def deployment(self) -> dict[str, Any]:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{ACCOUNT}"
        return self.region.api("GET", path)[1]

    def ready(self) -> tuple[int, int]:
        """Replicas wanted, and available."""
        found = self.deployment()
        return found["spec"]["replicas"], found["status"].get("availableReplicas", 0)

    def wait_ready(self, wanted: int, available: int) -> None:
        """Helm waits until enough are there; that no more than that are is told a moment later."""
        wait_until(lambda: self.ready() == (wanted, available), f"{available} of {wanted} replicas", 60)

    def definitions(self) -> dict[str, dict[str, Any]]:
        found = {one["metadata"]["name"]: one for one in items(self.region, CRD_API)}
        return {name: one for name, one in found.items() if name.endswith(".syncgroup.dev")}

    def group_uid(self) -> str:
        status, answer = self.region.api("GET", f"{GROUPS}/two-regions")
        assert status == 200, answer
        return str(answer["metadata"]["uid"])

    def clear(self) -> None:
        """Take everything away, kept or not."""
        with contextlib.suppress(HelmError):
            self.run("uninstall", RELEASE, "--wait")
        for name in self.definitions():
            self.region.kubectl("delete", "crd", name, "--wait", "--timeout=60s")
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        wait_until(lambda: items(self.region, path) == [], "the end of the operator's pods", 60)


class ChartHub(OperatorHub):
    """The operator's surroundings as the chart made them, with nothing added."""

    def __init__(self, region: RegionHandle, folder: Path) -> None:
        self.region = region
        self.folder = folder
        self.kubeconfig = folder / "operator.kubeconfig"
        self.kubeconfig.write_text(region.service_account_kubeconfig(NAMESPACE, ACCOUNT))


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return support.find("helm", tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def plane(helm: Helm) -> Iterator[RegionHandle]:
    """A control plane of its own: the chart's objects exist once per cluster. Asks for Helm first, which may skip."""
    cluster: Cluster = clusters.start(Level.PLANES, "1", kwok_nodes=2)
    (region,) = cluster.regions.values()
    region.kubectl("create", "namespace", NAMESPACE)
    region.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    yield region
    with contextlib.suppress(ClusterError):
        cluster.down()
    shutil.rmtree(cluster.config.directory, ignore_errors=True)


@pytest.fixture
def installation(helm: Helm, plane: RegionHandle) -> Iterator[Installation]:
    made = Installation(helm, plane)
    yield made
    made.clear()


def older_chart(folder: Path) -> Path:
    """The chart as an earlier release might have been: its CRDs say something else."""
    chart = Path(shutil.copytree(CHART, folder / "syncgroup"))
    path = chart / "files" / "crds" / "syncgroups.yaml"
    text = path.read_text(encoding="utf-8")
    assert "- name: Ready\n" in text
    path.write_text(text.replace("- name: Ready\n", "- name: Readiness\n"), encoding="utf-8")
    return chart


def first_column(installation: Installation) -> str:
    version = installation.definitions()["syncgroups.syncgroup.dev"]["spec"]["versions"][0]
    return str(version["additionalPrinterColumns"][0]["name"])


def test_groups_outlive_upgrade_rollback_and_uninstallation(installation: Installation, tmp_path: Path) -> None:
    said = installation.install(chart=older_chart(tmp_path))
    assert f"kubectl -n {NAMESPACE} rollout status deployment/{ACCOUNT}" in said
    installation.wait_ready(2, 2)
    assert first_column(installation) == "Readiness"
    installation.region.kubectl("apply", "-f", str(GROUP_FILE))
    uid = installation.group_uid()

    installation.upgrade({"replicas": 3})
    installation.wait_ready(3, 3)
    assert first_column(installation) == "Ready"
    assert installation.group_uid() == uid

    installation.upgrade({"crds": {"enabled": False}})
    assert len(installation.definitions()) == 2
    assert installation.group_uid() == uid

    installation.run("rollback", RELEASE, "1", "--wait", "--timeout", "120s")
    installation.wait_ready(2, 2)
    assert first_column(installation) == "Readiness"
    assert installation.group_uid() == uid

    installation.run("uninstall", RELEASE, "--wait")
    assert installation.region.api("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{ACCOUNT}")[0] == 404
    assert installation.group_uid() == uid

    installation.install()
    assert first_column(installation) == "Ready"
    assert installation.group_uid() == uid


def test_definitions_go_with_the_release_where_nobody_wants_to_keep_them(installation: Installation) -> None:
    said = installation.install({"crds": {"keep": False}})
    assert "deletes every SyncGroup of the cluster" in said
    installation.run("uninstall", RELEASE, "--wait")
    assert installation.definitions() == {}


def test_a_second_release_is_refused(installation: Installation) -> None:
    installation.install()
    with pytest.raises(HelmError, match="cannot be imported into the current release"):
        installation.install(release="another")
    installation.wait_ready(2, 2)


def test_the_commands_on_our_pages_run_as_they_stand(installation: Installation, tmp_path: Path) -> None:
    """In order, page by page. kwok runs the pods, so groups are stored and nobody makes members of them."""
    region = installation.region
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "helm").symlink_to(installation.helm.program)
    (tools / "kubectl").symlink_to(region.cluster.tools["kubectl"])
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "KUBECONFIG": str(region.kubeconfig), "HOME": str(tmp_path),
    }  # fmt: skip
    marked = [block for page in pages() for block in blocks(page) if block.mark == "runnable=cluster"]
    said = [run_block(block, REPOSITORY, environment, timeout_s=120) for block in marked]
    assert len(said) >= 3
    assert "two-regions" in "".join(said)
    assert len(installation.definitions()) == 2  # they outlive the last block, which uninstalls


@pytest.mark.parametrize("scope", ["everywhere", "one namespace"])
def test_the_operator_needs_no_more_than_the_chart_gives_it(
    installation: Installation, tmp_path: Path, scope: str
) -> None:
    region = installation.region
    name = f"chart-{scope.replace(' ', '-')}"
    with beating_group(region, name) as group:
        narrow = scope != "everywhere"
        installation.install({"watchNamespaces": [group.namespace]} if narrow else {})
        settings = {"watch_namespaces": group.namespace} if narrow else {}
        with ChartHub(region, tmp_path).operator(**settings) as operator:
            group.write(replicas=1)
            group.ready(timeout_s=60)
            wait_until(lambda: _text(operator, "/readyz") != "", "readiness", 30)
            refused = [key for key in operator.metrics() if key.startswith("rest_client") and 'code="403"' in key]
            assert refused == []
            assert _figures_of_alerts(installation.helm) <= _families(operator)
            region.kubectl("delete", "syncgroup", "demo", "-n", group.namespace, "--timeout=60s")


def _figures_of_alerts(helm: Helm) -> set[str]:
    rule = helm.render({"metrics": {"prometheusRule": {"enabled": True}}})[f"PrometheusRule {NAMESPACE}/{ACCOUNT}"]
    rules = rule["spec"]["groups"][0]["rules"]
    return {name for one in rules for name, _ in figures(one["expr"])}


def _families(operator: OperatorProcess) -> set[str]:
    lines = _text(operator, "/metrics").splitlines()
    return {line.split()[2] for line in lines if line.startswith("# TYPE ")}


def _text(operator: OperatorProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.metrics_port}{path}", timeout=5) as answer:
        return str(answer.read().decode())
