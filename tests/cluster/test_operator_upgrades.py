"""Objects that another release stored: an older one, without today's fields, and a newer one, with more of them.

An API server hands out what its present definition knows, whoever stored the object; the operator reads what it knows
of that and must leave the rest alone.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sync_runtime.contract import names
from tests.cluster import crd_fixtures
from tests.support import clusters
from tests.support.operator_groups import TEMPLATE, Group, beating_group
from tests.support.operators import GROUPS, OperatorHub, apply, condition, group_of
from tools.devcluster.api import MERGE, wait_until
from tools.devcluster.client import RegionHandle
from tools.devcluster.config import Level

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(170)]
ALONE = {"leader_election": "false"}
ADDED_LATER = {"spec": ("lease", "sync", "work", "telemetry", "suspend"), "status": ("regions", "lostClusters")}
"""What the older definition does not have."""
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture(scope="module")
def region() -> Iterator[RegionHandle]:
    """An API server of its own: definitions are everybody's."""
    cluster = clusters.start(Level.PLANES, "1", kwok_nodes=1)
    yield next(iter(cluster.regions.values()))
    cluster.down()
    shutil.rmtree(cluster.config.directory, ignore_errors=True)


@pytest.fixture
def defined(region: RegionHandle) -> Iterator[None]:
    """Whatever a test does to the definition, the next one finds today's."""
    crd_fixtures.apply_crds(region)
    yield
    region.kubectl("delete", "syncgroups", "--all", "-A", "--wait=true", check=False)


def today() -> dict[str, Any]:
    return dict(yaml.safe_load((crd_fixtures.CRDS_DIR / "syncgroups.yaml").read_text(encoding="utf-8")))


def root_of(definition: dict[str, Any]) -> dict[str, Any]:
    return dict(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])


def older() -> dict[str, Any]:
    """Fewer fields, one that is long gone, and no rules about what it does not have."""
    definition: dict[str, Any] = without_rules(today())
    for part, fields in ADDED_LATER.items():
        for field in fields:
            del root_of(definition)[part]["properties"][field]
    root_of(definition)["spec"]["properties"]["syncEverySeconds"] = {"type": "integer"}
    return definition


def newer() -> dict[str, Any]:
    """More fields everywhere."""
    definition = today()
    spec, status = root_of(definition)["spec"]["properties"], root_of(definition)["status"]["properties"]
    spec["compression"] = copy.deepcopy(ANYTHING)
    spec["rollouts"]["items"]["properties"]["colour"] = {"type": "string"}
    status["forecast"] = copy.deepcopy(ANYTHING)
    status["regions"]["items"]["properties"]["mood"] = {"type": "string"}
    return definition


def without_rules(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: without_rules(value) for key, value in node.items() if key != "x-kubernetes-validations"}
    return [without_rules(one) for one in node] if isinstance(node, list) else node


def define(region: RegionHandle, definition: dict[str, Any]) -> None:
    """Replace the definition, as an upgrade does, and wait until it is served."""
    path = f"{crd_fixtures.CRD_API}/{definition['metadata']['name']}"
    _, found = region.api("GET", path)
    body = {
        **definition,
        "metadata": {**definition["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]},
    }
    status, answer = region.api("PUT", path, body)
    assert status == 200, answer
    wanted = sorted(root_of(definition)["spec"]["properties"])

    def served() -> bool:
        _, api = region.api("GET", "/openapi/v3/apis/syncgroup.dev/v1alpha1")
        schemas = api.get("components", {}).get("schemas", {})
        found = schemas.get("dev.syncgroup.v1alpha1.SyncGroup", {}).get("properties", {}).get("spec", {})
        return sorted(found.get("properties", {})) == wanted

    wait_until(served, "the changed definition", 30.0)


def document(group: Group, **spec: Any) -> dict[str, Any]:
    rollout = {"name": "near", "region": "us-east", "replicas": 2, "template": TEMPLATE, **spec.pop("rollout", {})}
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCGROUP_KIND,
        "metadata": {"name": "demo", "namespace": group.namespace},
        "spec": {"trainer": {"region": "us-east", "template": TEMPLATE}, "rollouts": [rollout], **spec},
    }


@pytest.mark.usefixtures("defined")
def test_an_object_that_an_older_release_stored_is_read_with_todays_defaults_and_reconciled(
    region: RegionHandle, tmp_path: Path
) -> None:
    hub = OperatorHub(region, tmp_path)
    with beating_group(region, "older") as group:
        define(region, older())
        stored = apply(region, document(group, syncEverySeconds=5))
        assert stored["spec"]["syncEverySeconds"] == 5
        assert not {"lease", "sync"} & set(stored["spec"])
        crd_fixtures.apply_crds(region)
        define(region, today())
        with hub.operator("upgraded", **ALONE):
            found = group.ready()
            assert found["metadata"]["generation"] == stored["metadata"]["generation"], "nobody wrote the spec"
            assert found["spec"]["lease"]["durationSeconds"] > 0
            assert found["status"]["rolloutsReady"] == "2/2"
            assert found["status"]["regions"]
            before, victim = group.uids(), group.name_of("near", 0)
            region.kubectl("delete", "pod", victim, "-n", group.namespace, "--wait=false")
            group.wait(lambda: group.uids().get(victim, before[victim]) != before[victim], "its successor")
            assert group.ready()["status"]["term"] == 1


@pytest.mark.usefixtures("defined")
def test_what_a_newer_release_stored_is_left_alone_and_the_rest_is_reconciled(
    region: RegionHandle, tmp_path: Path
) -> None:
    hub = OperatorHub(region, tmp_path)
    with beating_group(region, "newer") as group:
        define(region, newer())
        more = {"compression": {"level": 9}, "rollout": {"colour": "green"}}
        stored = apply(region, document(group, **more))
        status = {
            "observedGeneration": 1,
            "term": 0,
            "forecast": {"sunny": True},
            "regions": [{"cluster": "local", "region": "us-east", "desired": 2, "ready": 0, "mood": "hopeful"}],
        }
        path = f"{GROUPS}/namespaces/{group.namespace}/syncgroups/demo"
        code, answer = region.api("PATCH", f"{path}/status?fieldManager=forecaster", {"status": status},
                                  content_type=MERGE)  # fmt: skip
        assert code == 200, answer
        with hub.operator("downgraded", **ALONE):
            found = group.ready()
            region.kubectl("label", "syncgroup", "demo", "touched=yes", "-n", group.namespace)
            group.wait(lambda: bool(group_of(region, group.namespace, "demo")["status"].get("regions")), "its regions")
            found = group.ready()
        assert found["spec"] == stored["spec"]
        assert (found["spec"]["compression"], found["spec"]["rollouts"][0]["colour"]) == ({"level": 9}, "green")
        assert found["status"]["forecast"] == {"sunny": True}, "somebody else's"
        (place,) = found["status"]["regions"]
        assert (place["ready"], place["mood"]) == (2, "hopeful")
        assert condition(found, "Stalled")["status"] == "False"
