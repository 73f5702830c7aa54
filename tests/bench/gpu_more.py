"""Figures without a goal: a delta over a staged one, a snapshot in pinned host memory, anchors."""

from __future__ import annotations

import numpy as np
import torch

from sync_runtime.codec.frame import END_RECORD, Header, pack_header, truncated_layout_hash
from sync_runtime.codec.gpu.anchor_read import decode_anchor
from sync_runtime.codec.gpu.anchors import AnchorBatch
from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.codec.limits import CODEC_ANCHOR, CODEC_FAST, CODEC_NAMES, CODEC_TIGHT, KIND_ANCHOR
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.delta.kernels.staging import DeviceStaging
from sync_runtime.delta.snapshot import DeviceSnapshot
from sync_runtime.tensors.device.bind import bind
from tests.bench.gpu_model import FULL_ELEMENTS, Model, make_model, median_ms
from tests.bench.report import Report

ANCHOR_BLOCKS = 512
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


def bench_others(report: Report, rate: float, repeat: int) -> None:
    """Anchors; extraction and encoding against a snapshot on the device and in pinned host memory."""
    model = make_model(PINNED_LAYERS, rate)
    bench_anchor(report, model)
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


def bench_anchor(report: Report, model: Model) -> None:
    """Some hundreds of blocks to records, and back from the host."""
    bound = bind(model.layout, model.section, model.new)
    bound.refresh()
    members = np.arange(min(ANCHOR_BLOCKS, model.section.num_blocks))
    elements = int(model.section.host_elements[members].sum())
    scale = FULL_ELEMENTS / elements
    batch = AnchorBatch(bound, members)
    report.figure("anchor", "encode", median_ms(lambda: batch.words(1), 3) * scale, "ms per 7.6e9")
    records = batch.records(1)
    report.figure("anchor", "size", len(records) / (2 * elements), "of raw")
    header = pack_header(Header(KIND_ANCHOR, CODEC_ANCHOR, truncated_layout_hash(model.layout.hash), 0))
    data = memoryview(header + records + END_RECORD)

    def decode() -> None:
        for decoded in decode_anchor(model.blocks, [bound], data):
            decoded.write()

    report.figure("anchor", "decode from pageable memory and write", median_ms(decode, 3) * scale, "ms per 7.6e9")
