from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from sync_runtime.contract.base import Model, submodel
from sync_runtime.contract.documents import load_resource, load_stored
from sync_runtime.contract.errors import InvalidDocumentError
from sync_runtime.contract.policies import LeasePolicy
from sync_runtime.contract.status import SyncClusterStatus, SyncGroupStatus
from sync_runtime.contract.synccluster import SyncClusterSpec
from sync_runtime.contract.syncgroup import SyncGroup, SyncGroupSpec
from tests.support.examples import examples
from tests.unit.contract.samples import EXAMPLES, minimal_cluster, minimal_group
from tests.unit.contract.status_samples import cluster_status, group_status
from tests.unit.contract.strategies import Document, syncclusters, syncgroups

slow_to_draw = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def problems_of(document: object) -> list[str]:
    with pytest.raises(InvalidDocumentError) as caught:
        load_resource(document)
    return [str(problem) for problem in caught.value.problems]


def load_yaml(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def with_value(path: str, value: object) -> dict[str, Any]:
    group = minimal_group()
    holder: Any = group["spec"]
    *steps, last = path.split(".")
    for step in steps:
        holder = holder[int(step)] if step.isdigit() else holder.setdefault(step, {})
    holder[int(last) if last.isdigit() else last] = value
    return group


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_reads_back_as_itself(path: Path) -> None:
    resource = load_resource(load_yaml(path))
    assert load_resource(resource.to_document()) == resource


def fields_of(model: type[Model], path: str = "") -> Iterator[str]:
    for field in model.model_fields.values():
        here = f"{path}.{field.alias}"
        yield here
        if inner := submodel(field.annotation):
            yield from fields_of(inner, here)


def keys_of(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}.{key}"
            yield from keys_of(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item, path)


def test_every_field_of_a_spec_is_shown_in_an_example() -> None:
    documents = [load_yaml(path) for path in EXAMPLES]
    shown = {key for document in documents for key in keys_of(document["spec"])}
    assert {*fields_of(SyncGroupSpec), *fields_of(SyncClusterSpec)} - shown == {".kubeconfigSecretRef.key"}


@pytest.mark.timeout(20)
@slow_to_draw
@given(document=syncgroups())
def test_filling_in_defaults_twice_changes_nothing(document: Document) -> None:
    once = load_resource(document).to_document()
    assert load_resource(once).to_document() == once


@pytest.mark.timeout(20)
@slow_to_draw
@given(document=syncclusters())
def test_a_generated_cluster_keeps_what_was_given(document: Document) -> None:
    filled = load_resource(document).to_document()["spec"]
    assert filled["region"] == document["spec"]["region"]
    given_namespaces = document["spec"].get("allowedNamespaces", [])
    assert [item["remote"] for item in filled["allowedNamespaces"]] == [item["remote"] for item in given_namespaces]


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("rollouts.0.replicas", "5", 'spec.rollouts[0].replicas: must be a whole number, not "5"'),
        ("rollouts.0.replicas", True, "spec.rollouts[0].replicas: must be a whole number, not true"),
        ("rollouts.0.replicas", 1.0, "spec.rollouts[0].replicas: must be a whole number, not 1.0"),
        ("suspend", 1, "spec.suspend: must be true or false, not 1"),
        ("suspend", "no", 'spec.suspend: must be true or false, not "no"'),
        ("managedBy", 7, "spec.managedBy: must be text, not 7"),
        ("trainer", [], "spec.trainer: must be an object, not []"),
        ("rollouts", {}, "spec.rollouts: must be a list, not {}"),
        ("rollouts.0", None, "spec.rollouts[0]: must be an object, not null"),
        ("lease.durationSeconds", 4, "spec.lease.durationSeconds: must be at least 5"),
        ("sync.streams", {"max": 10**30}, "spec.sync.streams.max: must be at most 64"),
        ("sync.codec", "Zip", "spec.sync.codec: must be Auto, Fast or Tight"),
        ("runtime.image", "", "spec.runtime.image: must have at least 1 characters"),
        (
            "trainer.region",
            "a\n",
            "spec.trainer.region: must be lower-case letters, digits and '-', with a letter or digit at both ends",
        ),
        ("trainer.region", "a" * 64, "spec.trainer.region: must have at most 63 characters"),
        (
            "runtime.resources",
            {"limits": {"cpu": True}},
            "spec.runtime.resources.limits.cpu: must be a quantity: a whole number, or text such as 500m or 2Gi",
        ),
        (
            "trainer.exposure",
            {"type": "NodePort", "annotations": {"a.b/c": 1}},
            "spec.trainer.exposure.annotations[a.b/c]: must be text, not 1",
        ),
        (
            "trainer.exposure",
            {"type": "LoadBalancer", "sourceRanges": ["10.0.0.0/8", "::/0", "10.0.0.0/8"]},
            "spec.trainer.exposure.sourceRanges[2]: is given twice; each value must be unique",
        ),
        ("trainr", {}, "spec.trainr: is not a field here; did you mean trainer?"),
        ("lease.zzz", 1, "spec.lease.zzz: is not a field here"),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(path: str, value: object, problem: str) -> None:
    assert problems_of(with_value(path, value)) == [problem]


def test_every_problem_is_reported_at_once() -> None:
    group = minimal_group()
    group["spec"]["rollouts"][0]["replicas"] = -1
    group["spec"]["suspend"] = "no"
    del group["spec"]["trainer"]["region"]
    assert len(problems_of(group)) == 3


@pytest.mark.parametrize("path", ["suspend", "sync", "sync.codec", "rollouts.0.replicas", "rollouts.0.container"])
def test_null_means_absent_as_on_the_api_server(path: str) -> None:
    assert load_resource(with_value(path, None)) == load_resource(minimal_group())


def test_null_does_not_hide_an_unknown_field() -> None:
    assert problems_of(with_value("rollouts.0.max_unavailable", None)) == [
        "spec.rollouts[0].max_unavailable: is not a field here; did you mean maxUnavailable?"
    ]


def test_nulls_in_a_map_are_dropped_and_nulls_in_a_template_are_kept() -> None:
    group = with_value("trainer.exposure", {"type": "NodePort", "annotations": {"a": None, "b": "c"}})
    group["spec"]["trainer"]["template"]["spec"] = {"hostname": None}
    spec = load_resource(group).to_document()["spec"]
    assert spec["trainer"]["exposure"]["annotations"] == {"b": "c"}
    assert spec["trainer"]["template"]["spec"] == {"hostname": None}


def test_documents_speak_camel_case_and_python_speaks_snake_case() -> None:
    assert LeasePolicy(duration_seconds=60).to_document()["durationSeconds"] == 60
    assert problems_of(with_value("lease.duration_seconds", 60)) == [
        "spec.lease.duration_seconds: is not a field here; did you mean durationSeconds?"
    ]


def test_a_model_cannot_be_changed_in_place() -> None:
    policy = LeasePolicy()
    with pytest.raises(ValueError, match="frozen"):
        policy.duration_seconds = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        ([], ["must be an object with apiVersion, kind and spec"]),
        (None, ["must be an object with apiVersion, kind and spec"]),
        (
            {},
            [
                "kind: must be SyncGroup or SyncCluster, not None",
                "apiVersion: must be syncgroup.dev/v1alpha1, not None",
            ],
        ),
        (
            {**minimal_group(), "apiVersion": "syncgroup.dev/v2"},
            ["apiVersion: must be syncgroup.dev/v1alpha1, not 'syncgroup.dev/v2'"],
        ),
        ({**minimal_cluster(), "kind": ["SyncGroup"]}, ["kind: must be SyncGroup or SyncCluster, not ['SyncGroup']"]),
    ],
)
def test_a_document_of_another_kind_is_refused(document: object, problems: list[str]) -> None:
    assert problems_of(document) == problems


def test_metadata_that_the_contract_does_not_know_passes() -> None:
    group = minimal_group()
    group["metadata"] |= {"namespace": "research", "labels": {"a": "b"}, "resourceVersion": "7", "managedFields": []}
    resource = load_resource(group)
    assert isinstance(resource, SyncGroup)
    assert resource.key == ("research", "grpo")
    assert resource.to_document()["metadata"] == group["metadata"]


def test_a_name_that_the_api_server_will_generate_is_no_problem() -> None:
    group = minimal_group()
    group["metadata"] = {"generateName": "grpo-"}
    load_resource(group)


def test_a_stored_object_of_a_newer_release_is_read_without_what_is_unknown() -> None:
    group = {**minimal_group(), "status": group_status()}
    assert load_stored(group) == (load_resource(group), ())
    newer = {**minimal_group(), "status": group_status() | {"forecast": {"a": 1}}}
    newer["spec"]["rollouts"][0]["tier"] = None
    assert load_stored(newer) == (load_resource(group), ("spec.rollouts[0].tier", "status.forecast"))
    assert "forecast" in newer["status"], "the caller's document is left alone"


def test_a_stored_object_that_is_wrong_otherwise_is_refused() -> None:
    group = minimal_group()
    group["spec"]["rollouts"][0] |= {"tier": 1, "replicas": -1}
    with pytest.raises(InvalidDocumentError, match="replicas: must be at least 0"):
        load_stored(group)


def test_a_status_reads_back_as_itself() -> None:
    assert SyncGroupStatus.parse(group_status()).to_document() == group_status()
    assert SyncClusterStatus.parse(cluster_status()).to_document() == cluster_status()


@pytest.mark.parametrize("time", ["2027-02-30T00:00:00Z", "2027-01-01", "2027-01-01T25:00:00Z", "0000-01-01T00:00:00Z"])
def test_a_time_that_does_not_exist_is_refused(time: str) -> None:
    with pytest.raises(ValueError, match="lostTime"):
        SyncClusterStatus.parse({**cluster_status(), "lostTime": time})
