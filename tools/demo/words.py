"""Figures as people read them. Pure."""

from __future__ import annotations

NOTHING = "-"


def size(value_bytes: float | None) -> str:
    """1.2 MB."""
    if value_bytes is None:
        return NOTHING
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value_bytes >= limit:
            return f"{value_bytes / limit:.3g} {unit}"
    return f"{value_bytes:.0f} B"


def kib(value_bytes: int | None) -> str:
    """256 KiB, as buckets are counted."""
    return NOTHING if value_bytes is None else f"{value_bytes // 1024} KiB"


def mbit(bits_per_second: float | None) -> str:
    """12.3 Mbit/s."""
    return NOTHING if not bits_per_second else f"{bits_per_second / 1e6:.3g} Mbit/s"


def millis(micros: float | None) -> str:
    """80 ms."""
    return NOTHING if micros is None else f"{micros / 1e3:.3g} ms"


def percent(ppm: float | None) -> str:
    """0.9 %."""
    return NOTHING if ppm is None else f"{ppm / 1e4:.2g} %"


def seconds(value_millis: float | None) -> str:
    """0.25 s."""
    return NOTHING if value_millis is None else f"{value_millis / 1e3:.2f} s"


def clock(value_s: float) -> str:
    """1:05."""
    return f"{int(value_s) // 60}:{int(value_s) % 60:02d}"


def plain(value: object) -> str:
    """A figure as it is, or a dash."""
    return NOTHING if value is None else str(value)
