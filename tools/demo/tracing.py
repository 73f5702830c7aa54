"""Where the demo's traces go and how one comes back: a Jaeger in a pod of the hub, asked through the API server.

Without a Jaeger the demo has no traces and says why; nothing else depends on it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sync_runtime.contract import names
from sync_runtime.telemetry.waterfall import Trace, TraceDocumentError, newest, read_traces, search_path
from tools import jaeger
from tools.demo import group
from tools.demo.facts import Document
from tools.devcluster import hostpython
from tools.devcluster.api import wait_until
from tools.devcluster.client import RegionHandle
from tools.kube import build, catalog

NAMESPACE: Final = "observability"
NAME: Final = "jaeger"
OTLP_PORT, QUERY_PORT, GRPC_PORT = 4318, 16686, 16685
ADDRESS_S: Final = 30.0
WHOLE_S: Final = 20.0
CONFIG: Final = "/etc/jaeger/jaeger.json"
Ask = Callable[[str], Document]


def program(say: Callable[[str], None]) -> Path | None:
    """Jaeger where it was built ; None: there will be no traces, and it was said how to get them."""
    if jaeger.is_built():
        return Path(build.ensure(catalog.load(), [jaeger.PROGRAM])[jaeger.PROGRAM])
    say("without traces: Jaeger is not built; `python -m tools.kube build jaeger` does it")
    return None


def documents(path: Path) -> list[dict[str, Any]]:
    """A namespace with one pod that runs the program of this machine, and its address for every region. Pure."""
    labels = {"app": NAME}
    told = json.dumps(jaeger.config(OTLP_PORT, QUERY_PORT, GRPC_PORT))
    settings = told.replace(f"{jaeger.HOST}:", "0.0.0.0:")  # in a pod loopback is nobody's but its own
    container = {
        "name": NAME, "image": hostpython.IMAGE, "imagePullPolicy": "Never",
        "command": [f"/opt/jaeger/{path.name}", "--config", CONFIG],
        "volumeMounts": [
            {"name": "program", "mountPath": "/opt/jaeger", "readOnly": True},
            {"name": "config", "mountPath": str(Path(CONFIG).parent)},
        ],
        "readinessProbe": {"tcpSocket": {"port": QUERY_PORT}, "periodSeconds": 1},
    }  # fmt: skip
    volumes = [
        {"name": "program", "hostPath": {"path": str(path.parent)}},
        {"name": "config", "configMap": {"name": NAME}},
    ]
    ports = [{"name": "otlp", "port": OTLP_PORT}, {"name": "query", "port": QUERY_PORT}]
    where = {"name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {Path(CONFIG).name: settings}},
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {**where, "labels": labels},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes},
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": where,
            "spec": {"type": "LoadBalancer", "selector": labels, "ports": ports},
        },
    ]  # fmt: skip


def install(hub: RegionHandle, path: Path) -> str:
    """Has it run; returns the endpoint that members in every region can reach."""
    hub.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents(path)}))
    found: list[str] = []

    def addressed() -> bool:
        status, service = hub.api("GET", f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")
        ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") if status == 200 else None
        found.extend(one["ip"] for one in ingress or [])
        return bool(found)

    wait_until(addressed, "an address for Jaeger", ADDRESS_S)
    return f"http://{found[0]}:{OTLP_PORT}"


def group_uid(hub: RegionHandle) -> str:
    """What traces know the group by."""
    path = f"/apis/{names.GROUP_VERSION}/namespaces/{group.NAMESPACE}/syncgroups/{group.NAME}"
    return str(hub.api("GET", path)[1].get("metadata", {}).get("uid", ""))


def through(hub: RegionHandle) -> Ask:
    """Its query API, through the API server."""

    def ask(path: str) -> Document:
        status, found = hub.api("GET", f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}:query/proxy{path}")
        return found if status == 200 else {}

    return ask


def whole_trace(ask: Ask, group_uid: str, seq: int, members: int) -> Trace | None:
    """The trace of a version once every member has a part in it, or what there is of it after a while."""
    end_s = time.monotonic() + WHOLE_S
    while True:
        trace = _trace(ask, group_uid, seq)
        if trace is not None and len({one.member for one in trace.spans if one.member}) >= members:
            return trace
        if time.monotonic() > end_s:
            return trace
        time.sleep(0.5)


def _trace(ask: Ask, group_uid: str, seq: int) -> Trace | None:
    try:
        return newest(read_traces(ask(search_path(group_uid=group_uid, seq=seq))))
    except (TraceDocumentError, OSError):
        return None
