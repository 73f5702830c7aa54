"""The demo's group as it runs under the operator: the contract takes it, and every region is its own cluster."""

from __future__ import annotations

from pathlib import Path

from sync_runtime.contract.documents import load_resource
from sync_runtime.contract.syncgroup import SyncGroup
from tools.demo import operated

GROUP = Path(operated.__file__).with_name("group.yaml")


def test_the_group_that_runs_is_a_syncgroup_with_one_cluster_per_region() -> None:
    found = load_resource(operated.runnable(operated.load(GROUP), "us-east"))
    assert isinstance(found, SyncGroup)
    assert found.spec.trainer.cluster == "local"
    assert found.spec.trainer.exposure.type == "LoadBalancer", "other clusters must reach it"
    assert {one.region: one.cluster for one in found.spec.rollouts} == {"eu-west": "eu-west", "ap-south": "ap-south"}


def test_its_pods_run_the_example_and_see_no_package_of_this_checkout() -> None:
    spec = operated.runnable(operated.load(GROUP), "us-east")["spec"]
    for template in (spec["trainer"]["template"], *(one["template"] for one in spec["rollouts"])):
        main = template["spec"]["containers"][0]
        assert Path(main["command"][1]).is_file()
        assert {"name": "PYTHONPATH", "value": ""} in main["env"]


def test_the_roles_that_are_installed_are_those_of_the_chart() -> None:
    assert all((operated.ROLES / name).is_file() for name in ("hub.yaml", "member.yaml"))
