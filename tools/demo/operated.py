"""The demo's group under the operator: installed as its chart would, other clusters registered, pods that sync.

What the product offers is used from outside: its roles, its command line, `python -m syncgroup_operator`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sync_runtime.contract import names
from tools.devcluster import hostpython, runtimeimage
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle
from tools.errors import ToolError

ROLES = hostpython.REPOSITORY / "charts" / "syncgroup" / "files" / "roles"
NAMESPACE = "syncgroup-system"
ACCOUNT = "syncgroup-operator"
GROUPS_NAMESPACE = "default"
PROGRAM = hostpython.REPOSITORY / "examples" / "member.py"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 15.0


def load(path: Path) -> dict[str, Any]:
    """The group as its file has it."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def runnable(group: dict[str, Any], hub: str) -> dict[str, Any]:
    """The demo's group with templates that run on this machine, each region in its own cluster."""
    spec = group["spec"]
    runtime = {
        "image": runtimeimage.REFERENCE,
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "storage": {"sizeBytes": 512 << 20, "sharedMemoryBytes": 16 << 20},
    }
    trainer = {**spec["trainer"], "exposure": {"type": "LoadBalancer"}, "template": _template("trainer")}
    rollouts = [
        {**one, "cluster": one["region"] if one["region"] != hub else names.LOCAL_CLUSTER, "replicas": 1,
         "template": _template("rollout")}
        for one in spec["rollouts"]
    ]  # fmt: skip
    sync = {"retention": {"bytes": 256 << 20}}
    return {**group, "spec": {"trainer": trainer, "rollouts": rollouts, "runtime": runtime, "sync": sync}}


def install(cluster: Cluster, hub: RegionHandle) -> None:
    """What the chart does on the hub, and `syncgroup cluster register` for every other region."""
    hub.kubectl("create", "namespace", NAMESPACE)
    hub.kubectl("create", "serviceaccount", ACCOUNT, "-n", NAMESPACE)
    for file in ("hub.yaml", "member.yaml"):
        hub.kubectl("apply", "-n", NAMESPACE, "-f", str(ROLES / file))
    account = f"--serviceaccount={NAMESPACE}:{ACCOUNT}"
    for role in ("syncgroup-operator", "syncgroup-operator-groups"):
        hub.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", account)
    hub.kubectl("create", "rolebinding", ACCOUNT, "-n", NAMESPACE, "--role=syncgroup-operator", account)
    accounts = f"--group=system:serviceaccounts:{GROUPS_NAMESPACE}"
    hub.kubectl("create", "clusterrolebinding", "syncgroup-member", "--clusterrole=syncgroup-member", accounts)
    for name, handle in cluster.regions.items():
        if handle is not hub:
            _register(hub, name, handle)


class Running(NamedTuple):
    """An operator that was started."""

    process: subprocess.Popen[bytes]
    log: Path


@contextlib.contextmanager
def operator(hub: RegionHandle, folder: Path) -> Iterator[Running]:
    """The operator beside the clusters, with its own account's rights, until the block ends."""
    kubeconfig, log = folder / "operator.kubeconfig", folder / "operator.log"
    kubeconfig.write_text(hub.service_account_kubeconfig(NAMESPACE, ACCOUNT))
    settings = {
        "NAMESPACE": NAMESPACE,
        "HEALTH_HOST": "127.0.0.1",
        "HEALTH_PORT": _free_port(),
        "METRICS_PORT": _free_port(),
    }
    environment = _environment() | {"KUBECONFIG": str(kubeconfig)}
    environment |= {f"SYNCGROUP_OPERATOR_{key}": value for key, value in settings.items()}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "syncgroup_operator"], env=environment, stdout=sink, stderr=sink
        )
    try:
        yield Running(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(hub: RegionHandle, name: str, running: Running) -> None:
    """Until every member serves."""

    def ready() -> bool:
        if running.process.poll() is not None:
            raise ToolError("the operator has ended by itself.")
        found = hub.api("GET", f"/apis/{names.GROUP_VERSION}/namespaces/{GROUPS_NAMESPACE}/syncgroups/{name}")[1]
        conditions = (found.get("status") or {}).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    try:
        wait_until(ready, f"the group {name} to be ready", START_TIMEOUT_S, every_s=0.5)
    except ToolError as error:
        said = hub.kubectl("get", "syncgroups", "-o", "wide", check=False).stdout
        raise ToolError(f"{error}\n{said}\n{running.log.read_text()[-2000:]}") from error


def sums(cluster: Cluster) -> dict[str, dict[int, str]]:
    """What each member of the group said: the sum of each version's bits, by the version's number."""
    found: dict[str, dict[int, str]] = {}
    for handle in cluster.regions.values():
        pods = handle.api("GET", f"/api/v1/namespaces/{GROUPS_NAMESPACE}/pods?labelSelector={names.LABEL_GROUP}")[1]
        for pod in pods["items"]:
            name = pod["metadata"]["name"]
            lines = handle.kubectl("logs", name, "-n", GROUPS_NAMESPACE, "-c", "main").stdout.splitlines()
            told = [json.loads(line) for line in lines if line.startswith("{")]
            found[name] = {line["seq"]: line["sum"] for line in told}
    return found


def _template(role: str) -> dict[str, Any]:
    main = hostpython.container("main", [str(PROGRAM), role], environment={"PYTHONPATH": ""})
    return {"spec": {"terminationGracePeriodSeconds": 1, "volumes": hostpython.volumes(), "containers": [main]}}


def _register(hub: RegionHandle, name: str, handle: RegionHandle) -> None:
    command = [
        sys.executable,
        "-m",
        "syncgroup.cli",
        "cluster",
        "register",
        name,
        "--kubeconfig",
        str(handle.kubeconfig),
    ]
    command += ["--region", name, "--allow", GROUPS_NAMESPACE, "--hub-kubeconfig", str(hub.kubeconfig)]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(f"`syncgroup cluster register {name}` failed: {done.stderr.strip()}")


def _free_port() -> str:
    """A port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(hostpython.REPOSITORY), str(hostpython.REPOSITORY / "operator")])
    return dict(os.environ) | {"PYTHONPATH": path}
