"""Small models, their updates, and the CPU coder's bytes for them: what the kernels are compared with."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.delta.cpu import extract_block
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.offline.objects import Source, write_object
from sync_runtime.tensors.bits import bind as bind_cpu
from sync_runtime.tensors.bits import gather
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import Bound, bind
from sync_runtime.tensors.device.sections import Section, sections_of
from sync_runtime.tensors.layout import Layout, Shards, make_layout

State = dict[str, torch.Tensor]
TORCH_DTYPES = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I8": torch.int8, "U8": torch.uint8,
    "I32": torch.int32, "I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "BOOL": torch.bool, "F64": torch.float64, "I16": torch.int16, "C64": torch.complex64,
}  # fmt: skip


@dataclass
class Case:
    """A layout and two states of it."""

    layout: Layout
    old: State
    new: State

    @property
    def blocks(self) -> BlockMap:
        """The layout's blocks."""
        return BlockMap(self.layout)


def random_bits(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    """A tensor whose raw bits are uniform; bool holds 0 and 1."""
    kind = TORCH_DTYPES[dtype]
    size = torch.empty((), dtype=kind).element_size() * int(np.prod(shape, dtype=np.int64))
    raw = rng.integers(0, 256 if dtype != "BOOL" else 2, size, dtype=np.uint8)
    return torch.from_numpy(raw).view(kind).reshape(shape)


def weights(shape: tuple[int, ...], rng: np.random.Generator) -> torch.Tensor:
    """Gaussian bf16 weights."""
    return torch.from_numpy(np.asarray(rng.standard_normal(shape) * 0.02, np.float32)).to(torch.bfloat16)


def updated(old: torch.Tensor, density: float, rng: np.random.Generator, *, wild: float = 0.02) -> torch.Tensor:
    """Small steps at random places, some of them (`wild`) to any bits."""
    if not old.numel():
        return old.clone()
    flat = old.contiguous().reshape(-1).view(torch.uint8).numpy().copy()
    width = min(4, old.element_size())
    view = flat.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[width])
    changed = np.flatnonzero(rng.random(view.size) < density)
    if old.dtype == torch.bool:
        view[changed] ^= 1
    else:
        steps = np.clip(rng.geometric(0.6, changed.size), 1, 120) * rng.choice([-1, 1], changed.size)
        view[changed] += steps.astype(np.int64).astype(view.dtype)
        odd = changed[rng.random(changed.size) < wild]
        view[odd] = rng.integers(0, 1 << (8 * width), odd.size, dtype=np.uint64).astype(view.dtype)
    return torch.from_numpy(flat).view(old.dtype).reshape(old.shape)


def make_case(
    tensors: list[tuple[str, str, tuple[int, ...]]], density: float, *, seed: int = 0, block_elements: int = 1 << 16,
    shards: Mapping[str, Shards] | None = None,
) -> Case:  # fmt: skip
    """Random states of a layout."""
    rng = np.random.default_rng(seed)
    layout = make_layout(tensors, block_elements=block_elements, shards=shards)
    old = {
        spec.name: weights(spec.shape, rng)
        if spec.dtype.name == "BF16"
        else random_bits(spec.shape, spec.dtype.name, rng)
        for spec in layout.tensors
    }
    new = {name: updated(tensor, density, rng) for name, tensor in old.items()}
    return Case(layout, old, new)


def burst_case(rows: int = 64) -> Case:
    """One run of neighbours changes among many that do not: a lane then takes far more words than a decoder awaits."""
    case = make_case([("w", "BF16", (rows, 64))], 0.0)
    case.old["w"].fill_(1.0)
    case.new["w"] = case.old["w"].clone()
    case.new["w"].view(-1)[rows * 32 :][: rows // 2] = 1.0078125
    return case


def cpu_object(case: Case, codec: int) -> bytes:
    """The object as the CPU coder writes it."""
    old, new = bind_cpu(case.layout, case.old), bind_cpu(case.layout, case.new)
    source = Source(
        range(case.blocks.num_blocks),
        lambda block: extract_block(gather(block, old), gather(block, new), block.number),
        lambda block: gather(block, old),
    )
    sink = io.BytesIO()
    write_object(sink, case.blocks, codec, source)
    return sink.getvalue()


def on(device: str, state: State) -> State:
    """A copy of a state on a device."""
    return {name: tensor.clone().to(device) for name, tensor in state.items()}


def bound_pair(case: Case, section: Section, device: str) -> tuple[Bound, Bound]:
    """(old, new) of a section."""
    return bind(case.layout, section, on(device, case.old)), bind(case.layout, section, on(device, case.new))


def extractors(case: Case, device: str) -> list[Extractor]:
    """Extraction of every section, done."""
    found = []
    for section in sections_of(case.blocks, device):
        old, new = bound_pair(case, section, device)
        extractor = Extractor(new, old, slabs=2)
        extractor.run()
        found.append(extractor)
    return found


def gpu_object(case: Case, codec: int, device: str) -> bytes:
    """The object as the kernels write it."""
    parts = [Part(one.snapshot, one.live, one.changes, one.scratch) for one in extractors(case, device)]
    return DeltaEncoder(case.blocks, parts, codec).encode().to_bytes(case.layout.hash)
