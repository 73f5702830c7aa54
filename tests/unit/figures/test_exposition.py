"""The text of a sidecar's figures, read back by Prometheus' own parser."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sync_runtime.contract.figures import Figure
from sync_runtime.contract.figures.runtime import HEAD_SEQ, PAUSE_SECONDS, REFUSALS
from sync_runtime.control.exposition import Distribution, Reading, flat, rendered


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def test_a_page_says_meaning_and_kind_of_every_figure_once() -> None:
    page = rendered([Reading(HEAD_SEQ, 7), Reading(REFUSALS, 1, ("NotTls",)), Reading(REFUSALS, 2, ("WrongGroup",))])
    assert page.splitlines() == [
        f"# HELP syncgroup_head_seq {HEAD_SEQ.meaning}",
        "# TYPE syncgroup_head_seq gauge",
        "syncgroup_head_seq 7",
        f"# HELP syncgroup_refusals_total {REFUSALS.meaning}",
        "# TYPE syncgroup_refusals_total counter",
        'syncgroup_refusals_total{reason="NotTls"} 1',
        'syncgroup_refusals_total{reason="WrongGroup"} 2',
    ]
    assert page.endswith("\n")


@given(
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=20), st.floats(allow_nan=False, allow_infinity=False)
)
def test_no_text_in_a_label_ends_its_line(text: str, value: float) -> None:
    page = rendered([Reading(REFUSALS, value, (text,))])
    found = parsed(page)
    assert list(found) == [("syncgroup_refusals_total", (("reason", text),))]
    assert found["syncgroup_refusals_total", (("reason", text),)] == value


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_distribution_counts_every_value_in_all_buckets_above_it(values: list[float]) -> None:
    figure = Figure("x_seconds", "histogram", "seconds", "X.", (), (0.5, 1.0, 10.0))
    spread = Distribution(figure)
    for value in values:
        spread.add(value)
    found = flat([Reading(figure, spread)])
    for text, bound in (("0.5", 0.5), ("1", 1.0), ("10", 10.0), ("+Inf", 1e9)):
        assert found[f'x_seconds_bucket{{le="{text}"}}'] == sum(value <= bound for value in values)
    assert found["x_seconds_count"] == len(values)
    assert abs(found["x_seconds_sum"] - sum(values)) < 1e-6


def test_a_distribution_is_a_histogram_to_prometheus() -> None:
    spread = Distribution(PAUSE_SECONDS)
    spread.add(0.004)
    (family,) = text_string_to_metric_families(rendered([Reading(PAUSE_SECONDS, spread)]))
    assert family.type == "histogram"
    below = {one.labels["le"]: one.value for one in family.samples if one.name.endswith("_bucket")}
    assert (below["0.0025"], below["0.005"], below["+Inf"]) == (0, 1, 1)
