"""One version's trace as a picture: from the JSON of a trace backend to a waterfall, as text or as SVG. Pure.

    from sync_runtime.telemetry.waterfall import newest, read_traces, search_path, to_svg, to_text

    path = search_path(group_uid=uid, seq=7)      # the newest version: leave seq out
    document = json.load(urlopen(backend + path)) # a Jaeger query API, say http://127.0.0.1:16686
    trace = newest(read_traces(document))         # Jaeger's JSON, or OTLP's (`resourceSpans`); None: none there
    for line in to_text(trace, width=120):        # `ascii_only=True` for a terminal without Unicode
        ...
    svg = to_svg(trace)                           # one self-contained picture

`read_traces` raises TraceDocumentError with a sentence for what is no such document. Members' clocks may be hours
apart: a part whose times cannot be is moved to where its parent sent to it, and the row says so. Nothing here opens
connections or files, and nothing here needs OpenTelemetry.
"""

from __future__ import annotations

from sync_runtime.telemetry.waterfall.documents import Trace, TraceDocumentError, TraceSpan, newest, read_traces
from sync_runtime.telemetry.waterfall.rows import Row, rows_of
from sync_runtime.telemetry.waterfall.searching import search_path
from sync_runtime.telemetry.waterfall.svg import to_svg
from sync_runtime.telemetry.waterfall.text import to_text

__all__ = [
    "Row",
    "Trace",
    "TraceDocumentError",
    "TraceSpan",
    "newest",
    "read_traces",
    "rows_of",
    "search_path",
    "to_svg",
    "to_text",
]
