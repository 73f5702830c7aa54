"""Real nodes in the bubble: containers, Services, DNS, links between regions, deaths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import pods
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(180)]
A, B = "us-east", "eu-west"
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=3).read().decode())"


Address = Callable[[str], str]


@pytest.fixture(scope="module")
def web(nodes: Cluster) -> Iterator[Address]:
    """A web pod in each region; its address now (a power cut gives it another)."""
    for handle in nodes.regions.values():
        pods.create(handle, pods.web_pod("web"))

    def address(region: str) -> str:
        nodes.regions[region].kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
        return str(_pod(nodes.regions[region], "web")["status"]["podIP"])

    for name in nodes.regions:
        address(name)
    yield address
    for handle in nodes.regions.values():
        handle.kubectl("delete", "pod", "web", "--wait=false")


def _pod(handle: RegionHandle, name: str) -> dict[str, Any]:
    status, answer = handle.api("GET", f"/api/v1/namespaces/default/pods/{name}")
    assert status == 200, answer
    return answer


def _fetch(handle: RegionHandle, url: str) -> subprocess.CompletedProcess[str]:
    """Ask for a page from inside the region's web pod."""
    return handle.kubectl("exec", "web", "-c", "main", "--", sys.executable, "-c", FETCH, url, check=False)


def _eventually(handle: RegionHandle, url: str) -> None:
    wait_until(lambda: _fetch(handle, url).stdout.strip() == "tick", f"{url} from {handle.name}", 20, every_s=0.5)


def test_a_native_sidecar_starts_first_and_both_become_ready(nodes: Cluster, web: Address) -> None:
    status = _pod(nodes.regions[A], "web")["status"]
    sidecar, main = status["initContainerStatuses"][0], status["containerStatuses"][0]
    assert sidecar["started"] is True and main["ready"] is True  # noqa: PT018
    assert sidecar["state"]["running"]["startedAt"] <= main["state"]["running"]["startedAt"]


def test_pods_reach_each_other_across_regions(nodes: Cluster, web: Address) -> None:
    _eventually(nodes.regions[A], f"http://{web(B)}:8080/tick")
    _eventually(nodes.regions[B], f"http://{web(A)}:8080/tick")


def test_services_work_by_name_node_port_and_load_balancer(nodes: Cluster, web: Address) -> None:
    near, far = nodes.regions[A], nodes.regions[B]
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    pods.create(near, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"}, "spec": spec})
    path = "/api/v1/namespaces/default/services/front"

    def address() -> str | None:
        ingress = near.api("GET", path)[1]["status"].get("loadBalancer", {}).get("ingress")
        return ingress[0]["ip"] if ingress else None

    wait_until(lambda: address() is not None, "an address for the load balancer", 10)
    node_port = near.api("GET", path)[1]["spec"]["ports"][0]["nodePort"]
    _eventually(near, "http://front.default.svc.cluster.local/tick")
    _eventually(far, f"http://{address()}/tick")
    _eventually(far, f"http://{near.region.node_ip}:{node_port}/tick")
    near.kubectl("delete", "service", "front")


def test_a_cut_link_stops_traffic_between_two_regions_only(nodes: Cluster, web: Address) -> None:
    url = f"http://{web(B)}:8080/tick"
    _eventually(nodes.regions[A], url)
    nodes.cut(A, B)
    assert _fetch(nodes.regions[A], url).returncode != 0
    assert _fetch(nodes.regions[A], f"http://{web(A)}:8080/tick").stdout.strip() == "tick"
    assert nodes.regions[B].api("GET", "/readyz")[0] == 200, "the outside still reaches both"
    nodes.mend(A, B)
    _eventually(nodes.regions[A], url)


def test_a_region_reaches_the_others_api_server_over_the_link(nodes: Cluster) -> None:
    kubectl = [nodes.tools["kubectl"], f"--kubeconfig={nodes.regions[B].kubeconfig_inside}", "--request-timeout=3s"]
    assert nodes.exec(A, [*kubectl, "get", "--raw", "/readyz"]).stdout == "ok"
    nodes.cut(A, B)
    assert nodes.exec(A, [*kubectl, "get", "--raw", "/readyz"], check=False).returncode != 0
    nodes.mend(A, B)


def test_a_shaped_link_has_the_delay_that_was_asked_for(nodes: Cluster) -> None:
    nodes.shape(A, B, "60ms/max/0%")
    script = (
        "import socket, time\n"
        "best, tries = 9.0, 0\n"
        "while best >= 0.066 and tries < 60:\n"  # a busy machine adds to it, never for long
        "    tries += 1\n"
        "    start = time.monotonic()\n"
        f"    socket.create_connection(('{nodes.regions[B].region.node_ip}', 6443), 5).close()\n"
        "    best = min(best, time.monotonic() - start)\n"
        "print(best)\n"
    )
    took_s = float(nodes.exec(A, ["/usr/bin/env", "python3", "-c", script]).stdout)
    nodes.shape(A, B, "0ms/max/0%")
    assert 0.060 <= took_s < 0.066


def test_a_pod_gets_files_tokens_memory_and_its_own_identity(nodes: Cluster) -> None:
    handle = nodes.regions[A]
    handle.kubectl("create", "configmap", "settings", "--from-literal=colour=blue")
    handle.kubectl("create", "secret", "generic", "password", "--from-literal=word=hush")
    token = {"serviceAccountToken": {"path": "token", "audience": "someone", "expirationSeconds": 3600}}
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "password", "secret": {"secretName": "password"}},
        {"name": "token", "projected": {"sources": [token]}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "labels", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    script = (
        "import json, os, pathlib\n"
        "read = lambda p: pathlib.Path(p).read_text()\n"
        "pathlib.Path('/memory/x').write_text('x')\n"
        "kind = next(l.split()[2] for l in open('/proc/mounts') if l.split()[1] == '/memory')\n"
        "print(json.dumps([read('/settings/colour'), read('/password/word'), len(read('/token/token')) > 100, kind,\n"
        "    os.environ['NODE_NAME'], read('/labels/l')]))\n"
    )
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    document = pods.script_pod("files", script, volumes=volumes, volumeMounts=mounts)
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    document["spec"]["containers"][0]["env"].append(node)
    *seen, labels = json.loads(pods.finish(handle, document))
    assert seen == ["blue", "hush", True, "tmpfs", f"{A}-node"]
    assert labels.splitlines()[:2] == ['app="files"', f'topology.kubernetes.io/region="{A}"']


def test_a_restricted_pod_runs_and_cannot_write_its_root(nodes: Cluster) -> None:
    script = (
        "import os, pathlib\n"
        "try: pathlib.Path('/file').write_text('x')\n"
        "except OSError as error: print(os.getuid(), error.errno)\n"
    )
    container = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    identity = {"runAsNonRoot": True, "runAsUser": 1234, "fsGroup": 1234, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"securityContext": identity}
    document = pods.script_pod("restricted", script, podSpec=spec, securityContext=container)
    uid, error = pods.finish(nodes.regions[A], document).split()
    mapped = os.geteuid() == 0  # with one mapped id every container is the caller, which is root inside
    assert (uid, error) == ("1234" if mapped else "0", "30")


def test_a_dead_kubelet_comes_back_to_the_same_containers(nodes: Cluster, web: Address) -> None:
    handle = nodes.regions[B]
    address = web(B)
    before = _pod(handle, "web")["status"]["containerStatuses"][0]["containerID"]
    nodes.kill(B, "kubelet")
    nodes.restart(B, "kubelet")
    _eventually(handle, f"http://{address}:8080/tick")
    assert _pod(handle, "web")["status"]["containerStatuses"][0]["containerID"] == before


def test_after_a_power_cut_the_node_runs_its_pods_again(nodes: Cluster) -> None:
    handle = nodes.regions[B]
    pods.create(handle, pods.web_pod("phoenix"))
    handle.kubectl("wait", "--for=condition=Ready", "pod/phoenix", "--timeout=60s")
    nodes.kill(B, "node")
    nodes.restart(B, "node")

    def restarted() -> bool:
        status = _pod(handle, "phoenix")["status"]["containerStatuses"][0]
        return bool(status["restartCount"] >= 1 and status["ready"])

    wait_until(restarted, "the pod after the power cut", 90)
    handle.kubectl("delete", "pod", "phoenix", "--wait=false")
