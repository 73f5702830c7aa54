"""What must hold of ranks, snapshots, casts and deltas of files, on any device."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from sync_runtime.bucket.manifest import Manifest
from sync_runtime.codec.frame import END_RECORD, Record, pack_entry, parse_object
from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.codec.limits import CODEC_TIGHT, HEADER_BYTES
from sync_runtime.codec.tables import parse_tables
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.delta.snapshot import DeviceSnapshot
from sync_runtime.offline.device import write_device_diff
from sync_runtime.offline.staging import Comparison
from sync_runtime.offline.streams import write_diff
from sync_runtime.tensors.bits import bind as bind_cpu
from sync_runtime.tensors.device.bind import bind
from sync_runtime.tensors.device.sections import sections_of
from tests.gpu.checks import check_extraction, raw
from tests.gpu.support import Case, State, bound_pair, cpu_object, make_case, on

AWKWARD = (
    0x00000000, 0x00000001, 0x007FFFFF, 0x00007FFF, 0x00008000, 0x00018000, 0x33000000, 0x33000001, 0x337FFFFF,
    0x33800000, 0x33C00000, 0x38000000, 0x387FC000, 0x387FE000, 0x387FFFFF, 0x38800000, 0x3F808000, 0x3F818000,
    0x3F801000, 0x3F803000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001,
    0x7FA00000, 0x7FC00000, 0x7FC02000, 0x7FFFFFFF,
)  # fmt: skip
"""fp32 bits at the borders of rounding to bf16 and to fp16, infinities, quiet and signalling NaNs."""


def awkward_masters(device: str, count: int, seed: int) -> torch.Tensor:
    """fp32 of random bits, with every awkward value of both signs among them."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
    words = np.array(AWKWARD, np.uint32)
    bits[: 2 * words.size] = np.concatenate([words, words | np.uint32(1 << 31)])
    return torch.from_numpy(bits.view(np.int32)).view(torch.float32).to(device)


def check_masters(device: str, dtype: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """fp32 masters are compared as this device's own cast rounds them, NaNs included."""
    case = make_case([(name, dtype, shape) for name, shape in shapes.items()], 0.0)
    kind = case.old[next(iter(shapes))].dtype
    masters = {
        name: awkward_masters(device, int(np.prod(shape)), at).reshape(shape)
        for at, (name, shape) in enumerate(shapes.items())
    }
    case.new = {name: tensor.to(kind).cpu() for name, tensor in masters.items()}
    section = sections_of(case.blocks, device)[0]
    old = bind(case.layout, section, on(device, case.old))
    extractor = Extractor(bind(case.layout, section, masters, masters=True), old)
    assert extractor.run() > 0
    check_extraction(case, device, [extractor])


def check_ranks(case: Case, device: str, owned: Sequence[Sequence[int]]) -> None:
    """Ranks that own parts of one grid, under tables of summed histograms, write the records of a single rank."""
    whole = cpu_object(case, CODEC_TIGHT)
    encoders = []
    for numbers in owned:
        parts = []
        for section in sections_of(case.blocks, device, numbers):
            old, new = bound_pair(case, section, device)
            extractor = Extractor(new, old, slabs=2)
            extractor.run()
            parts.append(Part(old, new, extractor.changes, extractor.scratch))
        encoders.append(DeltaEncoder(case.blocks, parts, CODEC_TIGHT))
    histograms = [encoder.count() for encoder in encoders]
    summed = torch.stack([one.words for one in histograms]).sum(0)
    records: list[Record] = []
    for encoder, mine in zip(encoders, histograms, strict=True):
        mine.words.copy_(summed)
        data = encoder.encode(mine).to_bytes(case.layout.hash)
        header, tables, found = parse_object(memoryview(data))
        assert data[: HEADER_BYTES + header.tables_bytes] == whole[: HEADER_BYTES + len(tables)]
        records += found
        encoder.count()
        assert encoder.encode(given=parse_tables(tables, case.blocks.groups)).to_bytes(case.layout.hash) == data
    records.sort(key=lambda record: record.block)
    assert _joined(records) == whole[HEADER_BYTES + len(tables) :]


def _joined(records: Sequence[Record]) -> bytes:
    parts = []
    for one in records:
        parts.append(
            pack_entry(
                block=one.block, mode=one.mode, parameter=one.parameter, count=one.count, body_bytes=len(one.body)
            )
        )
        parts.append(bytes(one.body))
    return b"".join(parts) + END_RECORD


def check_snapshot(case: Case, device: str, states: Sequence[State], *, pinned: bool) -> None:
    """A snapshot that advances by what was extracted follows the states, whatever the live weights do meanwhile."""
    sections = sections_of(case.blocks, device)
    snapshot = DeviceSnapshot(case.layout, sections, pinned=pinned)
    snapshot.seed(on(device, states[0]))
    live = on(device, states[0])
    bounds = [bind(case.layout, section, live) for section in sections]
    extractors = [Extractor(new, old, slabs=2) for new, old in zip(bounds, snapshot.bounds, strict=True)]
    for old, new in pairwise(states):
        _overwrite(live, new)
        for extractor in extractors:
            extractor.run()
        step = Case(case.layout, old, new)
        check_extraction(step, device, extractors)
        parts = [Part(one.snapshot, one.live, one.changes, one.scratch) for one in extractors]
        assert DeltaEncoder(case.blocks, parts, CODEC_TIGHT).encode().to_bytes(case.layout.hash) == cpu_object(step, 2)
        _overwrite(live, states[0])  # training goes on before the version is durable
        snapshot.advance([one.changes for one in extractors])
        if device == "cuda":
            torch.cuda.synchronize()
        for name, tensor in snapshot.tensors.items():
            assert torch.equal(raw(tensor), raw(new[name])), name


def _overwrite(live: State, state: State) -> None:
    for name, tensor in live.items():
        tensor.copy_(state[name])


def device_diff(case: Case, codec: str, device: str) -> tuple[bytes, Manifest]:
    """A delta as the device writes it to a file, and its manifest."""
    states = bind_cpu(case.layout, case.old), bind_cpu(case.layout, case.new)
    sink = io.BytesIO()
    manifest = write_device_diff(sink, case.blocks, states, codec=codec, device=device, label="step 3")
    return sink.getvalue(), manifest


def check_device_diff(case: Case, device: str, codecs: Sequence[str] = ("fast", "tight", "auto")) -> None:
    """Object and manifest are the CPU's."""
    for codec in codecs:
        pair = Comparison(case.blocks, bind_cpu(case.layout, case.old), bind_cpu(case.layout, case.new))
        sink = io.BytesIO()
        manifest = write_diff(sink, pair, codec=codec, label="step 3")
        data, found = device_diff(case, codec, device)
        assert data == sink.getvalue(), codec
        assert found == manifest, codec
