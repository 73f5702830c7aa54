"""All members of all groups in one process of its own: renews every lease every 30 s, as sidecars would.

    python -m tests.bench.operator_driver NAME=KUBECONFIG=NAMESPACE …

Commands come as JSON lines on stdin, answers go as JSON lines to stdout. Its cost is not the operator's: that is why it
is another process, and why it speaks plain HTTP.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sync_runtime.contract import names
from tests.bench.operator_wire import Wire, WireError, get

RENEW_EVERY_S: Final = 30.0
DURATION_S: Final = 60
CONNECTIONS: Final = 8
"""Per cluster: a hundred renewals per second, each some milliseconds under load."""
LATE_S: Final = 2.0
_VERSION_MARK: Final = b'"resourceVersion":"'


@dataclass(slots=True)
class Member:
    """One pod that runs, and the text of its lease around what changes."""

    name: str
    uid: str
    labels: Mapping[str, str]
    before: bytes = b""
    """The lease up to its version; empty: not read yet."""
    after: bytes = b""
    version: bytes = b""
    renewed_s: float = 0.0
    due_s: float = 0.0
    """Of the next renewal; another one in the heap was given up."""
    silent: bool = False


class ClusterDriver:
    """The members in one cluster."""

    def __init__(self, name: str, kubeconfig: Path, namespace: str) -> None:
        self.name = name
        self.members: dict[str, Member] = {}
        self.seen: dict[str, list[tuple[str, float]]] = defaultdict(list)
        """When each pod of a name was first seen."""
        self.renewed = self.late = self.failed = 0
        self._kubeconfig = kubeconfig
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._due: list[tuple[float, str, str]] = []
        self._more = asyncio.Event()

    async def run(self) -> None:
        """Watch pods and renew, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            for _ in range(CONNECTIONS):
                tasks.create_task(self._renew_for_ever())

    def expire(self, pods: list[str]) -> None:
        """Renew these once more, now, and never again."""
        for name in pods:
            member = self.members[name]
            member.silent = True
            self._schedule(0.0, member)

    async def _watch(self) -> None:
        while True:
            wire = Wire(self._kubeconfig)
            try:
                version, token = "", ""
                while version == "" or token:
                    page = await get(wire, f"{self._pods}?labelSelector={names.LABEL_GROUP_UID}&limit=500{token}")
                    for pod in page["items"]:
                        self._present(pod)
                    version = page["metadata"]["resourceVersion"]
                    token = f"&continue={page['metadata']['continue']}" if page["metadata"].get("continue") else ""
                query = f"watch=1&labelSelector={names.LABEL_GROUP_UID}&resourceVersion={version}&timeoutSeconds=3600"
                async for line in wire.lines(f"{self._pods}?{query}"):
                    event = json.loads(line)
                    if event["type"] == "DELETED":
                        self._gone(event["object"])
                    elif event["type"] in ("ADDED", "MODIFIED"):
                        self._present(event["object"])
            except (WireError, KeyError) as error:
                sys.stderr.write(f"{self.name}: the watch of pods broke: {error}\n")
                await asyncio.sleep(1.0)

    def _present(self, pod: dict[str, Any]) -> None:
        metadata, status = pod["metadata"], pod.get("status") or {}
        name, uid, labels = metadata["name"], metadata["uid"], metadata.get("labels") or {}
        if not any(uid == one for one, _ in self.seen[name]):
            self.seen[name].append((uid, time.monotonic()))
        if metadata.get("deletionTimestamp") or status.get("phase") != "Running" or names.LABEL_ROLE not in labels:
            return
        known = self.members.get(name)
        if known is None or known.uid != uid:
            member = self.members[name] = Member(name, uid, labels)
            self._schedule(0.0, member)

    def _gone(self, pod: dict[str, Any]) -> None:
        known = self.members.get(pod["metadata"]["name"])
        if known is not None and known.uid == pod["metadata"]["uid"]:
            del self.members[known.name]

    def _schedule(self, after_s: float, member: Member) -> None:
        member.due_s = time.monotonic() + after_s
        heapq.heappush(self._due, (member.due_s, member.name, member.uid))
        self._more.set()

    async def _renew_for_ever(self) -> None:
        wire = Wire(self._kubeconfig)
        while True:
            now_s = time.monotonic()
            if not self._due or self._due[0][0] > now_s:
                self._more.clear()
                wait_s = self._due[0][0] - now_s if self._due else 1.0
                try:
                    await asyncio.wait_for(self._more.wait(), min(wait_s, 1.0))
                except TimeoutError:
                    continue
                continue
            due_s, name, uid = heapq.heappop(self._due)
            member = self.members.get(name)
            if member is not None and member.uid == uid and member.due_s == due_s:
                self.late += now_s - due_s > LATE_S
                await self._renew(wire, member)

    async def _renew(self, wire: Wire, member: Member) -> None:
        first = not member.version
        try:
            if not member.before:
                self._read(member, await get(wire, f"{self._leases}/{member.name}"))
            renewed = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S.%f}Z".encode()
            body = member.before + member.version + member.after + renewed + b'"}}'
            status, answer = await wire.request("PUT", f"{self._leases}/{member.name}", body)
        except WireError:
            status, answer = 0, b""
        if status == 200:
            begin = answer.index(_VERSION_MARK) + len(_VERSION_MARK)
            member.version = answer[begin : answer.index(b'"', begin)]
            member.renewed_s = time.monotonic()
            self.renewed += 1
        else:
            self.failed += 1
            member.before = b""
        if not member.silent:
            # The first round is spread over the interval, or every renewal would come at once for ever.
            spread_s = random.uniform(0.2, 1.0) * RENEW_EVERY_S if first else RENEW_EVERY_S  # noqa: S311
            self._schedule(spread_s if status == 200 else 1.0, member)

    def _read(self, member: Member, lease: dict[str, Any]) -> None:
        metadata = lease["metadata"]
        kept = {key: metadata[key] for key in ("name", "namespace", "uid", "labels") if key in metadata}
        kept["annotations"] = {**(metadata.get("annotations") or {}), names.ANNOTATION_REPORT: report_of(member)}
        head = {"apiVersion": lease["apiVersion"], "kind": "Lease", "metadata": {**kept, "resourceVersion": "@"}}
        tail = {"holderIdentity": member.uid, "leaseDurationSeconds": DURATION_S, "renewTime": "@"}
        before, after = json.dumps(head)[:-1].split('"@"')
        member.before = before.encode() + b'"'
        member.after = b'"' + f'{after}, "spec": {json.dumps(tail)}'.rpartition("@")[0].encode()
        member.version = metadata["resourceVersion"].encode()


def report_of(member: Member) -> str:
    """What a member that serves says; equal in every renewal, as of an idle group."""
    labels = member.labels
    report = {
        "formatVersion": 1,
        "groupUid": labels[names.LABEL_GROUP_UID],
        "member": member.name,
        "role": "Trainer" if labels[names.LABEL_ROLE] == names.TRAINER_ROLE else "Rollout",
        "cluster": labels[names.LABEL_CLUSTER],
        "region": labels[names.LABEL_REGION],
        "runtimeVersion": "bench",
        "maxPlanFormat": 1,
        "state": "Serving",
        "term": 0,
        "planRevision": 0,
    }
    return json.dumps(report, sort_keys=True)


def answer_to(command: Mapping[str, Any], drivers: Mapping[str, ClusterDriver]) -> dict[str, Any]:
    """One command of the benchmark."""
    if command["op"] == "expire":
        for cluster, pods in command["members"].items():
            drivers[cluster].expire(pods)
        return {}
    if command["op"] == "seen":
        return {pod: drivers[cluster].seen.get(pod, []) for pod, cluster in command["pods"].items()}
    if command["op"] == "renewed":
        return {pod: drivers[cluster].members[pod].renewed_s for pod, cluster in command["pods"].items()}
    if command["op"] == "members":
        return {name: sorted(driver.members) for name, driver in drivers.items()}
    totals = [(driver.renewed, driver.late, driver.failed, len(driver.members)) for driver in drivers.values()]
    return dict(zip(("renewed", "late", "failed", "members"), map(sum, zip(*totals, strict=True)), strict=True))


async def _main(arguments: list[str]) -> None:
    drivers: dict[str, ClusterDriver] = {}
    for argument in arguments:
        name, kubeconfig, namespace = argument.split("=")
        drivers[name] = ClusterDriver(name, Path(kubeconfig), namespace)
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = [asyncio.create_task(driver.run()) for driver in drivers.values()]
    while line := await reader.readline():
        sys.stdout.write(json.dumps(answer_to(json.loads(line), drivers)) + "\n")
        sys.stdout.flush()
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
