"""Figures without a goal: a delta over a staged one, and a snapshot in pinned host memory."""

from __future__ import annotations

import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.codec.limits import CODEC_FAST, CODEC_NAMES, CODEC_TIGHT
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.delta.kernels.staging import DeviceStaging
from sync_runtime.delta.snapshot import DeviceSnapshot
from sync_runtime.tensors.device.bind import bind
from tests.bench.gpu_model import Model, make_model, median_ms
from tests.bench.report import Report

PINNED_LAYERS = 6
"""Pinned host memory is slow to get and often scarce; times are scaled."""


def bench_staging(report: Report, model: Model, decoder: DeltaDecoder, data: bytes, repeat: int) -> None:
    """The way back, decoded over the staged way there, and folded into it: live weights are those of before."""
    base = decoder.reads[0].base
    extractor = Extractor(base, bind(model.layout, model.section, model.new))
    extractor.run()
    part = Part(extractor.snapshot, extractor.live, extractor.changes, extractor.scratch)
    back = memoryview(DeltaEncoder(model.blocks, [part], CODEC_TIGHT).encode().to_bytes(model.layout.hash))
    del extractor, part
    torch.cuda.empty_cache()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    staging = DeviceStaging(model.layout, [base])
    staging.accept(staging.fold(decoder.decode(data)))
    stream, overlays = decoder.upload(back), staging.overlays()
    taken = median_ms(lambda: decoder.decode_uploaded(back, stream, overlays), repeat)
    report.figure("staged twice", "decode tight over a staged delta", taken * model.scale, "ms per 7.6e9")
    lists = decoder.decode_uploaded(back, stream, overlays)
    folding = median_ms(lambda: staging.fold(lists), repeat)
    report.figure("staged twice", "fold and list digest", folding * model.scale, "ms per 7.6e9")
    candidate = staging.fold(lists)
    if candidate.sums[0].any():
        raise SystemExit("there and back again is not where it began")
    share = (torch.cuda.max_memory_allocated() - held) / model.size_bytes
    report.figure("staged twice", "peak extra memory", share, "of the model")


def bench_pinned(report: Report, rate: float, repeat: int) -> None:
    """Extraction and encoding against a snapshot on the device and in pinned host memory."""
    model = make_model(PINNED_LAYERS, rate)
    for pinned in (False, True):
        _bench_snapshot(report, model, pinned=pinned, repeat=repeat)
        torch.cuda.empty_cache()


def _bench_snapshot(report: Report, model: Model, *, pinned: bool, repeat: int) -> None:
    case = "snapshot in pinned host memory" if pinned else "snapshot on the device"
    snapshot = DeviceSnapshot(model.layout, [model.section], pinned=pinned)
    snapshot.seed(model.old)
    extractor = Extractor(bind(model.layout, model.section, model.new), snapshot.bounds[0])
    taken = median_ms(extractor.run, repeat)
    report.figure(case, "extraction and list of changes", taken * model.scale, "ms per 7.6e9")
    for codec in (CODEC_FAST, CODEC_TIGHT):
        part = Part(extractor.snapshot, extractor.live, extractor.changes, extractor.scratch)
        encoder = DeltaEncoder(model.blocks, [part], codec)
        taken = median_ms(encoder.encode, repeat)
        report.figure(
            case, f"encode {CODEC_NAMES[codec]} after extraction", taken * model.scale, "ms per 7.6e9"
        )  # fmt: skip
    snapshot.advance([extractor.changes])
    torch.cuda.synchronize()
    for name, tensor in snapshot.tensors.items():
        if not torch.equal(tensor.to("cuda").view(torch.int16), model.new[name].view(torch.int16)):
            raise SystemExit(f"the snapshot did not advance to the new state: {name}")
    taken = median_ms(lambda: snapshot.advance([extractor.changes]), repeat)
    report.figure(case, "advance", taken * model.scale, "ms per 7.6e9")
