"""A SyncGroup whose pods really run: a hub and another cluster on real nodes, the operator beside them.

Documents for the API servers, and what pods say: their logs and leases. The process in the pods is `pod_program`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sync_runtime.contract import names
from syncgroup.cli import main
from syncgroup_operator.manifests import roles
from tests.support import processtree
from tests.support.operators import OperatorHub, apply, condition, group_of, items
from tools.devcluster import hostpython, runtimeimage
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle
from tools.errors import ClusterError

GROUP = "post-training"
SPACE = "rl"
GUESTS = "rl-guests"
"""What the group's namespace is called in other clusters."""
PATIENCE_S = 120.0
"""A busy machine takes its time; one that is idle needs a fraction."""
PROGRAM = Path(__file__).with_name("pod_program.py")


def template(role: str) -> dict[str, Any]:
    """A pod of the user: this machine's Python and torch, and no trace of our packages."""
    main = hostpython.container("main", [str(PROGRAM), role], environment={"PYTHONPATH": ""})
    return {"spec": {"terminationGracePeriodSeconds": 1, "volumes": hostpython.volumes(), "containers": [main]}}


def rollout(name: str, region: str, cluster: str = names.LOCAL_CLUSTER, replicas: int = 1) -> dict[str, Any]:
    """A rollout of the group."""
    return {
        "name": name, "region": region, "cluster": cluster, "replicas": replicas, "template": template("rollout"),
    }  # fmt: skip


def group_document(region: str, rollouts: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """A SyncGroup that is quick to notice."""
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCGROUP_KIND,
        "metadata": {"name": GROUP, "namespace": SPACE},
        "spec": {
            "trainer": {"region": region, "exposure": {"type": "LoadBalancer"}, "template": template("trainer")},
            "rollouts": rollouts,
            "lease": {"durationSeconds": 30, "renewIntervalSeconds": 3, "lostGraceSeconds": 3600},
            "runtime": {
                "image": runtimeimage.REFERENCE,
                "imagePullPolicy": "Never",
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                "storage": {"sizeBytes": 256 << 20, "sharedMemoryBytes": 16 << 20},
            },
            "sync": {"retention": {"bytes": 128 << 20}},
            **spec,
        },
    }


def prepare_hub(region: RegionHandle, folder: Path) -> OperatorHub:
    """The operator's own cluster, with the namespace of the group."""
    hub = OperatorHub(region, folder)
    region.kubectl("create", "namespace", SPACE, check=False)
    apply(region, roles.member_binding(SPACE))
    return hub


def register(hub: RegionHandle, remote: RegionHandle) -> None:
    """Makes another region a SyncCluster of the hub, as a person does it."""
    words = ["cluster", "register", remote.name, "--kubeconfig", str(remote.kubeconfig), "--region", remote.name]
    assert main([*words, "--allow", f"{SPACE}:{GUESTS}", "--hub-kubeconfig", str(hub.kubeconfig)]) == 0


@dataclass(frozen=True)
class Line:
    """One version as a pod told it."""

    lineage: str
    seq: int
    sum: str


@dataclass(frozen=True)
class Member:
    """One seat of the group, wherever its pod is."""

    region: RegionHandle
    namespace: str
    role: str
    index: int = 0
    group: str = GROUP
    name: str = field(init=False)

    def __post_init__(self) -> None:
        name = names.member_name(names.GroupKey(SPACE, self.group), self.role, self.index)
        object.__setattr__(self, "name", name)

    def pod(self) -> dict[str, Any]:
        """Its pod; empty where there is none."""
        status, found = self.region.api("GET", f"/api/v1/namespaces/{self.namespace}/pods/{self.name}")
        return found if status == 200 else {}

    @property
    def uid(self) -> str:
        """Of its pod; empty where there is none."""
        return str(self.pod().get("metadata", {}).get("uid", ""))

    def lease(self) -> dict[str, Any]:
        """Its lease, with the report under the key `report`."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.name}"
        status, found = self.region.api("GET", path)
        if status != 200:
            return {}
        report = (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_REPORT)
        return {**found.get("spec", {}), "report": json.loads(report) if report else {}}

    def log(self, container: str = "main", lines: int = 500) -> str:
        """The last lines that a container wrote since it started; empty where it has not."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/log?container={container}&tailLines={lines}"
        status, answer = self.region.api("GET", path)
        if status != 200:
            return ""
        # What is not JSON comes as a message; a single line of ours is JSON.
        return str(answer["message"]) if "message" in answer else json.dumps(answer)

    def told(self) -> list[dict[str, Any]]:
        """The lines of the user's process."""
        lines = (line for line in self.log().splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]

    def versions(self) -> list[Line]:
        """The versions that it told, oldest first."""
        return [Line(line["lineage"], line["seq"], line["sum"]) for line in self.told() if "sum" in line]


class Bed:
    """A running group: a trainer and a rollout in the hub, two rollouts in another cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.region, self.far_region = cluster.regions.values()
        self.hub = prepare_hub(self.region, folder)
        register(self.region, self.far_region)
        self.trainer = Member(self.region, SPACE, names.TRAINER_ROLE)
        self.near = Member(self.region, SPACE, "near")
        self.far = (Member(self.far_region, GUESTS, "far"), Member(self.far_region, GUESTS, "far", 1))
        self.rollouts = (self.near, *self.far)
        self.members = (self.trainer, *self.rollouts)
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        """The group as a user applies it, then the operator: it finds everything there."""
        far = rollout("far", self.far_region.name, self.far_region.name, replicas=2)
        apply(self.region, group_document(self.region.name, [rollout("near", self.region.name), far]))
        self.start_operator()

    def close(self) -> None:
        """The operator ends; the cluster is somebody else's."""
        self._stack.close()

    def start_operator(self) -> None:
        """A process of the operator, until the bed is closed."""
        self.operator = self._stack.enter_context(self.hub.operator(cluster_lost_s="5"))

    @property
    def status(self) -> dict[str, Any]:
        """The group's."""
        return group_of(self.region, SPACE, GROUP).get("status") or {}

    def condition(self, kind: str) -> dict[str, Any]:
        """One condition of the group; empty where it has none."""
        return condition({"status": self.status}, kind)

    def kubectl_get(self) -> str:
        """The line that a user sees."""
        return self.region.kubectl("get", "syncgroups", "-n", SPACE).stdout

    def wait(self, check: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Until it is so; else an error that shows the group and what its pods wrote."""
        try:
            wait_until(check, what, timeout_s, every_s=0.5)
        except ClusterError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    def settle(self) -> None:
        """Until everybody is there and has the trainer's bits."""
        self.wait(lambda: self.condition("Ready").get("status") == "True", "a group that is ready")
        self.wait_follow(*self.rollouts)

    def wait_follow(self, *rollouts: Member, after: int | None = None) -> None:
        """Until rollouts have a version that the trainer has yet to publish (or one after `after`), bit for bit."""
        newest = self.trainer.versions()
        start = after if after is not None else (newest[-1].seq if newest else 0)

        def follow() -> bool:
            told = set(self.trainer.versions())
            return all(any(one.seq > start and one in told for one in member.versions()) for member in rollouts)

        self.wait(follow, f"{', '.join(member.name for member in rollouts)} with the trainer's bits")

    def pids(self, member: Member, words: str) -> list[int]:
        """The processes of a member's pod, by this machine's numbers, whose command line contains `words`."""
        process = self.cluster.process
        assert process is not None
        found = []
        for pid in processtree.descendants(process.pid):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if words in command and f"HOSTNAME={member.name}".encode() in variables:
                    found.append(pid)
        return found

    def describe(self) -> str:
        """Everything that helps."""
        parts = [
            f"--- logs of the dev cluster are in {self.cluster.config.logs}",
            f"--- status\n{json.dumps(self.status, indent=1)[:6000]}",
        ]
        for region in self.cluster.regions.values():
            found = region.kubectl("get", "pods,leases,csr", "-A", "-o", "wide", check=False)
            parts.append(f"--- {region.name}\n{found.stdout}")
        for member in self.members:
            for container in (names.RUNTIME_CONTAINER, "main"):
                parts.append(f"--- {member.name} {container}\n{member.log(container, 15)}")
            parts.append(json.dumps(member.lease())[:2000])
        parts.append(f"--- operator\n{self.operator.log.read_text()[-4000:]}")
        return "\n".join(parts)


def children(region: RegionHandle, namespace: str) -> dict[str, str]:
    """The uid of every object that the operator keeps in a namespace, by kind and name."""
    kinds = {
        "pods": "/api/v1", "services": "/api/v1", "configmaps": "/api/v1", "leases": "/apis/coordination.k8s.io/v1",
        "roles": "/apis/rbac.authorization.k8s.io/v1", "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    }  # fmt: skip
    return {
        f"{kind}/{one['metadata']['name']}": one["metadata"]["uid"]
        for kind, root in kinds.items()
        for one in items(region, f"{root}/namespaces/{namespace}/{kind}?labelSelector={names.LABEL_GROUP}")
    }
