"""Plots of a run: reward, lag, bytes and tokens/s as one PNG, and as one HTML page that needs nothing beside it.

    python -m examples.grpo.plots FOLDER/figures.jsonl FOLDER

Reads the lines that a run wrote; knows nothing of how they came about.
"""

from __future__ import annotations

import base64
import html
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Line = Mapping[str, Any]
WINDOW = 10
_SIZE_INCHES = (11, 7)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
img {{ max-width: 100% }} table {{ border-collapse: collapse }} td, th {{ padding: .2rem .8rem; text-align: right }}
th {{ border-bottom: 1px solid #888 }} td:first-child, th:first-child {{ text-align: left }}
</style></head><body><h1>{title}</h1>
<p><img alt="Reward, lag, bytes and tokens per second over the steps" src="data:image/png;base64,{image}"></p>
<table><tr><th>steps</th><th>reward</th><th>lag</th><th>kB per step</th><th>tokens/s</th></tr>
{rows}</table></body></html>
"""


def read(path: Path) -> list[Line]:
    """Lines of a run; of a step that was taken twice (the trainer went back) the later one."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [line for _, line in sorted({line["step"]: line for line in lines}.items())]


def smoothed(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """The mean of each value and those before it, at most `window` of them."""
    parts = (values[max(0, end - window) : end] for end in range(1, len(values) + 1))
    return [sum(part) / len(part) for part in parts]


def draw(figures: Path, folder: Path, title: str = "GRPO") -> list[Path]:
    """Writes `run.png` and `run.html`; returns where."""
    lines = read(figures)
    picture, page = folder / "run.png", folder / "run.html"
    _figure(lines, title).savefig(picture, dpi=110)
    image = base64.b64encode(picture.read_bytes()).decode()
    page.write_text(_PAGE.format(title=html.escape(title), image=image, rows=_rows(lines)))
    return [picture, page]


def _rate(line: Line) -> float:
    return float(line["tokens"] / max(line["seconds"], 1e-9))


def _kilobytes(line: Line) -> float:
    return float((line["sent_bytes"] or 0) / 1000)


def _figure(lines: Sequence[Line], title: str) -> Figure:
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    figure.suptitle(title)
    reward, lag, sent, rate = figure.subplots(2, 2).flatten()
    _panel(reward, lines, "mean reward (1: all sums are right)", lambda line: float(line["reward"]))
    reward.set_ylim(0, 1.02)
    _panel(lag, lines, "lag (steps between answer and lesson)", lambda line: float(line["lag"]))
    lag.set_ylim(bottom=0)
    if any(line["sent_bytes"] is not None for line in lines):
        _panel(sent, lines, "weights sent by the trainer (kB per step)", _kilobytes)
        sent.set_ylim(bottom=0)
    else:
        sent.text(0.5, 0.5, "one process: nothing is sent", ha="center", transform=sent.transAxes)
        sent.set_axis_off()
    _panel(rate, lines, "tokens/s of all workers", _rate)
    rate.set_ylim(bottom=0)
    return figure


def _panel(axes: Axes, lines: Sequence[Line], title: str, value: Callable[[Line], float]) -> None:
    steps, values = [line["step"] for line in lines], [value(line) for line in lines]
    axes.plot(steps, values, color="0.75", linewidth=1)
    axes.plot(steps, smoothed(values), color="C0", linewidth=2)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    axes.grid(visible=True, alpha=0.3)


def _rows(lines: Sequence[Line]) -> str:
    """A table of tenths of the run."""
    size = max(1, (len(lines) + 9) // 10)
    return "".join(_row(lines[start : start + size]) for start in range(0, len(lines), size))


def _row(lines: Sequence[Line]) -> str:
    def mean(value: Callable[[Line], float]) -> float:
        return sum(map(value, lines)) / len(lines)

    cells = [
        f"{lines[0]['step']}-{lines[-1]['step']}", f"{mean(lambda line: line['reward']):.3f}",
        f"{mean(lambda line: line['lag']):.2f}", f"{mean(_kilobytes):.1f}", f"{mean(_rate):.0f}",
    ]  # fmt: skip
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
