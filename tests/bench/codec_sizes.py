"""How many bytes updates take: ours at every density beside published formats, and on recorded updates."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sync_runtime.offline import diff
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.blocks import kind_of
from tests.bench.codec_baselines import BASELINES
from tests.bench.codec_data import COLS, HeldPair, bf16, held_pair
from tests.bench.codec_entropy import ConditionalEntropy
from tests.bench.report import Report

DENSITIES = (0.003, 0.03, 0.1, 0.5)
"""Beside one per cent, which is measured where the bars are: on the largest states."""
SIDE_ELEMENTS = 1 << 26
PIECE_ELEMENTS = 1 << 24


def bench_densities(report: Report, num_elements: int) -> None:
    """Bytes per changed element where there is no bar, and how fast they come."""
    for density in DENSITIES:
        report_sizes(report, held_pair(density, min(num_elements, SIDE_ELEMENTS)), density)


def report_sizes(report: Report, pair: HeldPair, density: float, *, at_bar: bool = False) -> None:
    """Sizes of one update, files whole: object, layout and manifest."""
    case = f"{100 * density:g} % of {pair.num_elements:.3g}"
    entropy, changed = ConditionalEntropy(), 0
    for old, new in pieces(pair):
        entropy.add(old, new)
    changed = entropy.num_changed
    bound = entropy.total_bytes / changed
    report.figure(case, "density", changed / pair.num_elements, "share")
    report.figure(case, "conditional entropy", bound, "bytes/changed")
    sizes = {}
    for codec, bar in (("tight", 0.92), ("fast", 1.5)):
        started_s = time.process_time()
        delta = diff(pair.before, pair.after, codec=codec, layout=pair.layout, threads=1)
        spent_s = time.process_time() - started_s
        sizes[codec] = (len(delta.object) + len(delta.tail())) / changed
        report.figure(case, codec, sizes[codec], "bytes/changed", at_most=bar if at_bar else None)
        if not at_bar:
            report.figure(
                case, f"{codec} encode, one run on one core", pair.num_elements / spent_s / 1e6, "M elements/s"
            )
    over = sizes["tight"] / bound
    report.figure(case, "tight over entropy", over, "ratio", at_most=1.05 if at_bar else None)
    _baselines(report, case, pair, sizes)


def pieces(pair: HeldPair) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint16]]]:
    """Both states side by side, in pieces."""
    for name, tensor in pair.before.items():
        old = tensor.matrix.reshape(-1).view(np.uint16)
        new = pair.after[name].matrix.reshape(-1).view(np.uint16)
        for first in range(0, old.size, PIECE_ELEMENTS):
            yield old[first : first + PIECE_ELEMENTS], new[first : first + PIECE_ELEMENTS]


def _baselines(report: Report, case: str, pair: HeldPair, sizes: dict[str, float]) -> None:
    """The same changed elements in the formats of others."""
    before, after, places, first = [], [], [], 0
    for old, new in pieces(pair):
        at = np.flatnonzero(old != new)
        before.append(old[at])
        after.append(new[at])
        places.append(at + first)
        first += old.size
    old_bits, new_bits, at = np.concatenate(before), np.concatenate(after), np.concatenate(places)
    for name, size in BASELINES.items():
        found = size(old_bits, new_bits, at, COLS) / at.size
        for codec, ours in sizes.items():
            report.figure(case, f"{codec} against {name}", ours, "bytes/changed", baseline=found)


def bench_traces(report: Report, folder: Path) -> None:
    """Recorded updates of a small model, in sum; layout and manifest counted."""
    if not folder.is_dir():
        sys.stderr.write(f"skipped: no recorded traces in {folder}; give --traces DIR\n")
        return
    tight = fast = bound = changed = 0.0
    for trace in sorted(path.parent for path in folder.glob("*/meta.json")):
        for before, after in _steps(trace):
            kinds: dict[str, ConditionalEntropy] = {}
            for name, bits in before.items():
                counts = kinds.setdefault(kind_of(name), ConditionalEntropy())
                counts.add(bits.matrix.reshape(-1).view(np.uint16), after[name].matrix.reshape(-1).view(np.uint16))
            bound += sum(counts.total_bytes for counts in kinds.values())
            coded = diff(before, after, codec="tight")
            tight += len(coded.to_bytes())
            fast += len(diff(before, after).to_bytes())
            changed += coded.manifest.num_changed
    report.figure("traces", "conditional entropy", bound / changed, "bytes/changed")
    report.figure("traces", "tight", tight / changed, "bytes/changed")
    report.figure("traces", "fast", fast / changed, "bytes/changed")
    report.figure("traces", "tight over entropy", tight / bound, "ratio", at_most=1.12)


def _steps(trace: Path) -> Iterator[tuple[dict[str, BitTensor], dict[str, BitTensor]]]:
    meta = json.loads((trace / "meta.json").read_text())
    with np.load(trace / "base.npz") as base:
        shapes = {entry["name"]: tuple(entry["shape"]) for entry in meta["tensors"]}
        state = {name: bf16(shape, base[f"base/{name}"]) for name, shape in shapes.items()}
    for number in range(meta["steps"]):
        with np.load(trace / f"step{number:02d}.npz") as step:
            after = {}
            for name, bits in state.items():
                flat = bits.matrix.reshape(-1).copy()
                flat[step[f"idx/{name}"]] = step[f"new/{name}"]
                after[name] = bf16(bits.shape, flat.view(np.uint16))
        yield state, after
        state = after
