"""What the chart makes: whole objects, fenced in, found by one another."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm import CHART, NAMESPACE, RELEASE, Helm, Objects
from tests.unit.chart import samples

CLUSTER_KINDS = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
DEPLOYMENT = f"Deployment {NAMESPACE}/syncgroup-operator"
everywhere = pytest.mark.parametrize("values", samples.ALL.values(), ids=samples.ALL)


def pod_of(objects: Objects) -> dict[str, Any]:
    template: dict[str, Any] = objects[DEPLOYMENT]["spec"]["template"]
    return template


@everywhere
def test_the_chart_is_linted_without_a_warning(helm: Helm, values: dict[str, Any]) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in helm.lint(values)


@everywhere
def test_every_object_says_whose_it_is_and_lies_where_it_should(helm: Helm, values: dict[str, Any]) -> None:
    for key, document in helm.render(values).items():
        metadata = document["metadata"]
        labels = metadata["labels"]
        assert labels["app.kubernetes.io/name"] == "syncgroup-operator", key
        assert labels["app.kubernetes.io/instance"] == RELEASE, key
        assert labels["app.kubernetes.io/managed-by"] == "Helm", key
        assert labels["helm.sh/chart"].startswith("syncgroup-"), key
        assert set(values.get("commonLabels", {})) <= set(labels), key
        assert ("namespace" not in metadata) == (document["kind"] in CLUSTER_KINDS), key
        watched = values.get("watchNamespaces", [])
        assert metadata.get("namespace", NAMESPACE) in (NAMESPACE, *watched), key


@everywhere
def test_pods_fit_the_level_restricted_and_cannot_write_their_own_files(helm: Helm, values: dict[str, Any]) -> None:
    spec = pod_of(helm.render(values))["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["securityContext"].get("runAsUser", 1) != 0
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    assert [set(volume) - {"name"} for volume in spec["volumes"]] == [{"emptyDir"}]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {port["containerPort"] for port in container["ports"]} == {8080, 8081}
    assert {"requests", "limits"} <= set(container["resources"])
    assert container["livenessProbe"]["httpGet"] == container["startupProbe"]["httpGet"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


@everywhere
def test_every_selector_finds_the_operators_pods(helm: Helm, values: dict[str, Any]) -> None:
    objects = helm.render(values)
    labels = set(pod_of(objects)["metadata"]["labels"].items())
    wanted = [objects[DEPLOYMENT]["spec"]["selector"]["matchLabels"]]
    for document in objects.values():
        spec = document.get("spec", {})
        if document["kind"] == "NetworkPolicy":
            wanted.append(spec["podSelector"]["matchLabels"])
        elif document["kind"] == "PodDisruptionBudget":
            wanted.append(spec["selector"]["matchLabels"])
        elif document["kind"] == "Service":
            wanted.append(spec["selector"])
    spread = pod_of(objects)["spec"].get("topologySpreadConstraints", [])
    wanted += [one["labelSelector"]["matchLabels"] for one in spread]
    for selector in wanted:
        assert set(selector.items()) <= labels
        # Nothing that an upgrade changes: a Deployment's selector must not.
        assert set(selector) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}


def test_by_default_there_are_two_replicas_spread_out_and_never_away_together(helm: Helm) -> None:
    objects = helm.render()
    spec = objects[DEPLOYMENT]["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (2, 0)
    spread = pod_of(objects)["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    budget = objects[f"PodDisruptionBudget {NAMESPACE}/syncgroup-operator"]["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_labels_of_pods_win_over_common_ones_but_not_over_what_selectors_need(helm: Helm) -> None:
    pods = {"team": "rl-pods", "app.kubernetes.io/name": "mine"}
    labels = pod_of(helm.render({"commonLabels": {"team": "rl", "cost": "1"}, "podLabels": pods}))["metadata"]["labels"]
    assert (labels["team"], labels["cost"], labels["app.kubernetes.io/name"]) == ("rl-pods", "1", "syncgroup-operator")


def test_one_replica_has_no_budget_that_would_hold_up_a_drain(helm: Helm) -> None:
    assert f"PodDisruptionBudget {NAMESPACE}/syncgroup-operator" not in helm.render({"replicas": 1})


def test_images_are_named_by_digest_else_tag_else_the_charts_version(helm: Helm) -> None:
    def images(values: dict[str, Any]) -> tuple[str, str]:
        (container,) = pod_of(helm.render(values))["spec"]["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        return container["image"], str(variables["SYNCGROUP_OPERATOR_RUNTIME_IMAGE"])

    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert images({}) == (f"syncgroup/operator:{version}", f"syncgroup/runtime:{version}")
    assert images(samples.MOST) == (
        f"registry.example/team/operator@sha256:{'0' * 64}",
        "registry.example/team/runtime:v7",
    )


def test_the_network_policy_leaves_dns_api_servers_and_telemetry(helm: Helm) -> None:
    def egress(values: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = helm.render(values)[f"NetworkPolicy {NAMESPACE}/syncgroup-operator"]["spec"][
            "egress"
        ]
        return found

    names, servers = egress({})
    assert [(port["port"], port["protocol"]) for port in names["ports"]] == [(53, "UDP"), (53, "TCP")]
    assert ("to" in names, "to" in servers) == (False, False)
    assert [port["port"] for port in servers["ports"]] == [443, 6443]
    _, servers, telemetry = egress(samples.MOST)
    assert servers["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert telemetry == {"ports": [{"port": 4318}]}


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://collector", 80),
        ("https://collector/otlp", 443),
        ("http://[fd00::1]:4318", 4318),
        ("http://[fd00::1]", 80),
    ],
)
def test_telemetry_goes_out_on_the_port_of_its_endpoint(helm: Helm, endpoint: str, port: int) -> None:
    policy = helm.render({"otel": {"endpoint": endpoint}})[f"NetworkPolicy {NAMESPACE}/syncgroup-operator"]
    assert policy["spec"]["egress"][-1] == {"ports": [{"port": port}]}


def test_metrics_are_offered_by_every_replica_and_may_be_kept_to_some(helm: Helm) -> None:
    objects = helm.render(samples.MOST)
    service = objects[f"Service {NAMESPACE}/syncgroup-operator-metrics"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    monitor = objects[f"ServiceMonitor {NAMESPACE}/syncgroup-operator"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert set(monitor["spec"]["selector"]["matchLabels"].items()) <= set(service["metadata"]["labels"].items())
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    health, metrics = objects[f"NetworkPolicy {NAMESPACE}/syncgroup-operator"]["spec"]["ingress"]
    assert ("from" in health, metrics["from"]) == (False, [{"namespaceSelector": {}}])


def test_nothing_of_the_prometheus_operator_is_made_unless_asked_for(helm: Helm) -> None:
    assert all(document["apiVersion"] != "monitoring.coreos.com/v1" for document in helm.render().values())


def test_a_release_fits_into_its_secret_several_times_over(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    (archive,) = tmp_path.iterdir()
    objects = gzip.compress(json.dumps(helm.render(samples.MOST)).encode())
    # Helm keeps files and objects of every revision in one Secret, in base64 twice over; the API server takes 1 MiB.
    assert (archive.stat().st_size + len(objects)) * 16 / 9 < 2**20 / 4


@everywhere
def test_both_helms_make_the_same_objects(helm: Helm, helm3: Helm, values: dict[str, Any]) -> None:
    assert helm.render(values) == helm3.render(values)
    assert "1 chart(s) linted, 0 chart(s) failed" in helm3.lint(values)


def test_the_charts_version_is_the_packages() -> None:
    package = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == package
    assert chart["version"] == package.replace(".dev", "-dev.")
