"""`python -m sync_runtime.telemetry.waterfall TRACE.json [--svg FILE]`: a saved trace as text, or as a picture."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sync_runtime.telemetry.waterfall import Trace, TraceDocumentError, newest, read_traces, to_svg, to_text

FALLBACK_COLUMNS = 110


def main(arguments: Sequence[str] | None = None) -> int:
    """Write it; what is no trace is one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m sync_runtime.telemetry.waterfall", description=__doc__)
    parser.add_argument("trace", type=Path, help="JSON of Jaeger's query API, or OTLP's own")
    parser.add_argument("--svg", type=Path, help="write a picture there instead")
    parser.add_argument("--width", type=int, help="columns of the text; those of the terminal if not given")
    parser.add_argument("--ascii", action="store_true", help="for a terminal without Unicode")
    options = parser.parse_args(arguments)
    try:
        trace = _load(options.trace)
        if options.svg is not None:
            options.svg.write_text(to_svg(trace), encoding="utf-8")
            return 0
    except (TraceDocumentError, ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    columns = options.width or shutil.get_terminal_size((FALLBACK_COLUMNS, 24)).columns
    sys.stdout.write("\n".join(to_text(trace, width=columns, ascii_only=options.ascii)) + "\n")
    return 0


def _load(path: Path) -> Trace:
    trace = newest(read_traces(json.loads(path.read_text(encoding="utf-8"))))
    if trace is None:
        raise TraceDocumentError(f"there is no trace in {path}")
    return trace


if __name__ == "__main__":
    sys.exit(main())
