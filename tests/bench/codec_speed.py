"""How fast the CPU codecs are: one core against the bars, several cores, cost over two orders of magnitude, merging."""

from __future__ import annotations

import functools
import io
import time
from collections.abc import Callable

import numpy as np

from sync_runtime.bucket.manifest import Version
from sync_runtime.codec.limits import CODEC_FAST
from sync_runtime.delta.apply import Staging
from sync_runtime.delta.cpu import extract_block
from sync_runtime.offline import Delta, diff, digest, merge
from sync_runtime.offline.anchors import read_anchor, write_anchor
from sync_runtime.offline.deltafile import Ends, describe
from sync_runtime.offline.objects import Source, write_object
from sync_runtime.offline.pool import default_threads
from sync_runtime.offline.staging import stage
from sync_runtime.tensors.bits import bind
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import ZERO
from sync_runtime.tensors.sparse import SparseBlock
from tests.bench.codec_data import AdamBlocks, HeldPair, held_pair, layout_for, learning_rate_for
from tests.bench.codec_sizes import report_sizes
from tests.bench.report import Report

DENSITY = 0.01
SPEED_ELEMENTS = 1 << 25
REPETITIONS = 7
BARS = {"fast": 200, "tight": 60}
"""Millions of elements per second, on one core, encoding and decoding."""
LINEAR_SIZES = (10**7, 10**8, 10**9)
BAR_ELEMENTS = 10**9
"""The bars for sizes are those of large states: tables and manifests weigh more in small ones."""
LINEAR_FACTOR = 1.5
"""An element of the largest state may cost so much more than one of the smallest."""
SWEEP_BYTES = 512 << 20
"""More than any cache holds."""

Action = Callable[[int], object]
"""Does something with so many threads."""


class Discard:
    """A sink that keeps nothing."""

    def write(self, data: bytes, /) -> None:
        """Forgets."""


def best_s(
    action: Callable[[], object],
    clock: Callable[[], float],
    repetitions: int = REPETITIONS,
    before: Callable[[], object] = lambda: None,
) -> float:
    """The shortest of several runs; `before` each of them something may be done that does not count."""
    times = []
    for _ in range(repetitions):
        before()
        started = clock()
        action()
        times.append(clock() - started)
    return min(times)


def warm_up() -> None:
    """Compiles everything that is timed later on."""
    for action in actions(held_pair(DENSITY, 1 << 18)).values():
        action(1)


def actions(pair: HeldPair) -> dict[tuple[str, str], Action]:
    """The whole of diff (comparison, digests, coding) and of staging (decoding, the list's digest, all checks)."""
    bound = bind(pair.layout, pair.before)
    found: dict[tuple[str, str], Action] = {}
    for codec in BARS:
        delta = diff(pair.before, pair.after, codec=codec, layout=pair.layout)

        def encode(threads: int, codec: str = codec) -> Delta:
            return diff(pair.before, pair.after, codec=codec, layout=pair.layout, threads=threads)

        def decode(threads: int, delta: Delta = delta) -> None:
            stage(delta, Staging(delta.blocks, bound), threads=threads)

        found |= {(codec, "encode"): encode, (codec, "decode"): decode}
    return found


def bench_speed(report: Report) -> None:
    """One core in CPU time, against the bars; then by the clock with one thread and with all cores."""
    pair = held_pair(DENSITY, SPEED_ELEMENTS)
    millions, cores = pair.num_elements / 1e6, default_threads()
    for (codec, name), action in actions(pair).items():
        case, alone = f"{codec} {name}", functools.partial(action, 1)
        alone()
        rate = millions / best_s(alone, time.process_time)
        report.figure(case, "one core", rate, "M elements/s", at_least=BARS[codec])
        if cores > 1:
            single = millions / best_s(alone, time.perf_counter)
            together = millions / best_s(functools.partial(action, cores), time.perf_counter)
            report.figure(case, f"{cores} cores", together, "M elements/s", baseline=single)
    spent_s = best_s(lambda: digest(pair.before, layout=pair.layout, threads=1), time.process_time)
    report.figure("full digest", "one core", millions / spent_s, "M elements/s")


def bench_linear(report: Report, num_elements: int) -> None:
    """Cost of an element over two orders of magnitude, caches cold; the largest state carries the bars for sizes too.

    A state of 1e7 elements nearly fits into a large cache, so without the sweep the smallest would look too cheap.
    """
    first: dict[tuple[str, str], float] = {}
    sweep = np.zeros(SWEEP_BYTES, np.uint8)
    sizes = [size for size in LINEAR_SIZES if size < num_elements] + [num_elements]
    for size in sizes:
        pair = held_pair(DENSITY, size)
        if size == num_elements:
            report_sizes(report, pair, DENSITY, at_bar=size >= BAR_ELEMENTS)
        for key, action in actions(pair).items():
            runs = max(1, 3 * 10**8 // size)
            alone, cool = functools.partial(action, 1), functools.partial(np.add, sweep, 1, out=sweep)
            spent_s = best_s(alone, time.process_time, min(runs, REPETITIONS), cool)
            cost = 1e9 * spent_s / pair.num_elements
            limit = LINEAR_FACTOR * first[key] if key in first else None
            case = f"{' '.join(key)} of {size:.0e}"
            report.figure(case, "cost", cost, "ns/element", baseline=first.get(key), at_most=limit)
            first.setdefault(key, cost)


def bench_merge(report: Report) -> None:
    """Eight consecutive deltas of 1 %, fast in and fast out."""
    blocks = BlockMap(layout_for(SPEED_ELEMENTS // 2))
    data = AdamBlocks(learning_rate_for(DENSITY))
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
    merged = merge(*objects, threads=1)
    spent_s = best_s(lambda: merge(*objects, threads=1), time.process_time)
    report.figure("merge of 8", "size", 8 * merged.manifest.num_changed / changed, "changes of one step")
    report.figure("merge of 8", "one core", changed / spent_s / 1e6, "M changed/s", at_least=50)


def bench_anchor(report: Report) -> None:
    """Full weights: size against raw, and speed."""
    pair = held_pair(DENSITY, SPEED_ELEMENTS // 2)
    blocks, bound = BlockMap(pair.layout), bind(pair.layout, pair.before)
    sink = io.BytesIO()
    totals = write_anchor(sink, blocks, bound, seq=0)
    raw_bytes = 2 * pair.num_elements
    report.figure("anchor", "size", totals.size_bytes / raw_bytes, "of raw", at_most=0.68)
    written = memoryview(sink.getvalue())
    both: dict[str, Callable[[], object]] = {
        "encode": lambda: write_anchor(Discard(), blocks, bound, seq=0, threads=1),
        "decode": lambda: list(read_anchor(written, blocks, threads=1)),
    }
    for name, action in both.items():
        action()
        spent_s = best_s(action, time.process_time)
        report.figure(f"anchor {name}", "one core", raw_bytes / spent_s / 1e6, "MB/s")
