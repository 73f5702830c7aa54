"""Alerts ask for figures that the operator has, of this release's replicas, and say what to do."""

from __future__ import annotations

from typing import Any

import pytest

from sync_runtime.contract.figures import series_of
from sync_runtime.contract.figures.operator import FIGURES
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


def test_every_figure_of_an_alert_exists(rules: list[dict[str, Any]]) -> None:
    known = series_of(FIGURES)
    asked = [name for rule in rules for name, _ in figures(rule["expr"])]
    assert len(asked) > len(rules)
    assert set(asked) <= set(known)


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
