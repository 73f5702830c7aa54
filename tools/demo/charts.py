"""Line charts as SVG, self-contained: no script, no font, nothing to load. Pure."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Told apart by everybody."""
WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 34, 34
TICKS = 4
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line."""

    name: str
    points: Sequence[Point]
    faint: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class Mark:
    """A moment that has a name."""

    x: float
    name: str


@dataclass(frozen=True)
class Chart:
    """What to draw."""

    title: str
    x_name: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    y_from_zero: bool = True


def nice_step(span: float, ticks: int = TICKS) -> float:
    """A round distance between ticks: 1, 2 or 5 times a power of ten."""
    if span <= 0 or not math.isfinite(span):
        return 1.0
    rough = span / ticks
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def draw(chart: Chart) -> str:
    """The chart as an SVG element."""
    points = [point for one in chart.series for point in one.points]
    if not points:
        return _frame(chart, [f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">nothing was seen</text>'])
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low = 0.0 if chart.y_from_zero else min(y for _, y in points)
    y_high = max(y for _, y in points)
    x_high, y_high = (x_high if x_high > x_low else x_low + 1), (y_high if y_high > y_low else y_low + 1)

    def place(point: Point) -> tuple[float, float]:
        x = LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (point[1] - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    parts = []
    for value in _ticks(y_low, y_high):
        y = place((x_low, value))[1]
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{_number(value)}</text>')
    for value in _ticks(x_low, x_high):
        x = place((value, y_low))[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_number(value)}</text>')
    for number, mark in enumerate(one for one in chart.marks if x_low <= one.x <= x_high):
        x = place((mark.x, y_low))[0]
        parts.append(f'<line class="mark" x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(
            f'<text class="mark" x="{x + 3}" y="{TOP + 9 + 11 * (number % 3)}">{html.escape(mark.name)}</text>'
        )
    for number, one in enumerate(chart.series):
        if one.points:
            parts.append(_line(one, [place(point) for point in one.points], COLOURS[number % len(COLOURS)]))
    return _frame(chart, parts)


def _line(series: Series, places: Sequence[tuple[float, float]], colour: str) -> str:
    words = [f"M{places[0][0]} {places[0][1]}"]
    for x, y in places[1:]:
        words.append(f"H{x}V{y}" if series.stepped else f"L{x} {y}")
    strength = 'stroke-width="1" stroke-opacity=".35"' if series.faint else 'stroke-width="2"'
    return f'<path d="{"".join(words)}" fill="none" stroke="{colour}" {strength}/>'


def _frame(chart: Chart, parts: Sequence[str]) -> str:
    named = [(number, one) for number, one in enumerate(chart.series) if one.name]
    legend, x = [], float(LEFT)
    for number, one in named if len(named) > 1 else []:
        colour = COLOURS[number % len(COLOURS)]
        legend.append(f'<rect x="{x}" y="{TOP - 14}" width="10" height="3" fill="{colour}"/>')
        legend.append(f'<text x="{x + 14}" y="{TOP - 9}">{html.escape(one.name)}</text>')
        x += 24 + 6.5 * len(one.name)
    title = html.escape(chart.title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f'<text class="title" x="{LEFT}" y="14">{title}</text>{"".join(legend)}{"".join(parts)}'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{html.escape(chart.x_name)}</text></svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    step = nice_step(high - low)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:.6g}"
