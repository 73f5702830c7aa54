"""Sizes and CPU speed of the codecs, with the bars they must reach: JSON lines, exit code 1 where one is missed.

    python -m tests.bench.bench_codec [--elements 1e9] [--only sizes|traces|speed|linear|merge|anchor] [--traces DIR]

Ours and the baselines come from the same data in the same run. Speeds of one core are per second of CPU time, so that
waiting for a busy machine does not count; those of several cores are by the clock. Each is the best of several runs.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sync_runtime.bucket.manifest import Version
from sync_runtime.codec.limits import CODEC_FAST, CODEC_NUMBERS
from sync_runtime.delta.apply import Staging
from sync_runtime.delta.cpu import extract_block
from sync_runtime.offline import Delta, diff, merge
from sync_runtime.offline.anchors import read_anchor, write_anchor
from sync_runtime.offline.deltafile import Ends, describe
from sync_runtime.offline.objects import Source, write_object
from sync_runtime.offline.pool import default_threads
from sync_runtime.offline.staging import stage
from sync_runtime.tensors.bits import BitTensor, bind
from sync_runtime.tensors.blocks import Block, BlockMap, kind_of
from sync_runtime.tensors.digest import ZERO
from sync_runtime.tensors.dtypes import wire_dtype
from sync_runtime.tensors.layout import Layout, make_layout
from sync_runtime.tensors.sparse import Bits, SparseBlock
from tests.bench.codec_baselines import BASELINES
from tests.bench.codec_data import AdamBlocks, learning_rate_for
from tests.bench.codec_entropy import ConditionalEntropy
from tests.bench.report import Report

DENSITIES = (0.003, 0.01, 0.03, 0.1, 0.5)
COLS = 4096
SAMPLE_ELEMENTS = 1 << 24
SPEED_ELEMENTS = 1 << 25
REPETITIONS = 7
DEFAULT_TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


def layout_for(num_elements: int) -> Layout:
    """Layers of one kind, 64 Mi elements each at most."""
    rows = -(-num_elements // COLS)
    per_layer = 16384
    heights = [min(per_layer, rows - first) for first in range(0, rows, per_layer)]
    return make_layout([(f"layers.{at}.weight", "BF16", (height, COLS)) for at, height in enumerate(heights)])


class Stream:
    """Synthetic blocks as a source; the time it takes to make them is told apart from the coder's."""

    def __init__(self, density: float) -> None:
        self._data = AdamBlocks(learning_rate_for(density))
        self.making_s = 0.0
        self.entropy: ConditionalEntropy | None = ConditionalEntropy()

    def sparse(self, block: Block) -> SparseBlock:
        started = time.process_time()
        old, new = self._data.pair(block)
        if self.entropy is not None:
            self.entropy.add(old, new)
        self.making_s += time.process_time() - started
        return extract_block(old, new, block.number)

    def old(self, block: Block) -> Bits:
        started = time.process_time()
        old, _ = self._data.pair(block)
        self.making_s += time.process_time() - started
        return old


class Discard:
    """A sink that keeps nothing."""

    def write(self, data: bytes, /) -> None:
        """Forgets."""


def encoded_bytes(blocks: BlockMap, codec: str, stream: Stream) -> tuple[int, float]:
    """(bytes of object, layout and manifest, seconds of the coder) of a streamed delta."""
    number = CODEC_NUMBERS[codec]
    started = time.process_time()
    source = Source(range(len(blocks)), stream.sparse, stream.old)
    totals = write_object(Discard(), blocks, number, source, threads=1)
    spent_s = time.process_time() - started - stream.making_s
    ends = Ends(Version(0, ZERO), 1, (ZERO,) * len(blocks.layout.tensors), "0" * 32, "")
    tail = Delta(blocks.layout, describe(blocks.layout, totals, ends), memoryview(b"")).tail()
    return totals.size_bytes + len(tail), spent_s


def bench_sizes(report: Report, num_elements: int) -> None:
    """Bytes per changed element at every density; the bars are at 1 %, on the full number of elements."""
    for density in DENSITIES:
        at_bar = density == 0.01
        blocks = BlockMap(layout_for(num_elements if at_bar else min(num_elements, SAMPLE_ELEMENTS * 4)))
        case = f"{100 * density:g} % of {sum(group.num_elements for group in blocks.groups):.3g}"
        stream = Stream(density)
        tight, _ = encoded_bytes(blocks, "tight", stream)
        entropy = stream.entropy
        if entropy is None:
            raise RuntimeError("the stream has counted nothing")
        bound, changed = entropy.total_bytes / entropy.num_changed, entropy.num_changed
        plain = Stream(density)
        plain.entropy = None
        fast, _ = encoded_bytes(blocks, "fast", plain)
        report.figure(case, "density", changed / sum(group.num_elements for group in blocks.groups), "share")
        report.figure(case, "conditional entropy", bound, "bytes/changed")
        report.figure(case, "tight", tight / changed, "bytes/changed", at_most=0.92 if at_bar else None)
        report.figure(case, "tight over entropy", tight / changed / bound, "ratio", at_most=1.05 if at_bar else None)
        report.figure(case, "fast", fast / changed, "bytes/changed", at_most=1.5 if at_bar else None)
        _baselines(report, case, density, tight / changed)


def _baselines(report: Report, case: str, density: float, tight: float) -> None:
    blocks = BlockMap(layout_for(SAMPLE_ELEMENTS))
    data = AdamBlocks(learning_rate_for(density))
    pairs = [data.pair(block) for block in blocks]
    old, new = (np.concatenate([pair[which] for pair in pairs]) for which in (0, 1))
    at = np.flatnonzero(old != new)
    for name, size in BASELINES.items():
        found = size(old, new, at, COLS) / at.size
        report.figure(case, f"tight against {name}", tight, "bytes/changed", baseline=found)


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
                counts.add(bits.matrix.reshape(-1), after[name].matrix.reshape(-1))
            bound += sum(counts.total_bytes for counts in kinds.values())
            coded = diff(before, after, codec="tight")
            tight += len(coded.to_bytes())
            fast += len(diff(before, after).to_bytes())
            changed += coded.manifest.num_changed
    report.figure("traces", "tight", tight / changed, "bytes/changed")
    report.figure("traces", "fast", fast / changed, "bytes/changed")
    report.figure("traces", "tight over entropy", tight / bound, "ratio", at_most=1.12)


def _steps(trace: Path) -> list[tuple[dict[str, BitTensor], dict[str, BitTensor]]]:
    meta = json.loads((trace / "meta.json").read_text())
    with np.load(trace / "base.npz") as base:
        shapes = {entry["name"]: tuple(entry["shape"]) for entry in meta["tensors"]}
        state = {name: _tensor(shape, base[f"base/{name}"]) for name, shape in shapes.items()}
    pairs = []
    for number in range(meta["steps"]):
        with np.load(trace / f"step{number:02d}.npz") as step:
            after = {}
            for name, bits in state.items():
                flat = bits.matrix.reshape(-1).copy()
                flat[step[f"idx/{name}"]] = step[f"new/{name}"]
                after[name] = _tensor(bits.shape, flat)
        pairs.append((state, after))
        state = after
    return pairs


def _tensor(shape: tuple[int, ...], bits: Bits) -> BitTensor:
    return BitTensor(wire_dtype("BF16"), shape, bits.reshape(-1, shape[-1]))


def held_pair(density: float, num_elements: int) -> tuple[Layout, dict[str, BitTensor], dict[str, BitTensor]]:
    """Two states in memory."""
    blocks = BlockMap(layout_for(num_elements))
    data = AdamBlocks(learning_rate_for(density))
    old, new = [], []
    for block in blocks:
        before, after = data.pair(block)
        old.append(before)
        new.append(after)
    (spec,) = blocks.layout.tensors
    before_all, after_all = np.concatenate(old), np.concatenate(new)
    return (
        blocks.layout,
        {spec.name: _tensor(spec.shape, before_all)},
        {spec.name: _tensor(spec.shape, after_all)},
    )


def best_s(action: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """The shortest of several runs, after one that compiles."""
    action()
    times = []
    for _ in range(REPETITIONS):
        started = clock()
        action()
        times.append(clock() - started)
    return min(times)


def bench_speed(report: Report) -> None:
    """Whole diff (comparison, both digests, coding) and staging (decoding, digest of the list, checks) at 1 %."""
    layout, before, after = held_pair(0.01, SPEED_ELEMENTS)
    millions = SPEED_ELEMENTS / 1e6
    bound = bind(layout, before)
    for codec, goal in (("fast", 200), ("tight", 60)):
        delta = diff(before, after, codec=codec, layout=layout)

        def encode(threads: int = 1, codec: str = codec) -> Delta:
            return diff(before, after, codec=codec, layout=layout, threads=threads)

        def decode(threads: int = 1, delta: Delta = delta) -> None:
            stage(delta, Staging(delta.blocks, bound), threads=threads)

        for name, action in (("encode", encode), ("decode", decode)):
            alone = millions / best_s(action)
            by_clock = millions / best_s(action, time.perf_counter)
            report.figure(f"{codec} {name}", "one core", alone, "M elements/s", at_least=goal)
            cores = default_threads()
            if cores > 1:
                together = millions / best_s(functools.partial(action, cores), time.perf_counter)
                report.figure(f"{codec} {name}", f"{cores} cores", together, "M elements/s", baseline=by_clock)


def bench_linear(report: Report, num_elements: int) -> None:
    """Nanoseconds of the coder per element over two orders of magnitude."""
    first: float | None = None
    encoded_bytes(BlockMap(layout_for(SAMPLE_ELEMENTS // 8)), "tight", Stream(0.01))  # compiles
    for size in [size for size in (10**7, 10**8, 10**9) if size <= num_elements]:
        stream = Stream(0.01)
        stream.entropy = None
        _, spent_s = encoded_bytes(BlockMap(layout_for(size)), "tight", stream)
        cost = 1e9 * spent_s / size
        report.figure(
            f"tight encode of {size:.0e}", "cost", cost, "ns/element",
            baseline=first, at_most=None if first is None else 1.5 * first,
        )  # fmt: skip
        first = first or cost


def bench_merge(report: Report) -> None:
    """Eight consecutive deltas of 1 %, fast in and fast out."""
    blocks = BlockMap(layout_for(SPEED_ELEMENTS // 2))
    data = AdamBlocks(learning_rate_for(0.01))
    objects, changed = [], 0
    for step in range(8):
        sink = io.BytesIO()

        def sparse(block: Block, step: int = step) -> SparseBlock:
            return extract_block(*data.pair(block, step), block.number)

        totals = write_object(sink, blocks, CODEC_FAST, Source(range(len(blocks)), sparse))
        ends = Ends(Version(0, ZERO), 1, (ZERO,) * len(blocks.layout.tensors), "0" * 32, "")
        manifest = describe(blocks.layout, totals, ends)
        objects.append(Delta(blocks.layout, manifest, memoryview(sink.getvalue())))
        changed += totals.num_changed
    spent_s = best_s(lambda: merge(*objects, threads=1))
    merged = merge(*objects, threads=1)
    factor = 8 * merged.manifest.num_changed / changed
    report.figure("merge of 8", "size", factor, "changes of one step")
    report.figure("merge of 8", "one core", changed / spent_s / 1e6, "M changed/s", at_least=50)


def bench_anchor(report: Report) -> None:
    """Full weights: size against raw, and speed."""
    layout, before, _ = held_pair(0.01, SPEED_ELEMENTS // 2)
    blocks, bound = BlockMap(layout), bind(layout, before)
    sink = io.BytesIO()
    totals = write_anchor(sink, blocks, bound, seq=0)
    raw_bytes = 2 * sum(group.num_elements for group in blocks.groups)
    report.figure("anchor", "size", totals.size_bytes / raw_bytes, "of raw", at_most=0.68)
    encode_s = best_s(lambda: write_anchor(Discard(), blocks, bound, seq=0, threads=1))
    decode_s = best_s(lambda: list(read_anchor(memoryview(sink.getvalue()), blocks, threads=1)))
    report.figure("anchor encode", "one core", raw_bytes / encode_s / 1e6, "MB/s")
    report.figure("anchor decode", "one core", raw_bytes / decode_s / 1e6, "MB/s")


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description="Sizes and CPU speed of the codecs.")
    parser.add_argument("--elements", type=float, default=1e9, help="elements of the largest case")
    parser.add_argument("--only", choices=["sizes", "traces", "speed", "linear", "merge", "anchor"])
    parser.add_argument("--traces", type=Path, default=DEFAULT_TRACES, metavar="DIR", help="recorded updates")
    options = parser.parse_args()
    report = Report("codec")
    parts: dict[str, Callable[[], None]] = {
        "traces": lambda: bench_traces(report, options.traces),
        "speed": lambda: bench_speed(report),
        "merge": lambda: bench_merge(report),
        "anchor": lambda: bench_anchor(report),
        "linear": lambda: bench_linear(report, int(options.elements)),
        "sizes": lambda: bench_sizes(report, int(options.elements)),
    }
    for name, part in parts.items():
        if options.only in (None, name):
            part()
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
