"""Extraction, coding and apply on the GPU, with the bars they must reach: JSON lines, exit code 1 where one is missed.

    python -m tests.bench.bench_gpu [--layers 28] [--rate 1.05e-6] [--repeat 7]

Twenty-eight layers are 7.6e9 bf16 elements; with fewer, times are scaled to 7.6e9. The default rate changes 1 %.
Every time is the median over repetitions between device events, waiting for the host included. Nothing is timed before
its output has been compared with its reference: a small model byte for byte with the CPU coder, the large one by its
state after decode and apply, and by the digests of whole tensors in plain torch.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import sys

import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.codec.limits import CODEC_FAST, CODEC_NAMES, CODEC_TIGHT
from sync_runtime.delta import naive
from sync_runtime.delta.kernels import scrub as digests
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.tensors.device.bind import Bound, bind
from sync_runtime.tensors.digest import tensor_keys
from tests.bench.gpu_model import Model, adam_step, make_model, median_ms, policy_layout
from tests.bench.gpu_more import bench_others, bench_staging
from tests.bench.report import Report
from tests.gpu.support import Case, cpu_object, gpu_object

DENSITY_ROOM = 0.0125
"""Lists are sized for this density, as a publisher that expects 1 % does; the update has 1 %."""
ENCODE_GOAL_MS = {CODEC_FAST: 15.0, CODEC_TIGHT: 45.0}
DECODE_GOAL_MS = {CODEC_FAST: 10.0, CODEC_TIGHT: 30.0}
APPLY_GOAL_MS = SCRUB_GOAL_MS = 10.0
EXTRACT_GOAL = 0.8
MEMORY_GOAL = 0.05


def copy_bytes_per_s(size_bytes: int, repeat: int) -> float:
    """Device copy rate, bytes read and written counted."""
    source = torch.randint(0, 255, (size_bytes,), dtype=torch.uint8, device="cuda")
    sink = torch.empty_like(source)
    return 2 * size_bytes / median_ms(lambda: sink.copy_(source), repeat) * 1e3


def check_bytes() -> None:
    """The coder on the GPU writes what the CPU's writes, for a small model of the same kinds of tensors."""
    layout = policy_layout(1, hidden=1024, inner=2048, keys=128, words=4096)
    old, new = adam_step(layout, 1.1e-6)
    case = Case(layout, {k: v.cpu() for k, v in old.items()}, {k: v.cpu() for k, v in new.items()})
    for codec in (CODEC_FAST, CODEC_TIGHT):
        if gpu_object(case, codec, "cuda") != cpu_object(case, codec):
            raise SystemExit(f"{CODEC_NAMES[codec]}: the GPU's bytes differ from the CPU's; nothing is timed")


def check_digests(model: Model, extractor: Extractor) -> None:
    """Tensor digests of the live weights equal those of plain torch."""
    found = digests.tensor_digests(model.section, extractor.sums)
    for at, spec in enumerate(model.layout.tensors):
        if spec.numel < 1 << 25 and at % 7 == 0:
            wire = model.new[spec.name].to(torch.bfloat16)
            if naive.digest(wire, tensor_keys(spec)) != tuple(found[at]):
                raise SystemExit(f"the digest of {spec.name} is wrong; nothing is timed")


def same_bits(state: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two states are equal bit for bit."""
    return all(torch.equal(state[name].view(torch.int16), other[name].view(torch.int16)) for name in state)


def bench_extract(
    report: Report, model: Model, extractor: Extractor, copy_rate: float, *, repeat: int, case: str
) -> None:
    """The fused pass over all tiles: compare, mask, digest; and with the list of changes."""
    per_element = 2 + (4 if extractor.live.cast else 2)
    mask = torch.empty(model.section.num_units * 1024, dtype=torch.int32, device="cuda")
    base = torch.as_tensor(model.section.host_unit_first[:-1] * 1024, device="cuda")
    tiles = range(int(extractor.plan.unit_piece.numel()))
    fused = median_ms(
        lambda: digests.launch_tiles(
            extractor.plan, extractor.live, extractor.sums, tiles, old=extractor.snapshot, mask=mask, word_base=base
        ),
        repeat,
    )
    rate = per_element * model.section.num_elements / fused * 1e3
    report.figure(case, "extraction read rate", rate, "B/s", baseline=copy_rate, at_least=EXTRACT_GOAL * copy_rate)
    report.figure(case, "extraction", fused * model.scale, "ms per 7.6e9")
    whole = median_ms(extractor.run, repeat)
    report.figure(case, "extraction and list of changes", whole * model.scale, "ms per 7.6e9")


def bench_encode(report: Report, model: Model, extractor: Extractor, codec: int, repeat: int) -> bytes:
    """Extraction to finished records on the device; returns the object."""
    name = CODEC_NAMES[codec]
    part = Part(extractor.snapshot, extractor.live, extractor.changes, extractor.scratch)
    encoder = DeltaEncoder(model.blocks, [part], codec)

    def work() -> None:
        extractor.run()
        encoder.encode()

    taken = median_ms(work, repeat)
    report.figure(name, "encode", taken * model.scale, "ms per 7.6e9", at_most=ENCODE_GOAL_MS[codec])
    encoded = encoder.encode()
    data = encoded.to_bytes(model.layout.hash)
    report.figure(name, "size", len(data) / int(extractor.changes.first[-1]), "B per changed element")
    return data


def bench_decode(report: Report, decoder: DeltaDecoder, codec: int, data: bytes, *, scale: float, repeat: int) -> None:
    """An object on the device to a checked staging list: parsing and size checks on the host included."""
    name, view = CODEC_NAMES[codec], memoryview(data)
    report.figure(name, "upload from pageable memory", median_ms(lambda: decoder.upload(view), repeat), "ms")
    stream = decoder.upload(view)
    taken = median_ms(lambda: decoder.decode_uploaded(view, stream), repeat)
    report.figure(name, "decode, parsing included", taken * scale, "ms per 7.6e9", at_most=DECODE_GOAL_MS[codec])
    read = decoder.reads[0]

    def kernels() -> None:
        read.launch()
        read.check()

    report.figure(name, "decode, kernels alone", median_ms(kernels, repeat) * scale, "ms per 7.6e9")
    report.figure(name, "parse and size checks on the host", median_ms(lambda: decoder.parse(view), repeat), "ms")


def bench_apply(report: Report, model: Model, decoder: DeltaDecoder, live: Bound, repeat: int) -> None:
    """List digest and scatter; then the full scrub."""
    changes = decoder.reads[0].changes
    sums = torch.zeros((model.section.num_pieces, 2), dtype=torch.int64, device="cuda")
    before, after = torch.zeros_like(sums), torch.zeros_like(sums)
    plan = digests.plan_tiles(model.section, live)
    digests.scrub(live, plan, before)
    digests.list_digest(changes, live, sums)
    digests.commit(changes, live, sums)
    digests.scrub(live, plan, after)
    if not torch.equal(before + sums, after) or not same_bits(model.old, model.new):
        raise SystemExit("decode and apply did not lead to the new state; apply is not timed")

    def apply() -> None:
        digests.list_digest(changes, live, sums)
        digests.commit(changes, live, sums)

    report.figure("apply", "scatter and list digest", median_ms(apply, repeat) * model.scale, "ms per 7.6e9",
                  at_most=APPLY_GOAL_MS)  # fmt: skip
    report.figure("scrub", "full digest", median_ms(lambda: digests.scrub(live, plan, after), repeat) * model.scale,
                  "ms per 7.6e9", at_most=SCRUB_GOAL_MS)  # fmt: skip


def peak_share(report: Report, model: Model, case: str, held: int) -> None:
    """The most memory in use beyond the states, as a part of the model."""
    share = (torch.cuda.max_memory_allocated() - held) / model.size_bytes
    report.figure(case, "peak extra memory", share, "of the model", at_most=MEMORY_GOAL)


def run(report: Report, layers: int, rate: float, repeat: int) -> None:
    """All figures."""
    check_bytes()
    model = make_model(layers, rate)
    copy_rate = copy_bytes_per_s(min(8 << 30, model.size_bytes), repeat)
    report.figure("copy", "device copy rate", copy_rate, "B/s")
    torch.cuda.empty_cache()
    held = torch.cuda.memory_allocated()
    live, snapshot = (bind(model.layout, model.section, state) for state in (model.new, model.old))
    objects = {}
    for codec in (CODEC_FAST, CODEC_TIGHT):
        extractor = Extractor(live, snapshot, density=DENSITY_ROOM)
        changed = extractor.run()
        check_digests(model, extractor)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        report.figure(CODEC_NAMES[codec], "density", changed / model.section.num_elements, "of the elements")
        objects[codec] = bench_encode(report, model, extractor, codec, repeat)
        peak_share(report, model, f"{CODEC_NAMES[codec]} encode", held)
        if codec == CODEC_TIGHT:
            bench_extract(report, model, extractor, copy_rate, repeat=repeat, case="bf16 against bf16")
        del extractor
    for codec, data in objects.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        decoder = DeltaDecoder(model.blocks, [snapshot])
        bench_decode(report, decoder, codec, data, scale=model.scale, repeat=repeat)
        peak_share(report, model, f"{CODEC_NAMES[codec]} decode", held)
        if codec == CODEC_TIGHT:
            bench_staging(report, model, decoder, data, repeat)
            decoder.decode(data)
            bench_apply(report, model, decoder, snapshot, repeat)
        del decoder


def run_masters(report: Report, rate: float, repeat: int) -> None:
    """fp32 masters against a bf16 snapshot."""
    model = make_model(6, rate, masters=True)
    copy_rate = copy_bytes_per_s(min(8 << 30, model.size_bytes), repeat)
    live = bind(model.layout, model.section, model.new, masters=True)
    extractor = Extractor(live, bind(model.layout, model.section, model.old), density=2 * DENSITY_ROOM)
    extractor.run()
    check_digests(model, extractor)
    bench_extract(report, model, extractor, copy_rate, repeat=repeat, case="fp32 masters against bf16")


def main() -> int:
    """Runs the benchmark; 2 where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--rate", type=float, default=1.05e-6)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("bench_gpu needs a CUDA device; there is none here.\n")
        return 2
    report = Report("gpu")
    run(report, arguments.layers, arguments.rate, arguments.repeat)
    run_masters(report, arguments.rate, arguments.repeat)
    bench_others(report, arguments.rate, arguments.repeat)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
