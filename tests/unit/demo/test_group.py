"""The demo's group: the contract takes it, its regions are clusters, its pods run the example of this checkout."""

from __future__ import annotations

import shlex

from examples.grpo.settings import TINY
from sync_runtime.contract import names
from sync_runtime.contract.documents import load_resource
from sync_runtime.contract.syncgroup import SyncGroup
from tools.demo import group, story
from tools.devcluster.hostpython import REPOSITORY


def test_the_group_that_runs_is_a_syncgroup_over_three_clusters() -> None:
    found = load_resource(group.runnable(group.load(), endpoint="http://10.233.1.1:4318"))
    assert isinstance(found, SyncGroup)
    assert (found.metadata.namespace, found.metadata.name) == (group.NAMESPACE, group.NAME)
    assert found.spec.trainer.region == story.HUB
    assert found.spec.trainer.exposure.type == "LoadBalancer", "other clusters must reach it"
    clusters = {one.region: one.cluster for one in found.spec.rollouts}
    assert clusters == {story.HUB: names.LOCAL_CLUSTER, story.THIN: story.THIN, story.FAR: story.FAR}


def test_without_nodes_the_trainer_is_dialled_at_an_address_of_ours() -> None:
    found = load_resource(group.external(group.load(), "127.0.0.1", 7001))
    assert isinstance(found, SyncGroup)
    assert (found.spec.trainer.exposure.type, found.spec.trainer.exposure.port) == ("External", 7001)
    assert {one.region for one in found.spec.rollouts} == {story.THIN, story.FAR}


def test_its_containers_run_the_example_with_the_figures_of_the_run() -> None:
    spec = group.runnable(group.load())["spec"]
    for template in (spec["trainer"]["template"], *(one["template"] for one in spec["rollouts"])):
        (main,) = template["spec"]["containers"]
        words = main["command"]
        assert words[1:3] == ["-m", "examples.grpo.pod"]
        assert (REPOSITORY / "examples" / "grpo" / "pod.py").is_file()
        assert words[words.index("--width") + 1] == str(group.RUN.width)
    trainer = spec["trainer"]["template"]["spec"]["containers"][0]
    assert trainer["command"][trainer["command"].index("--stop-file") + 1] == group.STOP_FILE
    assert any(group.STOP_FILE.startswith(one["mountPath"]) for one in trainer["volumeMounts"])


def test_a_newcomer_needs_no_anchor_because_every_version_is_kept() -> None:
    found = load_resource(group.load())
    assert isinstance(found, SyncGroup)
    assert found.spec.sync.retention.versions >= 1000
    assert found.spec.runtime.storage.size_bytes > found.spec.sync.retention.bytes


def test_leases_expire_sooner_than_the_story_gives_up() -> None:
    found = load_resource(group.load())
    assert isinstance(found, SyncGroup)
    limits = {one.act: one.limit_s for one in story.story(story.FULL, shaped=True)}
    assert found.spec.lease.duration_seconds * 3 < limits["kill"]
    assert found.spec.lease.on_cluster_lost == "Hold"


def test_the_members_are_the_trainer_and_one_rollout_per_region() -> None:
    found = group.member_names()
    assert found[group.trainer_name()] == story.HUB
    assert sorted(found.values()) == sorted([story.HUB, story.HUB, story.THIN, story.FAR])


def test_the_charts_values_name_images_by_repository_and_tag() -> None:
    values = group.chart_values("a.example:5000/operator:dev", "b/runtime:1")
    assert values["image"] | {"pullPolicy": ""} == {
        "repository": "a.example:5000/operator",
        "tag": "dev",
        "pullPolicy": "",
    }
    assert values["runtime"]["image"] == {"repository": "b/runtime", "tag": "1"}


def test_full_weights_are_two_bytes_per_element() -> None:
    assert group.full_bytes(TINY) == 2 * 74_944


def test_the_figures_of_the_run_are_words_of_a_command_line() -> None:
    template = group.load()["spec"]["rollouts"][0]["template"]
    assert shlex.join(group.arguments(template)).startswith("-m examples.grpo.pod worker --rest-s 2 --model tiny")
