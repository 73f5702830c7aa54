"""A waterfall for a terminal: one line per span, bars to scale. Pure."""

from __future__ import annotations

from typing import Final

from sync_runtime.telemetry.waterfall.documents import Trace
from sync_runtime.telemetry.waterfall.rows import Row, duration, rows_of, title_of

MIN_BAR: Final = 16
DURATION_CELLS: Final = 9
MIN_WIDTH: Final = 60
_UNICODE: Final = {"part": "─", "stage": "█", "error": "▓", "bend": "└ ", "fork": "├ ", "through": "│ "}
_ASCII: Final = {"part": "-", "stage": "#", "error": "!", "bend": "`-", "fork": "|-", "through": "| "}


def to_text(trace: Trace, *, width: int = 120, ascii_only: bool = False) -> tuple[str, ...]:
    """The lines: a title, a scale, and every span; no line ends in spaces, none holds control characters."""
    rows = rows_of(trace)
    marks = _ASCII if ascii_only else _UNICODE
    width = max(width, MIN_WIDTH)
    labels = [_clean(branch + row.label) for branch, row in zip(_branches(rows, marks), rows, strict=True)]
    label_cells = min(max(map(len, labels), default=0), width // 3)
    details = [_clean(_words(row)) for row in rows]
    detail_cells = min(max(map(len, details), default=0), width // 3)
    bar_cells = max(MIN_BAR, width - label_cells - DURATION_CELLS - detail_cells - 4)
    total_ns = max((row.end_ns for row in rows), default=0)
    lines = [_clean(title_of(trace)), f"{'':{label_cells}} {_scale(bar_cells, total_ns)}".rstrip()]
    for row, label, detail in zip(rows, labels, details, strict=True):
        bar = _bar(row, total_ns, bar_cells, marks)
        took = duration(row.duration_ns)
        lines.append(f"{_cut(label, label_cells):{label_cells}} {bar} {took:>{DURATION_CELLS}}  {detail}".rstrip())
    return tuple(lines)


def _words(row: Row) -> str:
    return ", ".join(part for part in (row.detail, f"failed: {row.error}" if row.error else "") if part)


def _branches(rows: tuple[Row, ...], marks: dict[str, str]) -> list[str]:
    """What stands before each label to show the tree."""
    found: list[str] = []
    open_below: list[bool] = []
    """Per depth, whether another row of that depth follows under the same parent; made from the last row up."""
    for row in reversed(rows):
        del open_below[row.depth + 1 :]
        open_below += [False] * (row.depth + 1 - len(open_below))
        lead = "".join(marks["through"] if still else "  " for still in open_below[1 : row.depth])
        last = marks["fork"] if open_below[row.depth] else marks["bend"]
        found.append(lead + last if row.depth else "")
        open_below[row.depth] = True
    return found[::-1]


def _bar(row: Row, total_ns: int, cells: int, marks: dict[str, str]) -> str:
    scale = cells / total_ns if total_ns else 0.0
    start = min(int(row.start_ns * scale), cells - 1)
    length = max(1, min(round(row.duration_ns * scale), cells - start))
    mark = marks["error"] if row.error else marks["part"] if row.is_part else marks["stage"]
    return f"{' ' * start}{mark * length}".ljust(cells)


def _scale(cells: int, total_ns: int) -> str:
    middle, end = duration(total_ns // 2), duration(total_ns)
    line = "0" + middle.rjust(cells // 2 + len(middle) // 2 - 1)
    return line + end.rjust(cells - len(line))


def _cut(text: str, cells: int) -> str:
    return text if len(text) <= cells else text[: cells - 1] + "~"


def _clean(text: str) -> str:
    """Words of a backend may hold anything; a terminal obeys control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
