"""Plain scalars of YAML and what kubectl takes them for."""

from __future__ import annotations

SCALARS: list[tuple[str, object]] = [
    ("1", 1),
    ("-1", -1),
    ("+1", 1),
    ("1.0", 1),
    ("1e3", 1000),
    ("1.5", 1.5),
    (".5", 0.5),
    ("1_000", 1000),
    ("0x10", 16),
    ("010", 8),
    ("0o10", 8),
    ("0b11", 3),
    ("0", 0),
    ("12:30:45", "12:30:45"),
    ("2027-01-31", "2027-01-31"),
    ("2027-01-31T12:00:00Z", "2027-01-31T12:00:00Z"),
    ("yes", True),
    ("off", False),
    ("y", True),
    ("N", False),
    ("'yes'", "yes"),
    ("None", "None"),
    ("null", None),
    ("~", None),
    ("", None),
    ("1.2.3", "1.2.3"),
    ("0.1-alpha", "0.1-alpha"),
    ("08", 8),
]
