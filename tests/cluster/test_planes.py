"""Control planes: a real API server with its checks on, and what the dev cluster can do to it."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from tests.support.clusters import MakeCluster
from tools.devcluster.api import ApiClient, wait_until
from tools.devcluster.client import Cluster, RegionHandle
from tools.errors import ClusterError
from tools.kube import catalog

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def test_the_server_reports_the_pinned_version(region: RegionHandle, planes: Cluster) -> None:
    pinned = catalog.load().kubernetes(planes.config.kube).version
    assert region.api("GET", "/version")[1]["gitVersion"] == pinned


def test_a_service_account_may_do_only_what_a_role_says(region: RegionHandle, namespace: str) -> None:
    region.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    path = region.kubeconfig.parent / f"{namespace}-reader"
    path.write_text(region.service_account_kubeconfig(namespace, "reader"))
    reader = ApiClient(path)
    assert reader.request("GET", f"/api/v1/namespaces/{namespace}/secrets")[0] == 403
    region.kubectl("create", "role", "r", "--verb=list", "--resource=secrets", "-n", namespace)
    region.kubectl("create", "rolebinding", "r", "--role=r", f"--serviceaccount={namespace}:reader", "-n", namespace)
    wait_until(lambda: reader.request("GET", f"/api/v1/namespaces/{namespace}/secrets")[0] == 200, "the role", 30)
    reader.close()


def test_requests_are_in_the_audit_log(region: RegionHandle, planes: Cluster, namespace: str) -> None:
    region.kubectl("create", "configmap", "seen-by-audit", "-n", namespace)
    log = planes.config.logs / f"{region.name}-audit.log"

    def created() -> list[dict[str, Any]]:
        """The server writes after it has answered, and a last line without its end is not there yet."""
        lines = [line for line in log.read_text().splitlines(keepends=True) if "seen-by-audit" in line]
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [entry for entry in entries if entry.get("objectRef", {}).get("name") == "seen-by-audit"]

    wait_until(lambda: bool(created()), "the request in the log", 30)
    assert created()[0]["user"]["username"] == "devcluster-admin"


def test_controllers_run_and_collect_what_its_owner_left(region: RegionHandle, namespace: str) -> None:
    region.kubectl("create", "deployment", "d", "--image=x", "--replicas=2", "-n", namespace)
    region.kubectl("wait", "--for=condition=Available", "deployment/d", "-n", namespace, "--timeout=30s")
    region.kubectl("delete", "deployment", "d", "-n", namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wait_until(lambda: not region.api("GET", pods)[1]["items"], "the pods' removal", 30)


def test_five_hundred_pods_run_on_invented_nodes(region: RegionHandle, namespace: str) -> None:
    region.kubectl("create", "deployment", "many", "--image=x", "--replicas=500", "-n", namespace)
    region.kubectl("wait", "--for=condition=Available", "deployment/many", "-n", namespace, "--timeout=90s")
    selector = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=status.phase=Running"
    wait_until(lambda: len(region.api("GET", selector)[1]["items"]) == 500, "500 running pods", 60)
    region.kubectl("delete", "deployment", "many", "-n", namespace)


def test_a_cut_region_stops_answering_and_goes_on_when_mended(planes: Cluster) -> None:
    name = "eu-west"
    planes.cut(name)
    impatient = ApiClient(planes.regions[name].kubeconfig, timeout_s=1.0)
    with pytest.raises(TimeoutError):
        impatient.request("GET", "/readyz")
    assert planes.status()["regions"][name]["cut"] is True
    assert planes.regions["us-east"].api("GET", "/readyz")[0] == 200
    planes.mend(name)
    assert planes.regions[name].api("GET", "/readyz")[0] == 200
    impatient.close()


@pytest.mark.parametrize("component", ["apiserver", "etcd"])
def test_objects_survive_the_death_of(planes: Cluster, component: str) -> None:
    handle = planes.regions["eu-west"]
    handle.kubectl("create", "configmap", f"kept-{component}")
    planes.kill("eu-west", component)
    assert planes.status()["regions"]["eu-west"]["components"][component]["exit_code"] == -9
    planes.restart("eu-west", component)
    path = f"/api/v1/namespaces/default/configmaps/kept-{component}"
    wait_until(lambda: handle.api("GET", path)[0] == 200, "the kept object", 20)


def test_exec_hands_the_region_to_a_command(planes: Cluster) -> None:
    done = planes.exec("us-east", ["sh", "-c", "echo $KUBECONFIG"])
    assert done.stdout.strip() == str(planes.regions["us-east"].kubeconfig)


def test_links_are_refused_where_there_are_none(planes: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"levels nodes and limits only; `cut us-east` alone"):
        planes.cut("us-east", "eu-west")


def test_unknown_names_are_answered_with_the_known_ones(planes: Cluster) -> None:
    with pytest.raises(ClusterError, match="no region 'mars' here; the regions are us-east, eu-west"):
        planes.cut("mars")
    with pytest.raises(ClusterError, match="no component 'kubelet'; it has etcd, apiserver"):
        planes.kill("us-east", "kubelet")


def test_a_second_cluster_stands_beside_and_dies_with_its_runner(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("planes", "1")
    pids = [facts["pid"] for facts in cluster.status()["regions"]["us-east"]["components"].values()]
    assert len(pids) >= 4
    assert cluster.process is not None
    cluster.process.kill()
    cluster.process.wait()
    deadline = time.monotonic() + 5
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if _runs(pid)] == []


def _runs(pid: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() not in ("", "Z")
