"""The few figures that a sidecar pushes by OTLP beside its traces, for backends that scrape nobody.

What happens is pushed as it happens, by whoever sees it; what is the case is looked at here, with the housekeeping. The
whole list of figures is what Prometheus reads (`figures`). Off, a look costs one question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sync_runtime.contract.reports import LinkReport
from sync_runtime.contract.traces import ATTR_FROM_REGION, ATTR_PEER, ATTR_REASON, ATTR_TO_REGION
from sync_runtime.telemetry import names
from sync_runtime.telemetry.surface import Attributes, Telemetry

if TYPE_CHECKING:
    from sync_runtime.sidecar.brain import Sidecar


class Pushed:
    """What was pushed already. Owned by the sidecar's loop."""

    def __init__(self) -> None:
        self._refusals: dict[str, int] = {}

    def look(self, sidecar: Sidecar) -> None:
        """Push what is the case now, and what was counted since the last look."""
        telemetry = sidecar.tracing.telemetry
        if not telemetry.enabled:
            return
        report = sidecar.role.report()
        if report.version is not None:
            telemetry.record(names.VERSION_SEQ, report.version.seq)
        telemetry.record(names.SPOOL_BYTES, report.spool_bytes or 0)
        for link in report.links:
            _push_link(telemetry, link)
        self._push_refusals(telemetry, sidecar.all_refusals())

    def _push_refusals(self, telemetry: Telemetry, counted: Mapping[str, int]) -> None:
        for reason, count in counted.items():
            grown = count - self._refusals.get(reason, 0)
            if grown > 0:
                telemetry.record(names.REFUSALS, grown, {ATTR_REASON: reason})
        self._refusals = dict(counted)


def _push_link(telemetry: Telemetry, link: LinkReport) -> None:
    attributes: Attributes = {
        ATTR_PEER: link.peer,
        ATTR_FROM_REGION: link.from_region,
        ATTR_TO_REGION: link.to_region,
    }
    telemetry.record(names.LINK_STREAMS, link.streams, attributes)
    if link.rate_bits_per_second is not None:
        telemetry.record(names.LINK_RATE, link.rate_bits_per_second, attributes)
    if link.rtt_micros is not None:
        telemetry.record(names.LINK_RTT, link.rtt_micros / 1e6, attributes)
