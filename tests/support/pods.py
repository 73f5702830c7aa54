"""Small pods for tests on real nodes: Python from the host, a web server, a native sidecar."""

from __future__ import annotations

import json
from typing import Any

from tools.devcluster import hostpython
from tools.devcluster.client import RegionHandle

SERVE = (
    "import http.server, os; os.chdir('/shared'); "
    "http.server.ThreadingHTTPServer(('', 8080), http.server.SimpleHTTPRequestHandler).serve_forever()"
)
TICK = "import pathlib, threading; pathlib.Path('/shared/tick').write_text('tick'); threading.Event().wait()"


def web_pod(name: str, **spec: Any) -> dict[str, Any]:
    """A web server whose one page `/tick` is written by a native sidecar; ready when it serves it."""
    shared = {"name": "shared", "mountPath": "/shared"}
    sidecar = hostpython.container(
        "sidecar",
        ["-c", TICK],
        restartPolicy="Always",
        startupProbe={"exec": {"command": ["/bin/test", "-f", "/shared/tick"]}, "periodSeconds": 1},
        volumeMounts=[shared],
    )
    main = hostpython.container(
        "main",
        ["-c", SERVE],
        readinessProbe={"httpGet": {"path": "/tick", "port": 8080}, "periodSeconds": 1},
        volumeMounts=[shared],
    )
    return pod(name, initContainers=[sidecar], containers=[main], volumes=[{"name": "shared", "emptyDir": {}}], **spec)


def pod(name: str, *, volumes: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that sees the host's Python."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [*hostpython.volumes(), *(volumes or [])],
            **spec,
        },
    }


def script_pod(name: str, script: str, *, volumes: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    """A pod that runs one Python script and ends."""
    pod_spec = fields.pop("podSpec", {})
    main = hostpython.container("main", ["-c", script], **fields)
    return pod(name, volumes=volumes, containers=[main], restartPolicy="Never", **pod_spec)


def create(handle: RegionHandle, *documents: dict[str, Any]) -> None:
    """Apply documents to a region."""
    for document in documents:
        handle.kubectl("apply", "-f", "-", input=json.dumps(document))


def finish(handle: RegionHandle, document: dict[str, Any]) -> str:
    """Run a script pod to its end and return what it printed."""
    name = document["metadata"]["name"]
    create(handle, document)
    try:
        handle.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=60s")
    finally:
        log = handle.kubectl("logs", name, "-c", "main", check=False).stdout
    handle.kubectl("delete", "pod", name, "--wait=false")
    return log
