"""The dashboard asks for figures that exist, in all its panels, and shows what matters."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sync_runtime.contract.figures import runtime
from tests.support.helm import CHART, NAMESPACE, Helm
from tests.unit.chart.queries import asked_for, faults

DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
SHOWN = {
    "syncgroup_group_version_seq", "syncgroup_region_lag_versions", "syncgroup_payload_bytes",
    "syncgroup_payload_bits_per_changed_element", "syncgroup_payload_density_ratio",
    "syncgroup_region_link_rate_bits_per_second", "syncgroup_region_link_rtt_seconds", "syncgroup_region_link_streams",
    "syncgroup_region_link_bucket_bytes", "syncgroup_region_link_utilisation_ratio", "syncgroup_pause_seconds",
    "syncgroup_scrubs_total", "syncgroup_lease_expiries_total", "syncgroup_replacements_total",
}  # fmt: skip


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_figures_and_labels_that_exist(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert faults(target["expr"]) == []
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
        if " by (" in target["expr"]:
            assert legend <= kept, "a legend names a label that the query does not keep"


def test_variables_ask_for_a_figure_and_a_label_that_exist() -> None:
    queries = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert len(queries) == 2
    for query in queries:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found is not None
        assert faults(f"sum by ({found[2]}) ({found[1]})") == []


def test_variables_that_are_used_exist() -> None:
    known = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD)))
    assert used == known


def test_the_figures_that_matter_are_shown() -> None:
    assert asked_for(QUERIES) >= SHOWN
    assert len(asked_for(QUERIES) & {figure.name for figure in runtime.FIGURES}) > 10


def test_panels_have_a_meaning_and_a_place_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert all(panel["description"].endswith(".") for panel in PANELS)


def test_the_config_map_holds_the_dashboard_as_it_is(helm: Helm) -> None:
    key = f"ConfigMap {NAMESPACE}/syncgroup-dashboard"
    assert key not in helm.render()
    values = {"metrics": {"dashboard": {"enabled": True, "annotations": {"folder": "RL"}}}}
    found = helm.render(values)[key]
    assert json.loads(found["data"]["syncgroup.json"]) == DASHBOARD
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"folder": "RL"}


def test_members_are_scraped_by_the_labels_and_the_port_that_their_pods_have(helm: Helm) -> None:
    found = helm.render({"metrics": {"podMonitor": {"enabled": True}}})[f"PodMonitor {NAMESPACE}/syncgroup-members"]
    spec = found["spec"]
    assert spec["namespaceSelector"] == {"any": True}
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] == "sync-control"
    assert [one["targetLabel"] for one in endpoint["relabelings"]] == [
        "group", "group_namespace", "role", "cluster", "region"
    ]  # fmt: skip
    some = helm.render({"watchNamespaces": ["a"], "metrics": {"podMonitor": {"enabled": True}}})
    assert some[f"PodMonitor {NAMESPACE}/syncgroup-members"]["spec"]["namespaceSelector"] == {"matchNames": ["a"]}
