"""What a query may ask for: the figures of the two lists, and the labels that Prometheus gives to whom it scrapes."""

from __future__ import annotations

from sync_runtime.contract.figures import Figure, operator, runtime, series_of
from tests.support.promql import OF_COUNTERS, parse

OPERATOR_TARGET = frozenset({"namespace", "service", "pod", "job", "instance"})
"""By the ServiceMonitor."""
MEMBER_TARGET = frozenset(
    {"namespace", "pod", "job", "instance", "group", "group_namespace", "role", "cluster", "region"}
)
"""By the PodMonitor and its relabelings."""
LABELS = {name: {*labels, *OPERATOR_TARGET} for name, labels in series_of(operator.FIGURES).items()} | {
    name: {*labels, *MEMBER_TARGET} for name, labels in series_of(runtime.FIGURES).items()
}
_GROWING = {
    name for figure in (*operator.FIGURES, *runtime.FIGURES) for name in figure.series() if figure.kind != "gauge"
}


def faults(query: str) -> list[str]:
    """Everything that is wrong with a query; raises QueryError where it cannot be read."""
    found: list[str] = []
    asked = parse(query)
    for selector in asked.selectors:
        if selector.name not in LABELS:
            found.append(f"nobody shows {selector.name}")
            continue
        found += [
            f"{selector.name} has no {label}" for label, _, _ in selector.matchers if label not in LABELS[selector.name]
        ]
        if (selector.name in _GROWING) != (selector.function in OF_COUNTERS):
            found.append(f"{selector.name} is asked for with {selector.function}")
    for label, selectors in asked.labels:
        found += [f"{one.name} has no {label}" for one in selectors if label not in LABELS.get(one.name, {label})]
    return found


def asked_for(queries: list[str]) -> set[str]:
    """The names of all figures in queries, those of histograms without their suffix."""
    names = {selector.name for query in queries for selector in parse(query).selectors}
    figures: tuple[Figure, ...] = (*operator.FIGURES, *runtime.FIGURES)
    return {figure.name for figure in figures if names & set(figure.series())}
