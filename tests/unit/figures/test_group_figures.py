"""The operator's figures of groups are what their statuses say, read once per change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sync_runtime.contract.figures import operator as names
from sync_runtime.contract.names import GroupKey
from syncgroup_operator.execute.groups import SeenGroup, seen_group
from syncgroup_operator.execute.reconcile import Figures
from syncgroup_operator.handlers import group_figures
from syncgroup_operator.handlers.group_figures import GroupFigures, rows_of
from tests.unit.contract import status_samples

KEY = GroupKey("ml", "grpo")
HERE = ("ml", "grpo", "local", "us-west-2")


def group_status() -> dict[str, Any]:
    """With every field that becomes a figure."""
    status = status_samples.group_status()
    status["conditions"].append(status_samples.condition("Stalled", "True", "InvalidSpec", "say something else"))
    return status


def seen(status: dict[str, Any], version: str = "1", name: str = "grpo") -> SeenGroup:
    metadata = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "resourceVersion": version, "generation": 1}
    return seen_group({"metadata": metadata, "status": status})


def test_a_status_gives_every_figure_of_groups_in_its_unit() -> None:
    found = {(figure.name, labels): value for figure, labels, value in rows_of(KEY, group_status())}
    assert {figure for figure, _, _ in rows_of(KEY, group_status())} == set(names.GROUP_FIGURES)
    assert found["syncgroup_group_ready", ("ml", "grpo")] == 0
    assert found["syncgroup_group_version_seq", ("ml", "grpo")] == 128
    assert found["syncgroup_region_members_ready", HERE] == 3
    assert found["syncgroup_region_lag_versions", HERE] == 2
    assert found["syncgroup_region_link_rate_bits_per_second", HERE] == 472e6
    assert found["syncgroup_region_link_rtt_seconds", HERE] == pytest.approx(0.1012)
    assert found["syncgroup_region_link_loss_ratio", HERE] == pytest.approx(0.00095)
    assert found["syncgroup_region_link_utilisation_ratio", HERE] == pytest.approx(0.94)
    assert all(len(labels) == len(figure.labels) for figure, labels, _ in rows_of(KEY, group_status()))


def test_what_a_status_does_not_say_is_absent() -> None:
    assert list(rows_of(KEY, {})) == []
    status = group_status()
    del status["version"], status["regions"][0]["link"]["rateBitsPerSecond"]
    told = {figure for figure, _, _ in rows_of(KEY, status)}
    assert set(names.GROUP_FIGURES) - told == {names.GROUP_VERSION, names.REGION_RATE}


def test_a_status_is_read_again_only_when_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def reading(body: bytes) -> Any:
        read.append(body)
        return json.loads(body)["status"]

    monkeypatch.setattr(group_figures, "_status", reading)
    figures = GroupFigures()
    status = group_status()
    first = list(figures.rows([seen(status), seen({}, name="other")]))
    assert list(figures.rows([seen(status), seen({}, name="other")])) == first
    assert len(read) == 2
    status["term"] = 9
    assert (names.GROUP_TERM, ("ml", "grpo"), 9.0) in list(figures.rows([seen(status, "2")]))
    assert len(read) == 3
    list(figures.rows([seen({}, name="other")]))
    assert len(read) == 4  # it was gone for a while, and nothing of it was kept


def test_a_lease_that_is_seen_expired_in_many_passes_counts_once() -> None:
    figures = Figures()
    other = GroupKey("ml", "other")
    for expired in (["a"], ["a", "b"], ["a", "b"], ["b"], []):
        figures.expired(KEY, expired)
    assert figures.lease_expiries == 2
    figures.expired(other, ["a"])
    figures.expired(KEY, ["c"])
    assert figures.lease_expiries == 4
    figures.forget(KEY)
    figures.expired(KEY, ["c"])
    assert figures.lease_expiries == 5
