"""Anchors on a device against the CPU's: bytes, bits, versions, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np
import torch

from sync_runtime.codec.frame import parse_object
from sync_runtime.codec.gpu.anchor_read import decode_anchor
from sync_runtime.codec.gpu.anchors import encode_anchor
from sync_runtime.codec.limits import MODE_PACKED, MODE_RAW
from sync_runtime.errors import FormatError
from sync_runtime.offline.anchors import read_anchor, write_anchor
from sync_runtime.tensors.bits import bind as bind_cpu
from tests.gpu.checks import bases_of, raw
from tests.gpu.support import Case, on

SEQ = (7 << 40) | 0xFFFFFFF5


def gaussian(case: Case, seed: int = 0) -> Case:
    """The case with new floats that are like weights: their exponents can be packed, random bits cannot."""
    rng = np.random.default_rng(seed)
    for name, tensor in case.new.items():
        if tensor.is_floating_point():
            values = torch.from_numpy(np.asarray(rng.standard_normal(tensor.shape) * 0.02, np.float32))
            case.new[name] = values.to(tensor.dtype)
    return case


def cpu_anchor(case: Case) -> bytes:
    """The anchor of the new state as the CPU writes it."""
    sink = io.BytesIO()
    write_anchor(sink, case.blocks, bind_cpu(case.layout, case.new), seq=SEQ)
    return sink.getvalue()


def check_anchor(case: Case, device: str, *, batch_elements: int) -> set[int]:
    """Bytes are the CPU's; decoded over the old state they make the new one. Returns the modes that occurred."""
    wanted = cpu_anchor(case)
    made = b"".join(
        encode_anchor(case.blocks, bases_of(case, device, on(device, case.new)), seq=SEQ, batch_elements=batch_elements)
    )
    assert made == wanted
    live = on(device, case.old)
    seen: list[int] = []
    bases = bases_of(case, device, live)
    for decoded in decode_anchor(case.blocks, bases, memoryview(wanted), batch_elements=batch_elements):
        assert (decoded.seqs == SEQ).all()
        seen += decoded.numbers.tolist()
        decoded.write()
    assert sorted(seen) == list(range(case.blocks.num_blocks))
    for name, tensor in live.items():
        assert torch.equal(raw(tensor), raw(case.new[name])), name
    return {record.mode for record in parse_object(memoryview(wanted))[2]} & {MODE_PACKED, MODE_RAW}


def check_hostile_anchors(case: Case, device: str, mutants: Iterable[bytes]) -> tuple[int, int]:
    """Mutants are refused, or decoded to what the CPU decodes them to; returns how many of each."""
    bases = bases_of(case, device, on(device, case.old))
    refused = taken = 0
    for data in mutants:
        try:
            expected = {block.number: (seq, bits) for block, seq, bits in read_anchor(memoryview(data), case.blocks)}
        except FormatError:
            expected = None
        found: dict[int, tuple[int, list[int]]] | None = {}
        try:
            for decoded in decode_anchor(case.blocks, bases, memoryview(data)):
                mask = (1 << decoded.bound.section.dtype.width_bits) - 1
                for at, number in enumerate(decoded.numbers.tolist()):
                    bits = (decoded.bits(at).long() & mask).tolist()
                    found[number] = int(decoded.seqs[at]), bits  # type: ignore[index]
        except FormatError:
            found = None
        assert (found is None) == (expected is None), "CPU and GPU judge differently"
        if found is None or expected is None:
            refused += 1
            continue
        taken += 1
        assert found.keys() == expected.keys()
        for number, (seq, values) in found.items():
            assert seq == expected[number][0]
            assert np.array_equal(np.array(values), expected[number][1])
    return refused, taken
