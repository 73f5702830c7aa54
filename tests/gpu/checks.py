"""What must hold of the kernels on any device: run on the GPU in full, under Triton's interpreter in small."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.delta import naive
from sync_runtime.delta.kernels import scrub as digests
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.errors import FormatError
from sync_runtime.offline.objects import ObjectReader
from sync_runtime.tensors.bits import bind as bind_cpu
from sync_runtime.tensors.bits import gather
from sync_runtime.tensors.device.bind import Bound, bind
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.sections import sections_of
from sync_runtime.tensors.digest import tensor_keys
from tests.gpu.support import Case, State, cpu_object, extractors, gpu_object, on

POSITION = 0xFFFFFF


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes."""
    if tensor.numel() == 0:  # its stride may be 0, which `view` refuses on some releases
        return torch.empty(0, dtype=torch.uint8)
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def entries_of(changes: ChangeList, at: int, width_bits: int) -> tuple[list[int], list[int]]:
    """Positions and values of a block's part of a list."""
    begin, end = int(changes.first[at]), int(changes.first[at + 1])
    where = changes.where[begin:end].cpu().long() & POSITION
    return where.tolist(), (changes.value[begin:end].cpu().long() & ((1 << width_bits) - 1)).tolist()


def check_extraction(case: Case, device: str, runs: list[Extractor] | None = None) -> None:
    """Lists and digests of extraction equal plain torch, block by block and tensor by tensor."""
    old, new = bind_cpu(case.layout, case.old), bind_cpu(case.layout, case.new)
    for extractor in runs or extractors(case, device):
        section = extractor.section
        for at, block in enumerate(section.blocks):
            before, after = (torch.from_numpy(gather(block, state).astype(np.int64)) for state in (old, new))
            places = (before != after).nonzero().reshape(-1)
            steps = (after - before)[places] & ((1 << section.dtype.width_bits) - 1)
            assert entries_of(extractor.changes, at, section.dtype.width_bits) == (places.tolist(), steps.tolist())
        found = digests.tensor_digests(section, extractor.sums)
        for number, words in found.items():
            spec = case.layout.tensors[number]
            assert naive.digest(case.new[spec.name], tensor_keys(spec)) == tuple(words), spec.name
        total = digests.block_digests(section, extractor.sums)
        assert sum(word.a for word in total) % (1 << 64) == sum(word.a for word in found.values()) % (1 << 64)


def check_bytes(case: Case, device: str, codecs: Iterable[int] = (1, 2, 3)) -> None:
    """Objects equal the CPU coder's byte for byte."""
    for codec in codecs:
        assert gpu_object(case, codec, device) == cpu_object(case, codec), f"codec {codec}"


def bases_of(case: Case, device: str, state: State) -> list[Bound]:
    """A state bound for decoding, section by section."""
    return [bind(case.layout, section, state) for section in sections_of(case.blocks, device)]


def check_decoding(case: Case, device: str, codecs: Iterable[int] = (1, 2)) -> None:
    """Decode, check the list's digest against two scrubs, apply twice: the new state, bit for bit."""
    for codec in codecs:
        live = on(device, case.old)
        bases = bases_of(case, device, live)
        lists = DeltaDecoder(case.blocks, bases).decode(cpu_object(case, codec))
        for base, changes in zip(bases, lists, strict=True):
            plan = digests.plan_tiles(base.section, base)
            before, step, after = (
                torch.zeros((base.section.num_pieces, 2), dtype=torch.int64, device=device) for _ in range(3)
            )
            digests.scrub(base, plan, before)
            digests.list_digest(changes, base, step)
            for _ in range(2):  # a commit that is repeated changes nothing
                digests.commit(changes, base, step)
            digests.scrub(base, plan, after)
            assert torch.equal(before + step, after)
        for name, tensor in live.items():
            assert torch.equal(raw(tensor), raw(case.new[name])), f"codec {codec}, {name}"


def cpu_lists(case: Case, data: bytes) -> dict[int, tuple[list[int], list[int]]] | None:
    """What the CPU decoder makes of bytes: positions and new bits by block, or None where it refuses them."""
    blocks, old = case.blocks, bind_cpu(case.layout, case.old)
    try:
        reader = ObjectReader(memoryview(data), blocks)
        found = {}
        for block, record in reader.records():
            bits = gather(block, old)
            delta = reader.decode(block, record, bits)
            new = bits[delta.positions] + delta.differences.astype(bits.dtype)
            found[record.block] = (delta.positions.tolist(), new.tolist())
    except FormatError:
        return None
    return found


def check_hostile(case: Case, device: str, mutants: Iterable[bytes]) -> tuple[int, int]:
    """Mutants are refused, or decoded to what the CPU decodes them to; returns how many of each."""
    decoder = DeltaDecoder(case.blocks, bases_of(case, device, on(device, case.old)))
    refused = taken = 0
    for data in mutants:
        expected = cpu_lists(case, data)
        try:
            lists = decoder.decode(data)
        except FormatError:
            assert expected is None, "the GPU refuses what the CPU takes"
            refused += 1
            continue
        assert expected is not None, "the GPU takes what the CPU refuses"
        taken += 1
        for read, changes in zip(decoder.reads, lists, strict=True):
            for at, block in enumerate(read.section.blocks):
                found = entries_of(changes, at, read.section.dtype.width_bits)
                assert found == expected.get(block.number, ([], []))
    return refused, taken


def mutants_of(data: bytes, count: int, seed: int) -> Iterable[bytes]:
    """Bit flips, byte changes and cut ends."""
    rng = np.random.default_rng(seed)
    for kind in rng.integers(0, 3, count):
        changed = bytearray(data)
        place = int(rng.integers(0, len(data)))
        if kind == 0:
            changed[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            changed[place] = int(rng.integers(0, 256))
        else:
            changed = changed[:place]
        yield bytes(changed)
