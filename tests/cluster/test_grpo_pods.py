"""The GRPO example in pods of three regions, under the operator: its weights are those of the run in one process.

The group is the one of `crds/examples/grpo.yaml`, with this machine's Python in the place of an image.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.grpo.model import load, make_deterministic
from examples.grpo.settings import TINY, Settings, as_arguments
from examples.grpo.sources import InProcess
from examples.grpo.training import Training, masters_sum
from sync_runtime.contract import names
from tests.support import clusters, processtree
from tests.support.operators import OperatorProcess, apply, group_of
from tests.support.podsync import GUESTS, SPACE, Member, prepare_hub, register
from tools.devcluster import hostcheck, hostpython, runtimeimage
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster
from tools.devcluster.config import Level
from tools.errors import ClusterError

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(600)]

EXAMPLE = hostpython.REPOSITORY / "crds" / "examples" / "grpo.yaml"
LINKS = ("us-east:eu-west=80ms/200M/0%", "us-east:ap-south=180ms/100M/0%", "eu-west:ap-south=130ms/100M/0%")
RUN = replace(TINY, steps=30, groups=6, samples=8)  # long enough for pods that start late to take part
PATIENCE_S = 240.0


def template(given: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The example's template, run by this machine's Python, with this test's figures."""
    spec = given["spec"]
    (container,) = spec["containers"]
    words = [*container["command"][1:], *as_arguments(settings)]
    main = hostpython.container("main", words, volumeMounts=container.get("volumeMounts", []))
    volumes = [*hostpython.volumes(), *spec.get("volumes", [])]
    return {"spec": {"terminationGracePeriodSeconds": 1, "volumes": volumes, "containers": [main]}}


def runnable(cluster: Cluster) -> dict[str, Any]:
    """The example's group in the regions that there are, one worker each."""
    document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    spec, hub = document["spec"], next(iter(cluster.regions))
    trainer = spec["trainer"] | {
        "exposure": {"type": "LoadBalancer"},
        "template": template(spec["trainer"]["template"], RUN),
    }
    rollouts = [
        one | {
            "replicas": 1, "template": template(one["template"], RUN),
            "cluster": names.LOCAL_CLUSTER if one["region"] == hub else one["region"],
        }
        for one in spec["rollouts"] if one["region"] in cluster.regions
    ]  # fmt: skip
    runtime = {
        "image": runtimeimage.REFERENCE, "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "storage": {"sizeBytes": 256 << 20, "sharedMemoryBytes": 16 << 20},
    }  # fmt: skip
    sync = spec["sync"] | {"retention": {"bytes": 128 << 20}}
    changed = {"trainer": trainer, "rollouts": rollouts, "runtime": runtime, "sync": sync}
    return document | {"metadata": document["metadata"] | {"namespace": SPACE}, "spec": spec | changed}


class Bed:
    """The group on its clusters."""

    def __init__(self, cluster: Cluster, operator: OperatorProcess, document: dict[str, Any]) -> None:
        self.cluster, self._operator, self._name = cluster, operator, document["metadata"]["name"]
        hub = next(iter(cluster.regions.values()))
        self.trainer = self._member(hub.name, names.TRAINER_ROLE)
        self.workers = [self._member(one["region"], one["name"]) for one in document["spec"]["rollouts"]]

    def _member(self, region: str, role: str) -> Member:
        handle = self.cluster.regions[region]
        hub = next(iter(self.cluster.regions.values()))
        return Member(handle, SPACE if handle is hub else GUESTS, role, group=self._name)

    def wait(self, check: Callable[[], bool], what: str) -> None:
        """Until it is so; else an error that shows what everybody said."""
        try:
            wait_until(check, what, PATIENCE_S, every_s=0.5)
        except ClusterError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    def working(self) -> list[Member]:
        """Workers that have done a task since they started."""
        return [member for member in self.workers if any("task" in line for line in member.told())]

    def kill(self, member: Member) -> None:
        """kill -9 of the user's process in a pod."""
        process = self.cluster.process
        assert process is not None
        killed = 0
        for pid in processtree.descendants(process.pid):
            with contextlib.suppress(OSError):
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if f"HOSTNAME={member.name}".encode() in variables and b"grpo.pod" in _command(pid):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        assert killed

    def describe(self) -> str:
        """Everything that helps."""
        hub = next(iter(self.cluster.regions.values()))
        parts = [str(group_of(hub, SPACE, self._name).get("status"))[:4000]]
        for member in (self.trainer, *self.workers):
            parts += [f"--- {member.name} {one}\n{member.log(one, 25)}" for one in (names.RUNTIME_CONTAINER, "main")]
        return "\n".join([*parts, self._operator.log.read_text()[-3000:]])


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    reason = hostcheck.why_impossible(Level.NODES)
    if reason is not None:
        pytest.skip(reason)
    runtimeimage.compile_loops()
    image = tmp_path / "runtime.tar"
    runtimeimage.build(image)
    cluster = clusters.start(Level.NODES, "us-east,eu-west,ap-south", images=(image,), links=LINKS)
    try:
        regions = list(cluster.regions.values())
        hub = prepare_hub(regions[0], tmp_path)
        for far in regions[1:]:
            register(regions[0], far)
        document = runnable(cluster)
        apply(regions[0], document)
        with hub.operator() as operator:
            yield Bed(cluster, operator, document)
            regions[0].kubectl("delete", "syncgroup", document["metadata"]["name"], "-n", SPACE, "--timeout=60s")
    finally:
        cluster.down(timeout_s=60)


def expected() -> str:
    make_deterministic()
    policy = load(RUN)
    Training(policy, RUN, InProcess(policy.model)).run(lambda _: None)
    return masters_sum(policy)


def test_three_regions_end_with_the_bits_of_one_process_though_a_worker_dies(bed: Bed) -> None:
    bed.wait(lambda: len(bed.working()) >= 2, "two workers that have done tasks")
    bed.kill(bed.working()[0])
    bed.wait(lambda: any("done" in line for line in bed.trainer.told()), "the end of the run")
    lines = bed.trainer.told()
    assert lines[-1]["sum"] == expected()
    assert [line["step"] for line in lines[:-1]] == list(range(1, RUN.steps + 1))
    assert any(line["sent_bytes"] for line in lines[:-1])
