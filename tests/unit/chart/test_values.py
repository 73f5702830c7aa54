"""Values: every one is in the schema, and what is wrong is refused in words that name it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.helm import CHART, Helm, HelmError
from tests.unit.chart import samples

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"replicaCount": 3}, "'replicaCount' not allowed"),
    "unknown inside": ({"image": {"name": "x"}}, "'name' not allowed"),
    "unknown setting": ({"settings": {"worker": 3}}, "'worker' not allowed"),
    "text for a number": ({"replicas": "two"}, "/replicas"),
    "no replica": ({"replicas": 0}, "/replicas"),
    "a word that is none": ({"image": {"pullPolicy": "Sometimes"}}, "'Always', 'IfNotPresent', 'Never'"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "/image/digest"),
    "a tag in the repository's place": ({"image": {"repository": "a@sha256:0"}}, "/image/repository"),
    "a namespace that cannot be": ({"watchNamespaces": ["Bad_Name"]}, "/watchNamespaces/0"),
    "a namespace twice": ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
    "root": ({"runAsUser": 0}, "/runAsUser"),
    "a port that is none": ({"ports": {"health": 70000}}, "/ports/health"),
    "an address without a length": (
        {"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}},
        "/networkPolicy/apiServerCIDRs/0",
    ),
    "an anchor where ours comes": (
        {"metrics": {"prometheusRule": {"runbookUrl": "https://wiki.example/#x"}}},
        "/metrics/prometheusRule/runbookUrl",
    ),
    "an endpoint without a scheme": ({"otel": {"endpoint": "collector:4318"}}, "/otel/endpoint"),
    "a setting by the back door": (
        {"extraEnv": [{"name": "SYNCGROUP_OPERATOR_WORKERS", "value": "1"}]},
        "/extraEnv/0/name",
    ),
    "below the operator's limit": ({"settings": {"resyncSeconds": 0.5}}, "/settings/resyncSeconds"),
    "two that would both act": ({"settings": {"leaderElection": False}}, "all of them would act"),
    "one port for two": ({"ports": {"health": 9000, "metrics": 9000}}, "ports.health and ports.metrics are the same"),
    "a monitor of nothing": (
        {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
        "needs metrics.service",
    ),
    "a lease that ends before it is given up": (
        {"settings": {"election": {"renewSeconds": 20}}},
        "leaseSeconds (15) must be above renewSeconds (20)",
    ),
}


@pytest.mark.parametrize(("values", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_refused_in_words_that_name_it(helm: Helm, values: dict[str, Any], words: str) -> None:
    with pytest.raises(HelmError) as refusal:
        helm.render(values)
    assert words in str(refusal.value)


@pytest.mark.parametrize("name", ["unknown", "no replica", "two that would both act"])
def test_helm_3_refuses_it_too(helm3: Helm, name: str) -> None:
    with pytest.raises(HelmError):
        helm3.render(WRONG[name][0])


def entries(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, entry in schema.get("properties", {}).items():
        yield f"{prefix}{name}", entry
        yield from entries(entry, f"{prefix}{name}.")


def test_no_object_of_the_schema_takes_keys_that_it_does_not_name() -> None:
    open_ones = {name for name, entry in entries(SCHEMA) if entry.get("type") == "object" and "properties" not in entry}
    # Kubernetes' own objects, names of the user's, and what Helm hands to every chart.
    assert open_ones == {"affinity", "global", "otel.resourceAttributes"}
    closed = [entry for _, entry in entries(SCHEMA) if "properties" in entry]
    assert all(entry["additionalProperties"] is False for entry in (SCHEMA, *closed))


def test_values_and_schema_name_the_same_things() -> None:
    def names(values: dict[str, Any], known: set[str], prefix: str = "") -> Iterator[str]:
        for name, value in values.items():
            full = f"{prefix}{name}"
            yield full
            if isinstance(value, dict) and any(one.startswith(f"{full}.") for one in known):
                yield from names(value, known, f"{full}.")

    known = {name for name, _ in entries(SCHEMA)}
    silent = {"global", "resources.claims"} | {name for name in known if name.startswith("settings.")}
    assert set(names(VALUES, known)) == known - silent


def test_values_that_look_odd_but_are_right_are_taken(helm: Helm) -> None:
    assert helm.render({"runAsUser": None, "global": {"anything": 1}, "resources": {"limits": {"cpu": 2}}})
    assert helm.render(samples.MOST, namespace="elsewhere")
