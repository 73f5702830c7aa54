"""The reader of queries finds what is wrong with them: without that, the checks of alerts and dashboard say nothing."""

from __future__ import annotations

import pytest

from tests.support.promql import QueryError, parse
from tests.unit.chart.queries import faults


@pytest.mark.parametrize(
    "query",
    [
        "sum(syncgroup_groups",
        "sum syncgroup_groups)",
        "syncgroup_groups{pod}",
        'syncgroup_groups{pod="x"',
        "syncgroup_groups{pod=3}",
        "rate(syncgroup_actions_total)",
        "rate(syncgroup_actions_total[soon])",
        "delta(syncgroup_groups[5m])",
        "syncgroup_groups >",
        "syncgroup_groups syncgroup_groups",
        "sum by (pod (syncgroup_groups)",
        "1 + ; 2",
    ],
)
def test_a_query_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(QueryError):
        parse(query)


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("syncgroup_group", "nobody shows syncgroup_group"),
        ('syncgroup_groups{region="x"}', "syncgroup_groups has no region"),
        ("sum by (version) (syncgroup_lag_versions)", "syncgroup_lag_versions has no version"),
        ("syncgroup_groups / on (cluster) syncgroup_groups", "syncgroup_groups has no cluster"),
        ("syncgroup_actions_total", "syncgroup_actions_total is asked for with None"),
        ("rate(syncgroup_groups[5m])", "syncgroup_groups is asked for with rate"),
        ("syncgroup_pause_seconds", "nobody shows syncgroup_pause_seconds"),
    ],
)
def test_a_figure_or_a_label_that_does_not_exist_is_found(query: str, fault: str) -> None:
    assert fault in faults(query)


@pytest.mark.parametrize(
    "query",
    [
        "(sum(leader_election_master_status) or vector(0)) == 0",
        "histogram_quantile(0.99, sum by (le, region) (rate(syncgroup_sync_seconds_bucket[$__rate_interval])))",
        'min by (pod) (syncgroup_certificate_expiry_timestamp_seconds{group=~"a.*"}) - time() < 3600',
        'workqueue_depth{name="x"} > 1 and on (namespace, pod) (leader_election_master_status == 1)',
        "-syncgroup_groups * 2 + 1e3",
    ],
)
def test_what_is_right_has_no_fault(query: str) -> None:
    assert faults(query) == []


def test_a_label_must_be_of_every_figure_below_it() -> None:
    assert faults("sum by (codec) (syncgroup_payload_bytes + syncgroup_spool_bytes)") == [
        "syncgroup_spool_bytes has no codec"
    ]
