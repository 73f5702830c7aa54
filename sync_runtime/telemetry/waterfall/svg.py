"""A waterfall as one self-contained SVG, for documents and pages. Pure; the same trace gives the same bytes."""

from __future__ import annotations

from html import escape
from typing import Final

from sync_runtime.telemetry.waterfall.documents import Trace
from sync_runtime.telemetry.waterfall.rows import Row, duration, rows_of, title_of

WIDTH: Final = 1080
ROW: Final = 20
TOP: Final = 58
LABELS: Final = 250
DETAILS: Final = 300
MARGIN: Final = 14
INDENT: Final = 14
TICKS: Final = 5
_STYLE: Final = (
    "svg{background:#fff}text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#24292f}"
    ".title{font-weight:600;font-size:13px}.soft{fill:#6e7781}.bad{fill:#b3261e}"
    ".part{fill:#afb8c1}.stage{fill:#3b76c4}.error{fill:#d1453b}line{stroke:#e3e7eb}"
)


def to_svg(trace: Trace) -> str:
    """The picture; every bar tells the whole when it is pointed at."""
    rows = rows_of(trace)
    total_ns = max((row.end_ns for row in rows), default=0)
    height = TOP + ROW * len(rows) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{_safe(title_of(trace))}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{MARGIN}" y="24">{_safe(title_of(trace))}</text>',
        *_ticks(total_ns, height),
    ]
    for number, row in enumerate(rows):
        parts += _line(row, TOP + ROW * number, total_ns)
    return "\n".join([*parts, "</svg>", ""])


def _ticks(total_ns: int, height: int) -> list[str]:
    found: list[str] = []
    for number in range(TICKS):
        x = _x(total_ns * number // (TICKS - 1), total_ns)
        found.append(f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{height - MARGIN}"/>')
        words = duration(total_ns * number // (TICKS - 1)) if number else "0"
        found.append(f'<text class="soft" x="{x}" y="{TOP - 14}" text-anchor="middle">{words}</text>')
    return found


def _line(row: Row, y: int, total_ns: int) -> list[str]:
    x = _x(row.start_ns, total_ns)
    width = max(2.0, round(_x(row.end_ns, total_ns) - x, 1))
    kind = "error" if row.error else "part" if row.is_part else "stage"
    words = ", ".join(part for part in (duration(row.duration_ns), row.detail, row.error) if part)
    bar_height = 6 if row.is_part else 12
    top = y + (ROW - bar_height) // 2
    indent = MARGIN + INDENT * min(row.depth, 10)
    style = "bad" if row.error else "soft"
    return [
        f"<g><title>{_safe(f'{row.label} {row.span.name}: {words}')}</title>",
        f'<text x="{indent}" y="{y + 14}">{_safe(_cut(row.label, 34))}</text>',
        f'<rect class="{kind}" x="{x}" y="{top}" width="{width}" height="{bar_height}" rx="2"/>',
        f'<text class="{style}" x="{WIDTH - DETAILS + 8}" y="{y + 14}">{_safe(_cut(words, 38))}</text></g>',
    ]


def _x(at_ns: int, total_ns: int) -> float:
    room = WIDTH - LABELS - DETAILS - 2 * MARGIN
    return round(LABELS + MARGIN + (room * at_ns / total_ns if total_ns else 0.0), 1)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _safe(text: str) -> str:
    """Words of a backend in XML: escaped, and without what XML forbids."""
    return escape("".join(letter if letter.isprintable() else "?" for letter in text))
