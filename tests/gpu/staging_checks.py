"""Several staged deltas: the list on the device against the CPU's, entry by entry; then one scatter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.codec.gpu.walk import Cut
from sync_runtime.delta import naive
from sync_runtime.delta.apply import Staging
from sync_runtime.delta.kernels.staging import DeviceStaging
from sync_runtime.offline.objects import ObjectReader
from sync_runtime.tensors.bits import bind as bind_cpu
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.overlay import Overlay, plain_overlay
from sync_runtime.tensors.device.sections import UNIT_ELEMENTS, Section
from sync_runtime.tensors.digest import Digest, tensor_keys
from tests.gpu.checks import bases_of, entries_of, raw
from tests.gpu.support import Case, State, cpu_object, on, updated


def chain_of(case: Case, steps: int, density: float, seed: int) -> list[State]:
    """A case's states, and more that follow each other; many changes hit the same elements again."""
    rng = np.random.default_rng(seed)
    states = [case.old, case.new]
    while len(states) <= steps:
        states.append({name: updated(tensor, density, rng) for name, tensor in states[-1].items()})
    return states


def promised(case: Case, old: State, new: State) -> list[Digest]:
    """What a manifest says of each tensor."""
    found = []
    for spec in case.layout.tensors:
        before, after = (Digest(*naive.digest(state[spec.name], tensor_keys(spec))) for state in (old, new))
        found.append(after.minus(before))
    return found


def stage_on_cpu(case: Case, staging: Staging, data: bytes) -> None:
    """One delta into the CPU's list."""
    reader = ObjectReader(memoryview(data), case.blocks)
    for block, record in reader.records():
        current = staging.current(block)
        _, staged = staging.prepare(reader.decode(block, record, current), block, current)
        staging.add(block, staged)


def check_staging(case: Case, device: str, states: Sequence[State], codecs: Sequence[int]) -> None:
    """Every step's list equals the CPU's; live tensors change at the commit alone, and then to the last state."""
    live = on(device, states[0])
    bases = bases_of(case, device, live)
    decoder, staging = DeltaDecoder(case.blocks, bases), DeviceStaging(case.layout, bases)
    reference = Staging(case.blocks, bind_cpu(case.layout, states[0]))
    for number, (old, new) in enumerate(pairwise(states)):
        data = cpu_object(Case(case.layout, old, new), codecs[number % len(codecs)])
        stage_on_cpu(case, reference, data)
        staging.add(decoder.decode(data, staging.overlays()), promised(case, old, new))
        for base, changes in zip(bases, staging.lists, strict=True):
            _same_entries(base.section, changes, reference)
    for name, tensor in live.items():
        assert torch.equal(raw(tensor), raw(states[0][name])), f"{name} was written before the commit"
    assert staging.num_elements == reference.num_elements
    for _ in range(2):  # a commit that is repeated changes nothing
        staging.commit()
    for name, tensor in live.items():
        assert torch.equal(raw(tensor), raw(states[-1][name])), name


def _same_entries(section: Section, changes: ChangeList, reference: Staging) -> None:
    for at, block in enumerate(section.blocks):
        found = entries_of(changes, at, section.dtype.width_bits)
        staged = reference.staged.get(block.number)
        wanted = ([], []) if staged is None else (staged.positions.tolist(), staged.bits.tolist())
        assert found == wanted, f"block {block.number}"


def random_list(section: Section, rng: np.random.Generator, density: float) -> ChangeList:
    """Entries at random places, with random bits."""
    first, where = [0], []
    for size in section.host_elements:
        where.append(np.flatnonzero(rng.random(size) < density))
        first.append(first[-1] + where[-1].size)
    width = section.dtype.width_bits
    bits = (
        rng.integers(-(1 << (width - 1)), 1 << (width - 1), first[-1]) if width > 8 else rng.integers(0, 256, first[-1])
    )
    kind = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]
    return ChangeList(
        torch.tensor(first, dtype=torch.int64, device=section.device),
        torch.from_numpy(np.concatenate(where).astype(np.int32)).to(section.device),
        torch.from_numpy(bits).to(kind).to(section.device),
    )


def check_overlay(case: Case, device: str, staged_density: float, parts: int) -> None:
    """Part by part, blocks read as plain torch patches them, through addresses that block indices lead from."""
    rng = np.random.default_rng(4)
    for base in bases_of(case, device, on(device, case.old)):
        base.refresh()
        section, width = base.section, base.section.dtype.width_bytes
        over = Overlay(base, random_list(section, rng, staged_density))
        cut = Cut(section, parts)
        over.open(np.ones(section.num_blocks, bool), cut.host_part_units)
        assert over._slab.numel() <= int(cut.host_part_units.sum()) * UNIT_ELEMENTS
        for part in cut.parts:
            blocks = over.part(part.number).blocks
            for at in over._patched.tolist():
                size = int(cut.host_part_units[at]) * UNIT_ELEMENTS
                begin, end = part.number * size, min((part.number + 1) * size, int(section.host_elements[at]))
                place = (int(blocks.address[at]) - over._slab.data_ptr()) // width
                found = over._slab[place + begin : place + max(begin, end)].long()
                wanted = plain_overlay(section, at, _block_bits(case, section, at).to(device), over.staged)
                assert torch.equal(found & ((1 << 8 * width) - 1), wanted[begin : max(begin, end)])


def _block_bits(case: Case, section: Section, at: int) -> torch.Tensor:
    parts = []
    for piece in section.blocks[at].pieces:
        spec = case.layout.tensors[piece.tensor]
        matrix = naive.raw_bits(case.old[spec.name]).reshape(spec.rows, spec.cols)
        rows = matrix[piece.row_start : piece.row_start + piece.num_rows]
        parts.append(rows[:, piece.col_start : piece.col_start + piece.num_cols].reshape(-1))
    return torch.cat(parts)
