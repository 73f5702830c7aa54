"""The two lists of figures: names, units and labels follow Prometheus' own rules, and labels stay few."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from sync_runtime.contract.figures import Figure, operator, runtime, series_of

ALL = (*operator.FIGURES, *runtime.FIGURES)
BORROWED = ("leader_election_", "workqueue_", "rest_client_", "controller_runtime_")
LABELS = {
    "group_namespace", "group", "cluster", "region", "peer", "to_cluster", "to_region", "reason", "result", "stage",
    "codec", "state", "of", "why", "answer", "name", "controller", "verb", "kind", "code", "worker", "way",
}  # fmt: skip
"""Every one of them has few values: names of what a spec lists, or words of ours."""


@pytest.mark.parametrize("figure", ALL, ids=lambda figure: figure.name)
def test_a_figure_is_named_as_prometheus_wants_it(figure: Figure) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z]", figure.name)
    assert figure.name.startswith(("syncgroup_", *BORROWED))
    assert (figure.kind == "counter") == figure.name.endswith("_total")
    assert figure.meaning[0].isupper() or figure.meaning[0] == "1"
    assert figure.meaning.endswith(".")
    assert set(figure.labels) <= LABELS
    if figure.unit in ("seconds", "bytes", "ratio"):
        assert figure.unit in figure.name


@pytest.mark.parametrize("figures", [operator, runtime], ids=["operator", "runtime"])
def test_a_list_holds_every_figure_of_its_module_once(figures: object) -> None:
    named = [one for one in vars(figures).values() if isinstance(one, Figure)]
    listed: tuple[Figure, ...] = vars(figures)["FIGURES"]
    assert len(set(listed)) == len(listed) == len({one.name for one in named}) == len(named)


def test_histograms_have_ascending_bounds_and_nothing_else_has_any() -> None:
    for figure in ALL:
        assert bool(figure.bounds) == (figure.kind == "histogram")
        assert all(low < high for low, high in pairwise(figure.bounds))


def test_a_histogram_is_asked_for_by_three_names() -> None:
    found = series_of([runtime.STAGE_SECONDS, runtime.SCRUBS])
    assert found == {
        "syncgroup_stage_seconds_bucket": ("stage", "le"),
        "syncgroup_stage_seconds_sum": ("stage",),
        "syncgroup_stage_seconds_count": ("stage",),
        "syncgroup_scrubs_total": ("result",),
    }
