"""Alerts ask for figures that exist, of this release alone, say what to do, and have a runbook each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.figures import operator
from tests.support.helm import NAMESPACE, Helm
from tests.support.promql import parse
from tests.unit.chart.queries import faults

RUNBOOKS = (Path(__file__).resolve().parents[3] / "docs" / "runbooks.md").read_text(encoding="utf-8")
OURS = {("namespace", "=", NAMESPACE), ("service", "=", "syncgroup-operator-metrics")}
MEMBERS = {("job", "=", f"{NAMESPACE}/syncgroup-members")}
OF_OPERATOR = {name for figure in operator.FIGURES for name in figure.series()}


def groups_of(helm: Helm, **values: Any) -> dict[str, list[dict[str, Any]]]:
    metrics = {"prometheusRule": {"enabled": True, **values}, "podMonitor": {"enabled": True}}
    rule = helm.render({"metrics": metrics})[f"PrometheusRule {NAMESPACE}/syncgroup-operator"]
    return {group["name"]: group["rules"] for group in rule["spec"]["groups"]}


@pytest.fixture(scope="module")
def rules(helm: Helm) -> list[dict[str, Any]]:
    found = groups_of(helm)
    assert set(found) == {"syncgroup-operator", "syncgroup-members"}
    return [rule for group in found.values() for rule in group]


def test_every_figure_and_label_of_an_alert_exists(rules: list[dict[str, Any]]) -> None:
    assert {rule["alert"]: faults(rule["expr"]) for rule in rules} == {rule["alert"]: [] for rule in rules}


def test_alerts_look_at_this_release_alone(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        for selector in parse(rule["expr"]).selectors:
            wanted = OURS if selector.name in OF_OPERATOR else MEMBERS
            assert wanted <= set(selector.matchers), rule["alert"]


def test_labels_in_words_are_labels_of_the_query(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        said = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert said <= {label for label, _ in parse(rule["expr"]).labels}, rule["alert"]


def test_every_alert_says_what_happened_and_what_to_do(rules: list[dict[str, Any]]) -> None:
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")
        assert len(rule["annotations"]["description"]) > 40


def test_every_alert_has_its_section_among_the_runbooks_and_the_reverse(rules: list[dict[str, Any]]) -> None:
    sections = re.findall(r"^## (SyncGroup\w+)$", RUNBOOKS, re.MULTILINE)
    assert sorted(sections) == sorted(rule["alert"] for rule in rules)
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert "runbook_url" not in rule["annotations"]


def test_a_copy_of_the_runbooks_elsewhere_is_linked(helm: Helm) -> None:
    found = groups_of(helm, runbookUrl="https://wiki.example/runbooks", maxLagVersions=7)
    rules = {rule["alert"]: rule for group in found.values() for rule in group}
    url = rules["SyncGroupRegionLags"]["annotations"]["runbook_url"]
    assert url == "https://wiki.example/runbooks#syncgroupregionlags"
    assert rules["SyncGroupRegionLags"]["expr"].endswith("> 7")


def test_without_figures_of_members_there_are_no_alerts_about_them(helm: Helm) -> None:
    rule = helm.render({"metrics": {"prometheusRule": {"enabled": True}}})
    (group,) = rule[f"PrometheusRule {NAMESPACE}/syncgroup-operator"]["spec"]["groups"]
    assert group["name"] == "syncgroup-operator"


def test_pods_have_the_port_and_the_labels_that_are_scraped() -> None:
    assert names.CONTROL_PORT_NAME == "sync-control"
    labels = names.member_labels(names.GroupKey("ns", "g"), "u", role="eu", index=0, cluster="local", region="eu")
    scraped = {re.sub(r"\W", "_", label) for label in labels}
    assert scraped >= {f"syncgroup_dev_{one}" for one in ("group", "group_namespace", "role", "cluster", "region")}
