"""An injected pod on a real node: the user's process starts without a hub, imports the library, and sees no secret."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sync_runtime.contract import names
from syncgroup_operator.manifests.children import children_of
from syncgroup_operator.planning.observation import ClusterView
from tests.support import pods
from tests.unit.manifests.samples import EXTRAS, IMAGE, KEY, TRAINER_SEAT, decision, group, observation
from tools.devcluster import hostpython
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(240)]

PRIVATE = (names.TOKEN_DIR, names.IDENTITY_DIR, names.TRUST_DIR, names.SPOOL_DIR)
USER_PROGRAM = f"""
import os, sys; sys.path.append(os.environ["SYNCGROUP_LIBRARY"])
import json, pathlib, socket, urllib.request
import sync_runtime.contract.names as names
folder = pathlib.Path(names.__file__).parents[2]
try:
    (folder / "mine").write_text("")
    wrote = True
except OSError:
    wrote = False
def probe(path):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{names.CONTROL_PORT}{{path}}", timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
print(json.dumps({{
    "library": str(folder), "wrote": wrote, "live": probe("/livez"), "ready": probe("/readyz"),
    "hostname": socket.gethostname(), "run": os.access("{names.RUN_DIR}", os.W_OK),
    "hidden": [path for path in {PRIVATE!r} if os.path.exists(path)],
}}), flush=True)
import threading; threading.Event().wait()
"""
MEMBER = names.member_name(KEY, "trainer", 0)
PATIENCE_S = 120


def runtime_from_host(document: dict[str, Any]) -> dict[str, Any]:
    """Gives the containers that the operator added this machine's programs instead of an image's."""
    changed = copy.deepcopy(document)
    variables = {
        "PATH": os.path.dirname(sys.executable),
        "PYTHONPATH": f"{hostpython.REPOSITORY}:{hostpython.REPOSITORY}/operator",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for container in changed["spec"]["initContainers"]:
        assert container["image"] == IMAGE
        container |= {"image": hostpython.IMAGE, "imagePullPolicy": "Never"}
        container["volumeMounts"] = [*hostpython.mounts(), *container["volumeMounts"]]
        given = [{"name": name, "value": value} for name, value in variables.items()]
        container["env"] = [*container.get("env", []), *given]
    return changed


@pytest.fixture(scope="module")
def trainer(nodes: Cluster) -> Iterator[RegionHandle]:
    """A region in which the trainer's pod runs, with everything around it and no operator."""
    region = next(iter(nodes.regions.values()))
    region.kubectl("create", "namespace", KEY.namespace)
    # Without site packages: this environment's own holds the checkout, and the mounted library is to be found.
    user = hostpython.container("trainer", ["-S", "-c", USER_PROGRAM], environment={"PYTHONPATH": ""})
    template = {"spec": {"containers": [user], "volumes": hostpython.volumes(), "terminationGracePeriodSeconds": 1}}
    small = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}
    seen = observation(
        group(trainer={"template": template}, runtime=small),
        {"local": ClusterView("local", KEY.namespace, connected_s=0.0)},
    )
    for wanted in children_of(seen, decision(TRAINER_SEAT), EXTRAS):
        document = dict(wanted.document)
        # There is no SyncGroup here to own it: the garbage collector would take it away.
        document["metadata"] = {key: value for key, value in document["metadata"].items() if key != "ownerReferences"}
        pods.create(region, runtime_from_host(document) if document["kind"] == "Pod" else document)
    yield region
    region.kubectl("delete", "namespace", KEY.namespace, "--wait=false")


def test_a_user_process_starts_without_a_hub_and_imports_the_library_by_one_line(trainer: RegionHandle) -> None:
    wait_until(lambda: bool(_log(trainer)), "the first word of the user's process", PATIENCE_S, every_s=0.5)
    assert json.loads(_log(trainer)) == {
        "library": "/opt/syncgroup/library/0123456789abcdef",
        "wrote": False,
        "live": 200,
        "ready": 503,
        "hostname": MEMBER,
        "run": True,
        "hidden": [],
    }


def test_the_sidecar_takes_its_lease_with_the_token_and_role_that_it_was_given(trainer: RegionHandle) -> None:
    status, pod = trainer.api("GET", f"/api/v1/namespaces/{KEY.namespace}/pods/{MEMBER}")
    assert status == 200, pod
    path = f"/apis/coordination.k8s.io/v1/namespaces/{KEY.namespace}/leases/{MEMBER}"

    def holder() -> str | None:
        return (trainer.api("GET", path)[1].get("spec") or {}).get("holderIdentity")

    wait_until(lambda: holder() == pod["metadata"]["uid"], "the lease in the sidecar's hands", PATIENCE_S, every_s=0.5)


def _log(trainer: RegionHandle) -> str:
    return trainer.kubectl("logs", MEMBER, "-c", "trainer", "-n", KEY.namespace, check=False).stdout
