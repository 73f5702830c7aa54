"""The last words of a run, its plots and its page: whole, without anything that would have to be loaded."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.unit.demo.scenes import ended, link, scene, steps
from tools.demo import charts, page, summary
from tools.demo.charts import Chart, Mark, Series
from tools.demo.facts import Delta
from tools.demo.screen import Outcome
from tools.demo.stage import Record
from tools.demo.story import THIN

FULL = 1_300_000


def record() -> Record:
    made = Record()
    for number in range(4):
        made.take(scene(seq=37 + number, links=(link(THIN, streams=number + 1),)), 10.0 * number)
    made.take(ended(), 40.0)
    made.outcomes = [Outcome("kill", "a <rollout> hangs", "replaced & well", 25.0, 12.0)]
    return made


def test_savings_are_against_full_weights_of_every_version_to_every_rollout() -> None:
    found = summary.savings(record(), FULL)
    assert (found.versions, found.receivers) == (40, 3)
    assert found.full_bytes == 40 * 3 * FULL
    assert found.factor == pytest.approx(40 * 3 * FULL / 24_000_000)


def test_a_run_that_sent_nothing_saved_nothing_that_can_be_told() -> None:
    assert summary.savings(Record(), FULL).factor == 0.0
    assert ("pause", "not measured") in summary.facts_of(Record(), FULL, 1.0)


def test_the_summary_has_bytes_pause_sync_reward_and_what_was_seen() -> None:
    text = summary.text(record(), FULL, 245.0, ["open run.html"])
    for wanted in ("✓ kill: replaced & well", "24 MB left the trainer instead of 156 MB (6.5 times fewer)", "4 ms",
                   "0.25 s", "4:05", "open run.html"):  # fmt: skip
        assert wanted in text, wanted


def test_the_median_is_one_of_the_values() -> None:
    assert summary.middle([3.0, 1.0, 2.0]) == 2.0
    assert summary.middle([]) is None


def test_the_page_is_one_file_that_loads_nothing() -> None:
    text = page.page(record(), FULL, 245.0, ["kubectl get syncgroups -n rl -w"], "<svg></svg>", about="Bits & <bobs>.")
    assert text.startswith("<!doctype html>")
    for word in ("<script", "<link", "http://", "https://", "url("):
        assert word not in text, word
    assert "Bits &amp; &lt;bobs&gt;." in text
    assert "a &lt;rollout&gt; hangs" in text
    assert "replaced &amp; well" in text
    assert "data:image/svg+xml;base64," in text
    assert text.count("<svg") == len(page.plots_of(record(), FULL))
    assert text.count("src=") == 1, "the trace, which is in it"


def test_the_plots_are_of_reward_payload_lag_capacity_streams_and_versions() -> None:
    plots = {one.title.split(" ")[0]: one for one in page.plots_of(record(), FULL)}
    assert [series.name for series in plots["bytes"].series] == ["fast", "tight"]
    assert plots["bytes"].series[1].points[0] == pytest.approx((1.0, 100 * 200_000 / FULL))
    assert len(plots["mean"].series[0].points) == 40
    assert [y for _, y in plots["streams"].series[-1].points][:4] == [1, 2, 3, 4]
    assert plots["capacity"].marks == [Mark(13.0, "kill")]


def test_merged_deltas_are_no_versions_payload() -> None:
    made = Record()
    made.take(scene(deltas=(Delta(0, 9, "fast", 1), Delta(8, 9, "fast", 5))), 1.0)
    (series,) = next(one for one in page.plots_of(made, 100) if one.title.startswith("bytes")).series
    assert series.points == [(9.0, 5.0)]


@pytest.mark.parametrize(
    "series",
    [
        pytest.param([], id="nothing"),
        pytest.param([Series("a", [(1.0, 1.0)])], id="one point"),
        pytest.param([Series("a & b", [(0.0, 0.0), (5.0, 0.0)]), Series("c", [], stepped=True)], id="flat"),
        pytest.param([Series("", [(float(x), x * 1e6) for x in range(50)], stepped=True)], id="large"),
    ],
)
def test_a_chart_is_whole_svg_inside_its_frame(series: list[Series]) -> None:
    text = charts.draw(Chart("a < b", "seconds", series, [Mark(3.0, "cut"), Mark(99.0, "later")]))
    root = ElementTree.fromstring(text)  # noqa: S314 our own
    for line in root.iter("line"):
        assert 0 <= float(line.attrib["x1"]) <= charts.WIDTH
        assert 0 <= float(line.attrib["y1"]) <= charts.HEIGHT
    assert "later" not in text


@pytest.mark.parametrize(("span", "step"), [(1.0, 0.5), (10.0, 5.0), (40.0, 10.0), (7.0, 2.0), (0.0, 1.0)])
def test_ticks_are_round(span: float, step: float) -> None:
    assert charts.nice_step(span) == pytest.approx(step)


def test_a_reward_is_drawn_as_it_was_and_smoothed() -> None:
    made = Record()
    made.take(scene(steps=steps(30, 0.0, 0.29)), 1.0)
    reward = next(one for one in page.plots_of(made, FULL) if one.title.startswith("mean"))
    assert reward.series[1].points[-1] == pytest.approx((30.0, 0.245))
