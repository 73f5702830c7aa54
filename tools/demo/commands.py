"""The commands that a user would give: helm, kubectl, `syncgroup cluster register`. Each failure is a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.demo import group
from tools.devcluster.client import RegionHandle
from tools.devcluster.config import Level
from tools.devcluster.hostpython import REPOSITORY
from tools.errors import ClusterError
from tools.kube import build, catalog

CHART = REPOSITORY / "charts" / "syncgroup"
HELM_TIMEOUT_S = 150
REGISTER_TIMEOUT_S = 90.0
FURTHER = (
    f"kubectl get syncgroups -n {group.NAMESPACE} -w",
    f"kubectl describe syncgroup {group.NAME} -n {group.NAMESPACE}",
    f"kubectl syncgroup top {group.NAME} -n {group.NAMESPACE}",
    f"kubectl syncgroup why {group.NAME} -n {group.NAMESPACE}",
)
"""What somebody who wants to see more may say."""


def helm_install(hub: RegionHandle, values: Mapping[str, Any], home: Path, *, wait: bool) -> None:
    """`helm install syncgroup charts/syncgroup`, until its pods are ready where there are nodes."""
    program = build.ensure(catalog.load(), ["helm"])["helm"]
    folders = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    words = [program, "install", group.RELEASE, str(CHART), "--namespace", group.SYSTEM, "--create-namespace"]
    words += ["--kubeconfig", str(hub.kubeconfig), "--values", "-", "--timeout", f"{HELM_TIMEOUT_S}s"]
    words += ["--wait"] if wait else []
    done = subprocess.run(
        words, input=json.dumps(values), capture_output=True, text=True, check=False, env=os.environ | folders,
        timeout=HELM_TIMEOUT_S + 30,
    )  # fmt: skip
    if done.returncode != 0:
        raise ClusterError(f"`helm install` failed: {(done.stderr or done.stdout).strip()}")


def register(hub: RegionHandle, remotes: Sequence[RegionHandle]) -> None:
    """`syncgroup cluster register` for every other region, all at once."""
    started = [(one, _registering(hub, one)) for one in remotes]
    failed = []
    for one, process in started:
        try:
            _, said = process.communicate(timeout=REGISTER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        if process.returncode != 0:
            failed.append(f"`syncgroup cluster register {one.name}` failed: {said.strip()}")
    if failed:
        raise ClusterError(" ".join(failed))


def apply_group(hub: RegionHandle, document: Mapping[str, Any]) -> None:
    """`kubectl apply -f group.yaml`, in its namespace."""
    hub.kubectl("create", "namespace", group.NAMESPACE)
    hub.kubectl("apply", "-f", "-", input=json.dumps(document))


def python_environment() -> dict[str, str]:
    """Of processes that run this checkout."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "operator")])
    return dict(os.environ) | {"PYTHONPATH": path}


def _registering(hub: RegionHandle, remote: RegionHandle) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "syncgroup.cli", "cluster", "register", remote.name, "--region", remote.name]
    words += ["--kubeconfig", str(remote.kubeconfig), "--hub-kubeconfig", str(hub.kubeconfig)]
    words += ["--allow", group.NAMESPACE]
    if remote.cluster.config.level is not Level.PLANES:
        # The operator is a pod of the hub: it reaches this API server over the emulated link, not by our loopback port.
        inside = json.loads(remote.kubeconfig_inside.read_text())["clusters"][0]["cluster"]["server"]
        words += ["--server", inside, "--skip-check"]
    return subprocess.Popen(
        words, env=python_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip


def server_port(kubeconfig: Path) -> int:
    """The port of the API server in a kubeconfig."""
    server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return urlsplit(server).port or 443
