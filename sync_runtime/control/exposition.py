"""Figures as Prometheus reads them, in its text format. Knows no figure by name and nothing of who counts.

Labels hold reasons and names that were checked long before; they are escaped nevertheless, so that no text can end a
line and begin another figure.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from sync_runtime.contract.figures import Figure

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Distribution:
    """How values are spread over a figure's buckets; grows for as long as the process runs."""

    def __init__(self, figure: Figure) -> None:
        self.bounds = figure.bounds
        self.counts = [0] * (len(figure.bounds) + 1)
        """Per bucket, not summed up; the last one has no bound."""
        self.total = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True)
class Reading:
    """One figure now."""

    figure: Figure
    value: float | Distribution
    labels: tuple[str, ...] = ()
    """In the order of the figure's own."""

    def rows(self) -> Iterator[tuple[str, float]]:
        """The lines of it: a name with its labels, and a number."""
        names = self.figure.labels
        if not isinstance(self.value, Distribution):
            yield _series(self.figure.name, names, self.labels), self.value
            return
        below = 0
        texts = [f"{bound:g}" for bound in self.value.bounds]
        for text, count in zip([*texts, "+Inf"], self.value.counts, strict=True):
            below += count
            yield _series(f"{self.figure.name}_bucket", (*names, "le"), (*self.labels, text)), below
        yield _series(f"{self.figure.name}_sum", names, self.labels), self.value.total
        yield _series(f"{self.figure.name}_count", names, self.labels), below


def rendered(readings: Iterable[Reading]) -> str:
    """All readings as one page, those of a figure together under its meaning and kind."""
    families: dict[Figure, list[Reading]] = {}
    for reading in readings:
        families.setdefault(reading.figure, []).append(reading)
    lines: list[str] = []
    for figure, members in families.items():
        lines += [f"# HELP {figure.name} {_escaped(figure.meaning)}", f"# TYPE {figure.name} {figure.kind}"]
        rows = (row for reading in members for row in reading.rows())
        lines += [f"{series} {_number(value)}" for series, value in rows]
    return "\n".join([*lines, ""])


def flat(readings: Iterable[Reading]) -> dict[str, float]:
    """The same numbers by name and labels."""
    return {series: value for reading in readings for series, value in reading.rows()}


def _series(name: str, names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = [f'{label}="{_quoted(value)}"' for label, value in zip(names, values, strict=True)]
    return f"{name}{{{','.join(pairs)}}}" if pairs else name


def _number(value: float) -> str:
    """Exact: a counter of bytes outgrows ten digits within days."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
