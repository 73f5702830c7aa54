"""Tables and colour for a terminal, as text. Pure: who asks says how wide it is and whether it shows colour.

Words that come from a cluster may hold anything, and a terminal obeys control characters: they are taken out here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

Tone = Literal["plain", "good", "warn", "bad", "dim", "strong"]
_CODES: Final[Mapping[Tone, str]] = {"good": "32", "warn": "33", "bad": "31", "dim": "2", "strong": "1"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
NOTHING: Final = "-"
"""What stands in a cell that has nothing to say."""
GAP: Final = "  "


class Cell(NamedTuple):
    """One cell."""

    text: str
    tone: Tone = "plain"


Row = Sequence[Cell | str]


def clean(text: str) -> str:
    """Words of somebody else, without what a terminal would obey."""
    return _CONTROL.sub("?", text)


def painted(text: str, tone: Tone, *, colour: bool) -> str:
    """The text in its colour, where there is any."""
    code = _CODES.get(tone)
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text.strip() else text


def table(heads: Sequence[str], rows: Iterable[Row], *, colour: bool = False, indent: str = "") -> list[str]:
    """The lines of a table: columns as wide as what is in them, nothing behind the last one."""
    cells = [[_cell(one) for one in row] for row in rows]
    widths = [max(len(head), *(len(row[at].text) for row in cells), 0) for at, head in enumerate(heads)]
    head = [Cell(text, "strong") for text in heads]
    return [indent + _line(row, widths, colour=colour) for row in (head, *cells)]


def _cell(one: Cell | str) -> Cell:
    cell = one if isinstance(one, Cell) else Cell(one)
    return Cell(clean(cell.text) or NOTHING, cell.tone)


def _line(row: Sequence[Cell], widths: Sequence[int], *, colour: bool) -> str:
    *before, last = zip(row, widths, strict=True)
    parts = [painted(cell.text, cell.tone, colour=colour) + " " * (width - len(cell.text)) for cell, width in before]
    return GAP.join([*parts, painted(last[0].text, last[0].tone, colour=colour)])


def rate(bits_per_second: int | None) -> str:
    """A rate for people."""
    return _scaled(bits_per_second, 1000.0, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"))


def size(size_bytes: int | None) -> str:
    """A size for people."""
    return _scaled(size_bytes, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB"))


def micros(value_us: int | None) -> str:
    """A short time for people."""
    if value_us is None:
        return NOTHING
    return f"{value_us / 1000:.3g} ms" if value_us < 1_000_000 else f"{value_us / 1e6:.3g} s"


def millis(value_ms: int | None) -> str:
    """A time for people."""
    return NOTHING if value_ms is None else micros(value_ms * 1000)


def age(value_s: float | None) -> str:
    """How long ago, coarser the longer it is."""
    if value_s is None:
        return NOTHING
    value_s = max(value_s, 0.0)
    for limit_s, unit_s, unit in ((120.0, 1, "s"), (7200.0, 60, "min"), (172_800.0, 3600, "h")):
        if value_s < limit_s:
            return f"{value_s / unit_s:.0f} {unit}"
    return f"{value_s / 86_400:.0f} d"


def share(ppm: int | None) -> str:
    """Parts in a million as per cent."""
    return NOTHING if ppm is None else f"{ppm / 10_000:.2g} %"


def _scaled(value: int | None, step: float, units: Sequence[str]) -> str:
    if value is None:
        return NOTHING
    scaled, unit = float(value), units[0]
    for unit in units:
        if scaled < step or unit == units[-1]:
            break
        scaled /= step
    return f"{scaled:.3g} {unit}" if scaled < 1000 else f"{scaled:.0f} {unit}"
