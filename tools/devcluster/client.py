"""The handle on a dev cluster for tests and for the command line: start one, ask it, run things in it, end it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tools.devcluster import control, folder, hostcheck, hostpython, kubeconfig, runner
from tools.devcluster.api import ApiClient
from tools.devcluster.config import ClusterConfig, Level, Region
from tools.devcluster.processes import die_with_parent, only_child_of
from tools.errors import ClusterError
from tools.kube import build, catalog
from tools.linkemu import parse_link

CONFIG_FILE = "cluster.json"
START_TIMEOUT_S = 180.0
IMPORT_BYTES_PER_SECOND = 10e6
"""At least so much of its images is imported by a node that shares a slow machine with all the others."""
GIVE_UP_TIMEOUT_S = 10.0


class RegionHandle:
    """One region as a test sees it."""

    def __init__(self, cluster: Cluster, region: Region) -> None:
        self.cluster = cluster
        self.region = region
        self.name = region.name
        self._folder = cluster.config.folder(region)
        self._api: ApiClient | None = None

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig, for use outside the bubble."""
        return self._folder / "kubeconfig"

    @property
    def kubeconfig_inside(self) -> Path:
        """The admin's kubeconfig for pods of any region: its packets cross the emulated links."""
        return self._folder / "kubeconfig.inside"

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin. With `check`, a failure is an error that quotes kubectl's own words."""
        command = [self.cluster.tools["kubectl"], f"--kubeconfig={self.kubeconfig}", *arguments]
        home = str(self.cluster.config.directory / "kubectl-home")
        environment = os.environ | {"HOME": home, "KUBECACHEDIR": f"{home}/{self.name}"}
        done = subprocess.run(
            command, input=input, capture_output=True, text=True, check=False, timeout=timeout_s, env=environment
        )
        if check and done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done

    def api(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, content_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """One HTTPS request as admin: the answer's status code and JSON."""
        self._api = self._api or ApiClient(self.kubeconfig)
        return self._api.request(method, path, body, content_type=content_type)

    def service_account_kubeconfig(self, namespace: str, name: str, *, inside: bool = False) -> str:
        """A kubeconfig that acts as a service account, for use outside or by pods of other regions."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        status, answer = self.api("POST", path, request)
        if status != 201:
            raise ClusterError(f"No token for {namespace}/{name} in {self.name}: {answer.get('message')}")
        source = self.kubeconfig_inside if inside else self.kubeconfig
        server = json.loads(source.read_text())["clusters"][0]["cluster"]["server"]
        token = answer["status"]["token"]
        return kubeconfig.with_token(self._folder / "pki", name=self.name, server=server, token=token)

    def close(self) -> None:
        """Drop the kept connection."""
        if self._api is not None:
            self._api.close()


class Cluster:
    """A running dev cluster."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.regions = {region.name: RegionHandle(self, region) for region in config.regions}
        self.process: subprocess.Popen[str] | None = None

    @cached_property
    def tools(self) -> build.Toolbox:
        """The cluster's programs, built where they are missing; ending a cluster needs none of them."""
        return build.ensure(catalog.load(), runner.needed_tools(self.config), self.config.kube)

    @classmethod
    def attach(cls, directory: Path) -> Cluster:
        """The cluster that runs in `directory`."""
        path = directory / CONFIG_FILE
        if not path.exists():
            raise ClusterError(f"No dev cluster runs in {directory}; start one with `make dev-up`.")
        return cls(ClusterConfig.from_json(path.read_text()))

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """One operation of the control socket."""
        return control.call(self.config.directory, op, **arguments)

    def status(self) -> dict[str, Any]:
        """What runs, with process ids, logs and start-up times."""
        status = self.call("status")
        # Inside the bubble the answering process has another number than out here.
        return status | {"pid": folder.runner_pid(self.config.directory)}

    def kill(self, region: str, component: str, number: int = 9) -> None:
        """Send a signal to a component and wait until it is gone."""
        self.call("kill", region=region, component=component, signal=number)

    def restart(self, region: str, component: str) -> None:
        """Start a component again, ending it first if it runs."""
        self.call("restart", region=region, component=component)

    def cut(self, a: str, b: str | None = None) -> None:
        """Cut one link, or one region off from everything."""
        self.call("cut", a=a, b=b)

    def mend(self, a: str, b: str | None = None) -> None:
        """The opposite of `cut`."""
        self.call("mend", a=a, b=b)

    def shape(self, a: str, b: str, shape: str) -> None:
        """Give the link between two regions a shape such as `100ms/500M/0.1%`."""
        self.call("shape", a=a, b=b, shape=shape)

    def exec_command(self, region: str, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` in a region's network (and as its root, inside the bubble)."""
        self.config.region(region)
        if self.config.level is Level.PLANES:
            return list(command)
        pid = str(self._pid_outside())
        entry = ["nsenter", "--target", pid, "--mount", "--net", "--pid", "--ipc", "--uts"]
        if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
            entry += ["--user", "--preserve-credentials"]
        return [*entry, "--", "nsenter", f"--net=/run/netns/{region}", "--", *command]

    def _pid_outside(self) -> int:
        """The bubble's first process, by its process id out here."""
        parent = folder.runner_pid(self.config.directory)
        child = None if parent is None else only_child_of(parent)
        if child is None:
            raise ClusterError(f"The bubble of {self.config.directory} has ended; start it with `make dev-up`.")
        return child

    def exec(
        self, region: str, command: Sequence[str], *, check: bool = True, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a region's network, with KUBECONFIG set to the region's admin."""
        environment = os.environ | {"KUBECONFIG": str(self.regions[region].kubeconfig_inside)}
        if self.config.level is Level.PLANES:
            environment["KUBECONFIG"] = str(self.regions[region].kubeconfig)
        done = subprocess.run(
            self.exec_command(region, command), capture_output=True, text=True, check=False, timeout=timeout_s,
            env=environment,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise ClusterError(f"`{' '.join(command)}` in {region} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def down(self, timeout_s: float = 60.0) -> None:
        """End it and wait until nothing of it runs."""
        for handle in self.regions.values():
            handle.close()
        pid = folder.runner_pid(self.config.directory)
        try:
            self.call("down")
        except ClusterError:
            if pid is not None:  # it does not listen yet, or no longer
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while pid is not None and _alive(pid, self.process):
            if time.monotonic() > deadline:
                raise ClusterError(f"The dev cluster (process {pid}) did not end within {timeout_s:.0f} s.")
            time.sleep(0.05)
        for name in (folder.PID, CONFIG_FILE, control.SOCKET):
            (self.config.directory / name).unlink(missing_ok=True)
        for name in ("kubectl-home", *self.regions):
            shutil.rmtree(self.config.directory / name, ignore_errors=True)


def _alive(pid: int, process: subprocess.Popen[str] | None) -> bool:
    if process is not None and process.pid == pid:
        return process.poll() is None
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def start(
    config: ClusterConfig, *, die_with_caller: bool = False, say: Callable[[str], None] = lambda _text: None
) -> Cluster:
    """Bring a cluster up and return when it is ready; on failure nothing is left running.

    With `die_with_caller` it ends with the thread that calls this, however that thread ends.
    """
    reason = hostcheck.why_impossible(config.level)
    if reason is not None:
        raise ClusterError(reason)
    for *_, shape in config.links:
        parse_link(shape)  # a broken one is better refused now than from inside
    for archive in config.images:
        if not os.access(archive, os.R_OK):
            raise ClusterError(f"The image archive {archive} cannot be read; `--image` takes an OCI archive.")
    with folder.claim(config.directory) as lock:
        cluster = Cluster(config)
        _ = cluster.tools  # built in the foreground, with progress
        try:
            with os.fdopen(_launch(cluster, lock.fileno(), die_with_caller=die_with_caller)) as progress:
                _follow(cluster, progress.fileno(), say)
        except BaseException:  # also when a person is tired of waiting: nothing stays behind
            _give_up(cluster)
            raise
    return cluster


def _launch(cluster: Cluster, lock: int, *, die_with_caller: bool) -> int:
    """Start the process that runs the cluster and keeps the lock; returns the pipe on which it reports."""
    config = cluster.config
    config.logs.mkdir(parents=True, exist_ok=True)
    (config.directory / CONFIG_FILE).write_text(config.to_json())
    read_end, write_end = os.pipe()
    with (config.logs / "devcluster.log").open("ab") as log:
        cluster.process = subprocess.Popen(
            [sys.executable, "-m", "tools.devcluster.runner", str(write_end), str(config.directory)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[write_end, lock],
            start_new_session=True,
            text=True,
            cwd=hostpython.REPOSITORY,
            preexec_fn=die_with_parent(os.getpid()) if die_with_caller else None,  # noqa: PLW1509 - one prctl call
        )
    os.close(write_end)
    (config.directory / folder.PID).write_text(str(cluster.process.pid))
    if cluster.process.stdin is not None:
        cluster.process.stdin.write(config.to_json())
        cluster.process.stdin.close()
    return read_end


def _follow(cluster: Cluster, descriptor: int, say: Callable[[str], None]) -> None:
    """Read progress until the cluster is ready, or says why not."""
    deadline = time.monotonic() + start_timeout_s(cluster.config)
    pending = b""
    while time.monotonic() < deadline:
        if not select.select([descriptor], [], [], 1.0)[0]:
            continue
        data = os.read(descriptor, 65536)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "error" in message:
                raise ClusterError(message["error"])
            if "ready" in message:
                say(f"ready after {message['seconds']} s")
                return
            say(message["progress"])
    raise ClusterError(f"The dev cluster did not come up; its logs are in {cluster.config.logs}.")


def start_timeout_s(config: ClusterConfig) -> float:
    """How long a start may take: every node imports every image."""
    image_bytes = sum(Path(archive).stat().st_size for archive in config.images)
    return START_TIMEOUT_S + len(config.regions) * image_bytes / IMPORT_BYTES_PER_SECOND


def _give_up(cluster: Cluster) -> None:
    if cluster.process is not None:
        cluster.process.terminate()
        try:
            cluster.process.wait(GIVE_UP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            cluster.process.kill()
            cluster.process.wait()
    for name in (folder.PID, CONFIG_FILE, control.SOCKET):
        (cluster.config.directory / name).unlink(missing_ok=True)
