"""The page of a run: one HTML file with its plots, that needs nothing beside it. Pure."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence

from tools.demo import charts, summary
from tools.demo.charts import Chart, Mark, Series
from tools.demo.facts import Link, Scene
from tools.demo.stage import Record
from tools.demo.story import HUB, WINDOW
from tools.demo.words import clock

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --dim: #666; --line: #ddd; --paper: #fff; --good: #00734f }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --dim: #aaa; --line: #444; --paper: #16181b; --good: #4cc79a } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { margin-bottom: 0 } .sub { color: var(--dim); margin-top: .2rem }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink) } svg .title { font-weight: 600; font-size: 13px }
svg .grid { stroke: var(--line) } svg line.mark { stroke: var(--dim); stroke-dasharray: 3 3 }
svg text.mark { fill: var(--dim); font-size: 10px }
table { border-collapse: collapse } td, th { padding: .3rem .8rem; text-align: left; vertical-align: top;
  border-top: 1px solid var(--line) } .good { color: var(--good); font-weight: 600 }
pre { background: color-mix(in srgb, var(--ink) 7%, transparent); padding: .8rem; overflow-x: auto; font-size: 12px }
img { max-width: 100%; background: #fff }
"""
_HEAD = "<tr><th></th><th>at</th><th>what was done</th><th>what was seen</th></tr>"


def page(
    record: Record, full_bytes: int, took_s: float, further: Sequence[str], trace_svg: str | None = None, *, about: str,
) -> str:  # fmt: skip
    """The whole document; `about`: what is played, in a sentence or two."""
    rows = "".join(
        f'<tr><td class="good">✓</td><td>{clock(one.at_s)}</td><td>{html.escape(one.says)}</td>'
        f"<td>{html.escape(one.seen)}</td></tr>"
        for one in record.outcomes
    )
    figures = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(figure)}</td></tr>"
        for name, figure in summary.facts_of(record, full_bytes, took_s)
    )
    plots = "".join(f"<div>{charts.draw(one)}</div>" for one in plots_of(record, full_bytes))
    trace = "" if trace_svg is None else _picture(trace_svg)
    commands = html.escape("\n".join(further))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>SyncGroup demo</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>SyncGroup: a run of the demo</h1>"
        f'<p class="sub">{html.escape(about)}</p><div class="plots">{plots}</div>'
        f"<h2>What happened</h2><table>{_HEAD}{rows}</table>"
        f"<h2>In figures</h2><table>{figures}</table>{trace}"
        f"<h2>Look further</h2><pre>{commands}</pre></body></html>\n"
    )


def _picture(svg: str) -> str:
    """As an image, so that its styles stay its own."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<h2>One version, one trace</h2><p><img alt="A trace" src="data:image/svg+xml;base64,{data}"></p>'


def plots_of(record: Record, full_bytes: int) -> list[Chart]:
    """Reward, payload, lag, capacity, streams; the acts are marks on those over time."""
    marks = [Mark(one.at_s - one.took_s, one.act) for one in record.outcomes]
    rewards = [(float(one.step), one.reward) for one in record.scene.steps]
    return [
        Chart("mean reward (1: every sum is right)", "step", [
            Series("each step", rewards, faint=True), Series(f"last {WINDOW}", _smoothed(rewards)),
        ]),
        Chart("bytes of a version, in % of all weights", "version", _payloads(record.scene, full_bytes)),
        Chart("versions behind the trainer", "seconds", _lags(record), marks),
        Chart("capacity of links between regions, as measured (Mbit/s)", "seconds", _links(record, _capacity), marks),
        Chart("streams in use between regions", "seconds", _links(record, _streams, stepped=True), marks),
        Chart("versions published", "seconds", [
            Series("", [(one.at_s, float(one.seq)) for one in record.samples if one.seq is not None]),
        ], marks),
    ]  # fmt: skip


def _payloads(scene: Scene, full_bytes: int) -> list[Series]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in scene.deltas:
        if not one.merged:
            found.setdefault(one.codec, []).append((float(one.target), 100 * one.size_bytes / full_bytes))
    return [Series(codec, points) for codec, points in sorted(found.items())]


def _lags(record: Record) -> list[Series]:
    regions = sorted({region for one in record.samples for region in one.lags})
    return [
        Series(region, [(one.at_s, float(one.lags[region])) for one in record.samples if region in one.lags])
        for region in regions
    ]


def _links(record: Record, value: Callable[[Link], float | None], *, stepped: bool = False) -> list[Series]:
    regions = sorted({region for one in record.samples for region in one.links if region != HUB})
    found = []
    for region in regions:
        points = [(one.at_s, value(one.links[region])) for one in record.samples if region in one.links]
        known = [(at_s, figure) for at_s, figure in points if figure is not None]
        found.append(Series(f"→ {region}", known, stepped=stepped))
    return found


def _capacity(link: Link) -> float | None:
    return None if not link.capacity_bits_per_second else link.capacity_bits_per_second / 1e6


def _streams(link: Link) -> float:
    return float(link.streams)


def _smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = []
    for end in range(1, len(points) + 1):
        part = points[max(0, end - WINDOW) : end]
        found.append((points[end - 1][0], sum(y for _, y in part) / len(part)))
    return found
