"""Plays the kubelet with processes of this machine: for every pod of the group a sidecar and the program beside it.

Pods are as the operator made them and run on invented nodes; what their containers would see as volumes are folders
here, and their tokens are real and bound to them. Knows nothing of the demo's story.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sync_runtime.contract import names
from tools.demo import commands
from tools.devcluster.api import ApiClient
from tools.devcluster.hostpython import REPOSITORY
from tools.devcluster.processes import die_with_parent
from tools.errors import ToolError

Document = Mapping[str, Any]
EVERY_S = 0.5
STOP_S = 10.0


@dataclass
class Running:
    """A pod whose processes run."""

    uid: str
    control: int
    log: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def signal(self, number: int) -> None:
        """To all of them."""
        for one in self.processes:
            with contextlib.suppress(ProcessLookupError):
                one.send_signal(number)

    def kill(self) -> None:
        """At once, also where they are stopped."""
        self.signal(signal.SIGKILL)
        for one in self.processes:
            one.wait(STOP_S)


class LocalPods:
    """The pods of one namespace in one cluster, as processes; a thread of its own starts and ends them."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        folder: Path,
        program: Callable[[Document], Sequence[str]],
        port_of: Callable[[str], int],
    ) -> None:
        self._kubeconfig, self._namespace, self._folder = kubeconfig, namespace, folder
        self._program, self._port_of = program, port_of
        self.running: dict[str, Running] = {}
        self.paused = threading.Event()
        """While set, nothing is asked of the API server."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pods in {folder.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends everything."""
        self._end.set()
        self._thread.join(STOP_S)
        for one in self.running.values():
            one.kill()

    def _run(self) -> None:
        api = ApiClient(self._kubeconfig)
        selector = f"labelSelector={names.LABEL_GROUP}"
        while not self._end.wait(EVERY_S):
            if self.paused.is_set():
                continue
            with contextlib.suppress(OSError, ToolError):  # not there yet, or away: asked again in a moment
                pods = api.must("GET", f"/api/v1/namespaces/{self._namespace}/pods?{selector}")["items"]
                self._settle(api, {one["metadata"]["name"]: one for one in pods})
        api.close()

    def _settle(self, api: ApiClient, pods: Mapping[str, Document]) -> None:
        for name, one in list(self.running.items()):
            if name not in pods or pods[name]["metadata"]["uid"] != one.uid:
                self.running.pop(name).kill()
        for name, pod in pods.items():
            running = (pod.get("status") or {}).get("phase") == "Running"
            if name not in self.running and running and "deletionTimestamp" not in pod["metadata"]:
                self.running[name] = self._start(api, name, pod)

    def _start(self, api: ApiClient, name: str, pod: Document) -> Running:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        for part in ("token", "trust", "spool", "identity", "plan"):
            (folder / part).mkdir(parents=True)
        self._write_token(api, name, pod, folder / "token")
        sidecar = next(
            one for one in pod["spec"]["initContainers"] if one["name"] == names.RUNTIME_CONTAINER
        )  # fmt: skip
        trust = next(one["configMap"]["name"] for one in pod["spec"]["volumes"] if one["name"] == names.TRUST_VOLUME)
        found = api.must("GET", f"/api/v1/namespaces/{self._namespace}/configmaps/{trust}")
        (folder / "trust" / names.CA_CERTIFICATE_KEY).write_text(found["data"][names.CA_CERTIFICATE_KEY])
        control = self._port_of(f"{name}/control")
        variables = {
            **_values(sidecar, pod),
            names.ENV_PLAN: str(folder / "plan" / names.PLAN_KEY),
            names.ENV_SPOOL_DIR: str(folder / "spool"),
            names.ENV_IDENTITY_DIR: str(folder / "identity"),
            names.ENV_TRUST_DIR: str(folder / "trust"),
            names.ENV_TOKEN_DIR: str(folder / "token"),
            names.ENV_SOCKET: str(folder / "s"),
            names.ENV_LISTEN: f"127.0.0.1:{self._port_of(f'{name}/data')}",
            names.ENV_CONTROL: f"127.0.0.1:{control}",
            names.ENV_LIBRARY: str(REPOSITORY),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(commands.server_port(self._kubeconfig)),
            "HOME": str(folder),
        }
        made = Running(pod["metadata"]["uid"], control, folder / "main.log")
        sidecar_words = [sys.executable, "-m", "syncgroup.cli", "sidecar"]
        made.processes.append(_process(sidecar_words, variables, folder / "sidecar.log", folder))
        theirs = _values(pod["spec"]["containers"][0], pod) | variables
        made.processes.append(_process(list(self._program(pod)), theirs, made.log, folder))
        return made

    def _write_token(self, api: ApiClient, name: str, pod: Document, folder: Path) -> None:
        account = pod["spec"].get("serviceAccountName") or "default"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod["metadata"]["uid"]}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(api.must("POST", path, request)["status"]["token"])
        cluster = json.loads(self._kubeconfig.read_text())["clusters"][0]["cluster"]
        (folder / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))


def _values(container: Document, pod: Document) -> dict[str, str]:
    """A container's variables; those that the kubelet would fill in from the pod are filled in."""
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "status.podIP": (pod.get("status") or {}).get("podIP", ""),
        "spec.nodeName": pod["spec"].get("nodeName", ""),
    }
    found = {}
    for one in container.get("env") or []:
        reference = (one.get("valueFrom") or {}).get("fieldRef")
        found[one["name"]] = one.get("value", "") if reference is None else str(fields.get(reference["fieldPath"], ""))
    return found


def _process(words: list[str], variables: Mapping[str, str], log: Path, folder: Path) -> subprocess.Popen[bytes]:
    environment = commands.python_environment() | dict(variables)
    with log.open("ab") as sink:
        return subprocess.Popen(
            words, env=environment, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd=folder,
            start_new_session=True,  # a Ctrl-C is for the demo, which ends them in order
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one prctl call; however the demo ends
        )  # fmt: skip
