"""A group in one namespace of a real cluster, for tests: pods without nodes whose sidecars run as processes here.

Plays the operator: makes pods, leases, roles, plans and tokens, and signs certificate requests with the operator's own
code. The sidecars log in with tokens that are bound to their pods and know nothing else of the cluster.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import http.client
import json
import shutil
import signal
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from sync_runtime.contract import names
from sync_runtime.contract.plan import BucketPlan, Endpoint, LeasePlan, LinkPlan, MemberPlan, Plan, StreamPlan
from sync_runtime.contract.sync import Retention
from sync_runtime.identity.files import write_file
from sync_runtime.membership.documents import SeenLease, read_lease
from syncgroup_operator.identity import approval, authority
from syncgroup_operator.planning.observation import Place, PodView, Slot
from tests.support.groups import free_port, wait_for
from tests.support.sidecars import SidecarProcess
from tools.devcluster.api import ApiClient
from tools.devcluster.client import RegionHandle

ACCOUNT = "member"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
TRAINER, WORKER = Slot("trainer", 0), Slot("workers", 0)


@dataclasses.dataclass
class Seat:
    """A member to be: its pod and the folder that stands for the pod's volumes."""

    slot: Slot
    name: str
    folder: Path
    port: int
    control: int
    pod: PodView
    term: int


class PodGroup:
    """One group; a context manager that ends the processes it started."""

    def __init__(self, region: RegionHandle, namespace: str, folder: Path, uid: str) -> None:
        self.region, self.namespace, self.folder, self.uid = region, namespace, folder, uid
        self.key = names.GroupKey("hub-space", "demo")
        self.place = Place("eu", "eu-west")
        self.plan_name = names.plan_name(self.key, *self.place)
        self.policy = authority.AuthorityPolicy()
        self.authority = authority.make(uid, now=_now(), policy=self.policy)
        self.seats: dict[str, Seat] = {}
        self.lying = False
        """Pods are held for others than they are, so that every request is denied."""
        self._processes: dict[str, SidecarProcess] = {}
        self._sockets = Path(tempfile.mkdtemp(prefix="sg-"))
        self._client, self._lock = ApiClient(region.kubeconfig), threading.Lock()
        self._stop = threading.Event()
        self._signer: threading.Thread | None = None
        self._make_account()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_signing()
        for name in list(self._processes):
            self.end(name, signal.SIGKILL)
        shutil.rmtree(self._sockets, ignore_errors=True)
        for path in (f"clusterroles/{self.namespace}-member", f"clusterrolebindings/{self.namespace}-member"):
            self._api("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{path}")
        self._client.close()

    # --- what the operator makes -------------------------------------------------------------------------------------

    def seat(self, slot: Slot, term: int = 0) -> Seat:
        """A pod with its lease, its token and its folders."""
        name = names.member_name(self.key, *slot)
        metadata = {"name": name, "labels": self._labels(slot)}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        self._must("POST", self._path("leases", "apis/coordination.k8s.io/v1"), lease)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "serviceAccountName": ACCOUNT,
                "schedulerName": "nobody",
                "containers": [{"name": "user", "image": "none"}],
            },
        }
        made = self._must("POST", self._path("pods"), pod)
        view = PodView(
            name=name, namespace=self.namespace, uid=made["metadata"]["uid"], slot=slot, place=self.place,
            phase="Pending", ready=False, deleting=False, seen_s=0.0, service_account=ACCOUNT,
        )  # fmt: skip
        folder = self.folder / name
        seat = Seat(slot, name, folder, free_port(), free_port(), view, term)
        self.seats[name] = seat
        (folder / "trust").mkdir(parents=True)
        (folder / "trust/ca.crt").write_text(self.authority.bundle)
        self._write_token(seat)
        return seat

    def write_plan(self, *, term: int, revision: int) -> None:
        """The plan for all seats, made or replaced."""
        text = self.plan(term=term, revision=revision).to_json()
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.plan_name, "labels": names.group_labels(self.key, self.uid)},
            "data": {names.PLAN_KEY: text},
        }
        if self._api("PUT", f"{self._path('configmaps')}/{self.plan_name}", document)[0] == 404:
            self._must("POST", self._path("configmaps"), document)

    def plan(self, *, term: int, revision: int) -> Plan:
        """The plan for all seats."""
        trainer = self.seats[names.member_name(self.key, *TRAINER)]
        cluster, region = self.place
        link = LinkPlan(
            from_cluster=cluster, from_region=region, codec="Fast",
            streams=StreamPlan(seed=2, min=1, max=4), bucket_bytes=BucketPlan(seed=1 << 19, min=1 << 16, max=1 << 22),
        )  # fmt: skip
        members = [
            MemberPlan(
                name=seat.name,
                role="Trainer" if seat is trainer else "Rollout",
                parents=[] if seat is trainer else [trainer.name],
            )
            for seat in self.seats.values()
        ]
        return Plan(
            format_version=1, group_uid=self.uid, group_namespace=self.key.namespace, group_name=self.key.name,
            cluster=cluster, region=region, term=term, revision=revision, transport="Streams", max_staleness=8,
            anchor_every=0, retention=Retention(), members=members, links=[link],
            trainer=Endpoint(member=trainer.name, cluster=cluster, region=region, host="127.0.0.1", port=trainer.port),
            lease=LeasePlan(duration_seconds=10, renew_interval_seconds=1),
        )  # fmt: skip

    def start_signing(self) -> None:
        """Decides certificate requests from now on, in the background."""
        self._stop.clear()
        self._signer = threading.Thread(target=self._sign, daemon=True)
        self._signer.start()

    def stop_signing(self) -> None:
        """Nobody decides requests any more."""
        self._stop.set()
        if self._signer is not None:
            self._signer.join(10)
            self._signer = None

    def sign_once(self) -> list[approval.Verdict]:
        """Decides what is there."""
        _, found = self._api("GET", f"{REQUESTS}?labelSelector={names.LABEL_GROUP_UID}={self.uid}")
        return [self._decide(body | {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"})
                for body in found.get("items") or []]  # fmt: skip

    def requests(self) -> list[dict[str, Any]]:
        """The certificate requests of the group."""
        _, found = self._api("GET", f"{REQUESTS}?labelSelector={names.LABEL_GROUP_UID}={self.uid}")
        return list(found["items"])

    # --- members -----------------------------------------------------------------------------------------------------

    def start(self, seat: Seat, **further: str) -> None:
        """`syncgroup sidecar` as it runs in the pod; returns when it answers its probes."""
        log = seat.folder / "log"
        before = log.stat().st_size if log.exists() else 0
        self._processes[seat.name] = SidecarProcess(["sidecar"], seat.folder, log, self.environment(seat) | further)

        def answers() -> bool:
            said = log.read_bytes()[before:].decode() if log.exists() else ""
            assert self._processes[seat.name].poll() is None, said
            return "control http://" in said

        wait_for(answers, 30, what=f"the start of {seat.name}")

    def end(self, name: str, number: int = signal.SIGTERM) -> int:
        """Ends a sidecar; its exit code."""
        process = self._processes.pop(name)
        process.send_signal(number)
        return process.wait(30)

    def wait(self, seat: Seat) -> int:
        """The exit code of a sidecar that ends by itself."""
        return self._processes.pop(seat.name).wait(30)

    def environment(self, seat: Seat) -> dict[str, str]:
        """What the operator and the kubelet set."""
        config = json.loads(self.region.kubeconfig.read_text())
        server = urlsplit(config["clusters"][0]["cluster"]["server"])
        folder = seat.folder
        return {
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            names.ENV_GROUP: self.key.name,
            names.ENV_GROUP_NAMESPACE: self.key.namespace,
            names.ENV_GROUP_UID: self.uid,
            names.ENV_MEMBER: seat.name,
            names.ENV_ROLE: seat.slot.role,
            names.ENV_CLUSTER: self.place.cluster,
            names.ENV_REGION: self.place.region,
            names.ENV_PLAN: str(folder / "plan/plan.json"),
            names.ENV_PLAN_CONFIG_MAP: self.plan_name,
            names.ENV_TERM: str(seat.term) if seat.term else "",
            names.ENV_LEASE: seat.name,
            names.ENV_SOCKET: self.socket(seat),
            names.ENV_SPOOL_DIR: str(folder / "spool"),
            names.ENV_IDENTITY_DIR: str(folder / "identity"),
            names.ENV_TRUST_DIR: str(folder / "trust"),
            names.ENV_TOKEN_DIR: str(folder / "token"),
            names.ENV_LISTEN: f"127.0.0.1:{seat.port}",
            names.ENV_CONTROL: f"127.0.0.1:{seat.control}",
            names.ENV_POD_NAME: seat.pod.name,
            names.ENV_POD_NAMESPACE: self.namespace,
            names.ENV_POD_UID: seat.pod.uid,
        }

    def socket(self, seat: Seat) -> str:
        """Where the user's process dials."""
        # Not in the member's folder: a socket's path has 107 characters at most.
        return str(self._sockets / f"{seat.slot.role}-{seat.slot.index}.sock")

    def ask(self, seat: Seat, path: str) -> Any:
        """A reading of the control API, whatever its status."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{seat.control}{path}", timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error)

    def lease(self, seat: Seat) -> SeenLease | None:
        """What the member says of itself; None: nothing yet."""
        _, document = self._api("GET", f"{self._path('leases', 'apis/coordination.k8s.io/v1')}/{seat.name}")
        if not (document.get("spec") or {}).get("holderIdentity"):
            return None
        return read_lease(json.dumps(document))

    def labels(self, seat: Seat) -> dict[str, str]:
        """Of its lease."""
        _, document = self._api("GET", f"{self._path('leases', 'apis/coordination.k8s.io/v1')}/{seat.name}")
        return dict(document["metadata"]["labels"])

    def log(self, seat: Seat) -> str:
        """What its sidecar wrote."""
        return (seat.folder / "log").read_text()

    def token(self, seat: Seat) -> str:
        """The token of its pod."""
        return (seat.folder / "token/token").read_text()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _sign(self) -> None:
        while not self._stop.wait(0.2):
            with contextlib.suppress(OSError, http.client.HTTPException):  # the API server is away
                self.sign_once()

    def _decide(self, body: dict[str, Any]) -> approval.Verdict:
        pods = [seat.pod for seat in self.seats.values()]
        if self.lying:
            pods = [_elsewhere(pod) for pod in pods]
        verdict = approval.judge(
            body, key=self.key, uid=self.uid, pods=pods, authority=self.authority, now=_now(), policy=self.policy
        )
        path = f"{REQUESTS}/{body['metadata']['name']}"
        if isinstance(verdict, approval.Approve | approval.Deny):
            body["status"] = {"conditions": approval.conditions_after(body, verdict, _now())}
            body = self._must("PUT", f"{path}/approval", body)
        if isinstance(verdict, approval.Approve):
            body["status"]["certificate"] = base64.b64encode(verdict.certificate_pem).decode()
            self._must("PUT", f"{path}/status", body)
        return verdict

    def _make_account(self) -> None:
        self.region.kubectl("create", "serviceaccount", ACCOUNT, "-n", self.namespace)
        leases = [names.member_name(self.key, *slot) for slot in (TRAINER, WORKER)]
        rules = [
            _rule("coordination.k8s.io", "leases", ["get", "update", "patch"], leases),
            _rule("", "configmaps", ["get", "list", "watch"], [self.plan_name]),
        ]
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace}
        self._bind("Role", f"namespaces/{self.namespace}/role", names.member_role_name(self.key), rules, subject)
        rules = [_rule("certificates.k8s.io", "certificatesigningrequests", ["create", "get"])]
        group = {
            "kind": "Group",
            "apiGroup": "rbac.authorization.k8s.io",
            "name": f"system:serviceaccounts:{self.namespace}",
        }
        self._bind("ClusterRole", "clusterrole", f"{self.namespace}-member", rules, group)

    def _bind(self, kind: str, path: str, name: str, rules: Sequence[dict[str, Any]], subject: dict[str, Any]) -> None:
        api, base = "rbac.authorization.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
        role = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "rules": list(rules)}
        self._must("POST", f"{base}/{path}s", role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = role | {"kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]}
        binding.pop("rules")
        self._must("POST", f"{base}/{path}bindings", binding)

    def _write_token(self, seat: Seat) -> None:
        config = json.loads(self.region.kubeconfig.read_text())
        bound = {"kind": "Pod", "apiVersion": "v1", "name": seat.pod.name, "uid": seat.pod.uid}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        answer = self._must("POST", f"{self._path('serviceaccounts')}/{ACCOUNT}/token", request)
        folder = seat.folder / "token"
        folder.mkdir(parents=True)
        write_file(folder / "token", answer["status"]["token"].encode(), mode=0o600, replace=True)
        (folder / "ca.crt").write_bytes(
            base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        )

    def _labels(self, slot: Slot) -> dict[str, str]:
        cluster, region = self.place
        return names.member_labels(self.key, self.uid, role=slot.role, index=slot.index, cluster=cluster, region=region)

    def _path(self, plural: str, api: str = "api/v1") -> str:
        return f"/{api}/namespaces/{self.namespace}/{plural}"

    def _api(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        with self._lock:
            return self._client.request(method, path, body)

    def _must(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = self._api(method, path, body)
        assert status in (200, 201), answer
        return answer


def _rule(group: str, plural: str, verbs: list[str], only: Sequence[str] = ()) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": [plural], "verbs": verbs}
    return rule | {"resourceNames": list(only)} if only else rule


def _elsewhere(pod: PodView) -> PodView:
    return dataclasses.replace(pod, place=Place("us", "us-east"))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
