"""What a figure for Prometheus is: name, kind, unit, labels, meaning. The two lists are in `runtime` and `operator`.

One list each, so that a dashboard, an alert or a page can be checked against what exists. Words only; who counts is
elsewhere. A label never holds a version, a time or a text from elsewhere: every label has few values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
_SERIES: Mapping[Kind, tuple[str, ...]] = {"histogram": ("_bucket", "_sum", "_count")}


@dataclass(frozen=True)
class Figure:
    """One figure, by the name under which it is scraped."""

    name: str
    kind: Kind
    unit: str
    """In words; `1` is a plain number."""
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending, without the infinite one."""

    @property
    def family(self) -> str:
        """The name without the suffix that libraries add to counters."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    def series(self) -> dict[str, tuple[str, ...]]:
        """The names that can be asked for, each with its labels."""
        if self.kind != "histogram":
            return {self.name: self.labels}
        found = {self.name + suffix: self.labels for suffix in _SERIES[self.kind]}
        return found | {f"{self.name}_bucket": (*self.labels, "le")}


def series_of(figures: Iterable[Figure]) -> dict[str, tuple[str, ...]]:
    """Every name that can be asked for, with its labels."""
    return {name: labels for figure in figures for name, labels in figure.series().items()}
