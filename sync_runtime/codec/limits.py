"""Numbers of the format: magics, modes, and sizes refused before anything is allocated (FORMAT.md, 5 and 11)."""

from __future__ import annotations

FORMAT_VERSION = 1
OBJECT_MAGIC = b"SGO1"
HEADER_BYTES = 32
ENTRY_BYTES = 16
END_BLOCK = 0xFFFFFFFF
LAYOUT_HASH_BYTES = 16
"""How much of the layout hash an object repeats."""

KIND_DELTA, KIND_ANCHOR = 1, 2
CODEC_ANCHOR, CODEC_FAST, CODEC_TIGHT, CODEC_AUTO = 0, 1, 2, 3
MODE_FAST, MODE_TIGHT, MODE_DENSE, MODE_PACKED, MODE_RAW = 1, 2, 3, 4, 5

CODEC_NAMES = {CODEC_FAST: "fast", CODEC_TIGHT: "tight", CODEC_AUTO: "auto", CODEC_ANCHOR: "anchor"}
CODEC_NUMBERS = {name: number for number, name in CODEC_NAMES.items()}
MODE_NAMES = {MODE_FAST: "fast", MODE_TIGHT: "tight", MODE_DENSE: "dense", MODE_PACKED: "packed", MODE_RAW: "raw"}
MODES_OF_CODEC = {
    CODEC_FAST: (MODE_FAST, MODE_DENSE),
    CODEC_TIGHT: (MODE_TIGHT, MODE_DENSE),
    CODEC_AUTO: (MODE_FAST, MODE_TIGHT, MODE_DENSE),
    CODEC_ANCHOR: (MODE_PACKED, MODE_RAW),
}

MAX_TABLES_BYTES = 64 << 20
MAX_LANES = 1024
MAX_LANE_WORDS = 0xFFFF
FRAME_SYMBOLS = 1024


def max_body_bytes(num_elements: int) -> int:
    """The largest body that a block of so many elements may have."""
    return 4 * num_elements + 4096
