"""Figures of SyncGroups as their statuses have them: regions that no Prometheus of the hub can scrape among them.

Read from the bodies that the watch left, each once per change. What a status does not say is absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sync_runtime.contract.figures import Figure
from sync_runtime.contract.figures import operator as names
from sync_runtime.contract.names import GroupKey
from syncgroup_operator import reasons
from syncgroup_operator.execute.groups import SeenGroup

Row = tuple[Figure, tuple[str, ...], float]
_CONDITIONS: Final = ((names.GROUP_READY, reasons.READY), (names.GROUP_STALLED, reasons.STALLED))
_OF_GROUP: Final = (
    (names.GROUP_LAG, "lagVersions", 1),
    (names.GROUP_SYNC, "syncMillis", 1000),
    (names.GROUP_TERM, "term", 1),
    (names.GROUP_REPLACEMENTS, "replacementsTotal", 1),
)
_OF_REGION: Final = (
    (names.REGION_DESIRED, "desired", 1),
    (names.REGION_READY, "ready", 1),
    (names.REGION_LAG, "lagVersions", 1),
)
_OF_LINK: Final = (
    (names.REGION_RATE, "rateBitsPerSecond", 1),
    (names.REGION_RTT, "rttMicros", 1_000_000),
    (names.REGION_LOSS, "lossPpm", 1_000_000),
    (names.REGION_STREAMS, "streams", 1),
    (names.REGION_BUCKET, "bucketBytes", 1),
    (names.REGION_UTILISATION, "utilisationPercent", 100),
)
"""Figure, name in the status, and how many of the status' unit are one of the figure's."""


class GroupFigures:
    """Rows of all groups; a status that did not change is not read again."""

    def __init__(self) -> None:
        self._kept: dict[GroupKey, tuple[str, tuple[Row, ...]]] = {}

    def rows(self, groups: Iterable[SeenGroup]) -> Iterator[Row]:
        """The rows of these groups, and of no others from now on."""
        before, self._kept = self._kept, {}
        for seen in groups:
            mark = f"{seen.uid}/{seen.resource_version}"
            kept = before.get(seen.key)
            rows = kept[1] if kept is not None and kept[0] == mark else tuple(rows_of(seen.key, _status(seen.body)))
            self._kept[seen.key] = mark, rows
            yield from rows


def rows_of(key: GroupKey, status: Mapping[str, Any]) -> Iterator[Row]:
    """The figures of one group's status. Pure."""
    group = key.namespace, key.name
    judged = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    yield from ((figure, group, float(judged[kind] == "True")) for figure, kind in _CONDITIONS if kind in judged)
    version = status.get("version") or {}
    yield from _numbers(((names.GROUP_VERSION, "seq", 1),), version, group)
    yield from _numbers(_OF_GROUP, status, group)
    for region in status.get("regions") or ():
        place = *group, str(region.get("cluster")), str(region.get("region"))
        yield from _numbers(_OF_REGION, region, place)
        yield from _numbers(_OF_LINK, region.get("link") or {}, place)


def _numbers(
    table: Iterable[tuple[Figure, str, int]], said: Mapping[str, Any], labels: tuple[str, ...]
) -> Iterator[Row]:
    for figure, name, per in table:
        value = said.get(name)
        if isinstance(value, int):
            yield figure, labels, value / per


def _status(body: bytes) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(body).get("status") or {}
    return found
