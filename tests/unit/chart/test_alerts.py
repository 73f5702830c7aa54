"""Alerts ask for figures that the operator has, of this release's replicas, and say what to do."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from syncgroup_operator.execute import timings
from syncgroup_operator.handlers import metrics
from tests.support.helm import NAMESPACE, Helm, figures

OURS = f'namespace="{NAMESPACE}",service="syncgroup-operator-metrics"'


@pytest.fixture(scope="module")
def rules(helm: Helm) -> list[dict[str, Any]]:
    rule = helm.render({"metrics": {"prometheusRule": {"enabled": True}}})[
        f"PrometheusRule {NAMESPACE}/syncgroup-operator"
    ]
    (group,) = rule["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def named_in_the_code() -> set[str]:
    """Every text of the two modules where names of figures live; the cluster's tests compare with a live operator."""
    trees = (ast.parse(inspect.getsource(module)) for module in (metrics, timings))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_figure_of_an_alert_exists(rules: list[dict[str, Any]]) -> None:
    known = named_in_the_code()
    asked = [name for rule in rules for name, _ in figures(rule["expr"])]
    assert len(asked) > len(rules)
    assert {name.removesuffix("_total") for name in asked} <= known


def test_alerts_look_at_this_release_alone(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        assert all(OURS in labels for _, labels in figures(rule["expr"])), rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_every_alert_says_what_happened_and_what_to_do(rules: list[dict[str, Any]]) -> None:
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")
        assert len(rule["annotations"]["description"]) > 40
