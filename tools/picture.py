"""Draws boxes and arrows from a TOML text as SVG: `python -m tools.picture docs/overview.toml [--check]`.

A picture whose source is text can be reviewed and regenerated. Straight arrows between box borders, nothing more.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

CELL = 20
FILLS = {"resource": "#fff4d6", "control": "#e5e0fa", "user": "#e7f3e4", "runtime": "#dcebfb"}
STROKES = {"resource": "#b98900", "control": "#5b4bb0", "user": "#3f7d35", "runtime": "#2466a8"}
ARROWS = {"plain": ("#666666", 1.5), "data": ("#c2410c", 2.5)}
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def of(cls, cells: list[int]) -> Box:
        """From grid cells."""
        return cls(*(CELL * number for number in cells))

    @property
    def centre(self) -> tuple[float, float]:
        """The middle."""
        return self.x + self.width / 2, self.y + self.height / 2

    def border_towards(self, other: Box) -> tuple[float, float]:
        """Where the line between the two middles leaves this box."""
        (x, y), (far_x, far_y) = self.centre, other.centre
        dx, dy = far_x - x, far_y - y
        reach = min(
            self.width / 2 / abs(dx) if dx else float("inf"),
            self.height / 2 / abs(dy) if dy else float("inf"),
        )
        return round(x + dx * reach, 1), round(y + dy * reach, 1)


def draw(source: Mapping[str, Any]) -> str:
    """The whole picture."""
    width, height = source["width"] * CELL, source["height"] * CELL
    boxes = {entry["name"]: Box.of(entry["at"]) for entry in source["box"]}
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>",
        f"<title>{escape(source['title'])}</title>",
        f"<rect width='{width}' height='{height}' fill='#ffffff'/>",
        "<defs>",
        *_markers(),
        "</defs>",
        _text(width / 2, 26, source["title"], size=16, weight="bold"),
    ]
    for group in source.get("group", []):
        lines += _group(Box.of(group["at"]), group["label"])
    for entry in source["box"]:
        lines += _box(boxes[entry["name"]], entry)
    for arrow in source.get("arrow", []):
        lines += _arrow(boxes[arrow["from"]], boxes[arrow["to"]], arrow)
    return "\n".join([*lines, "</svg>", ""])


def _markers() -> Iterator[str]:
    for tone, (colour, _) in ARROWS.items():
        yield (
            f"<marker id='{tone}' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='6' markerHeight='6' "
            f"orient='auto-start-reverse'><path d='M 0 0 L 10 5 L 0 10 z' fill='{colour}'/></marker>"
        )


def _text(x: float, y: float, text: str, *, size: int, weight: str = "normal", colour: str = "#222222") -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' {FONT} font-size='{size}' font-weight='{weight}' fill='{colour}' "
        f"text-anchor='middle'>{escape(text)}</text>"
    )


def _group(box: Box, label: str) -> Iterator[str]:
    yield (
        f"<rect x='{box.x:g}' y='{box.y:g}' width='{box.width:g}' height='{box.height:g}' rx='10' "
        "fill='none' stroke='#999999' stroke-dasharray='6 4'/>"
    )
    yield _text(box.x + box.width / 2, box.y + 20, label, size=13, colour="#666666")


def _box(box: Box, entry: Mapping[str, Any]) -> Iterator[str]:
    tone = entry["tone"]
    yield (
        f"<rect x='{box.x:g}' y='{box.y:g}' width='{box.width:g}' height='{box.height:g}' rx='6' "
        f"fill='{FILLS[tone]}' stroke='{STROKES[tone]}' stroke-width='1.5'/>"
    )
    middle_x, middle_y = box.centre
    yield _text(middle_x, middle_y - 3, entry["label"], size=14, weight="bold")
    yield _text(middle_x, middle_y + 14, entry["note"], size=11, colour="#444444")


def _arrow(start: Box, end: Box, entry: Mapping[str, Any]) -> Iterator[str]:
    colour, thickness = ARROWS[entry.get("tone", "plain")]
    (x1, y1), (x2, y2) = start.border_towards(end), end.border_towards(start)
    yield (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{colour}' stroke-width='{thickness}' "
        f"marker-end='url(#{entry.get('tone', 'plain')})'/>"
    )
    if "label" in entry:
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        wide = 6.4 * len(entry["label"]) + 8
        yield f"<rect x='{x - wide / 2:g}' y='{y - 10:g}' width='{wide:g}' height='17' fill='#ffffff' opacity='0.9'/>"
        yield _text(round(x, 1), round(y + 3, 1), entry["label"], size=11, colour=colour)


def main(arguments: list[str] | None = None) -> int:
    """Draw beside the source, or with --check only compare."""
    parser = argparse.ArgumentParser(prog="python -m tools.picture", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--check", action="store_true", help="exit 1 where the drawn file differs")
    options = parser.parse_args(arguments)
    target = options.source.with_suffix(".svg")
    drawn = draw(tomllib.loads(options.source.read_text()))
    if not options.check:
        target.write_text(drawn)
    elif not target.exists() or target.read_text() != drawn:
        sys.stderr.write(f"error: {target} is not what {options.source} describes; run `python -m tools.picture`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
