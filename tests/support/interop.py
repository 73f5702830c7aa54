"""Checkpoints and deltas of other tools for tests: states that they can express, written without our writers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sync_runtime.offline import Delta, diff
from sync_runtime.offline.checkpoints import MappedState, open_checkpoint
from sync_runtime.offline.interop.checksums import BY_NAME
from sync_runtime.offline.interop.convert import Coding, export_delta, import_delta
from sync_runtime.offline.interop.positions import decode_rice, decode_u16, encode_rice, encode_u16
from sync_runtime.offline.interop.registry import FORMATS
from sync_runtime.tensors.bits import BitTensor, State
from tests.support.checkpoints import save_file
from tests.support.states import SPECIAL_BF16, compile_loops, noise, stepped, tensor, weights

EVERY_VARIANT = [(name, variant) for name, entry in FORMATS.items() for variant in entry.variants]


class Case(NamedTuple):
    """Two states on disk and the delta between them."""

    base: Path
    new: Path
    delta: Delta


def bf16_state(seed: int = 1) -> dict[str, BitTensor]:
    """What every format can express: bf16 with two dimensions, three, one; nothing, and one element."""
    return {
        "model.embed.weight": weights((130, 33), seed),
        "model.empty": tensor("BF16", (0, 4), np.zeros(0, np.uint16)),
        "model.layers.0.experts": weights((3, 5, 7), seed + 1),
        "model.layers.0.norm": weights((64,), seed + 2),
        "model.one": weights((1,), seed + 3),
        "model.special": tensor("BF16", (len(SPECIAL_BF16), len(SPECIAL_BF16)), _crossed()[0]),
    }


def bf16_next(state: State, seed: int = 7, per_mille: int = 60) -> dict[str, BitTensor]:
    """One update later; the special patterns go each into each."""
    after = {name: stepped(bits, seed + at, per_mille, 300) for at, (name, bits) in enumerate(sorted(state.items()))}
    after["model.special"] = tensor("BF16", state["model.special"].shape, _crossed()[1])
    return after


def mixed_state(seed: int = 1) -> dict[str, BitTensor]:
    """Other dtypes, among them items of eight bytes, and a scalar."""
    return bf16_state(seed) | {
        "count": tensor("I64", (), noise(2, seed + 4).astype(np.uint32)),
        "codes": tensor("F8_E4M3", (3, 5), noise(15, seed + 3).astype(np.uint8)),
        "router.bias": tensor("F32", (9,), noise(9, seed + 2).astype(np.uint32)),
        "scale": tensor("BF16", (), np.array([0x8000], np.uint16)),
        "wide": tensor("F64", (4, 3), noise(24, seed + 5).astype(np.uint32)),
    }


def saved(folder: Path, before: State, after: State) -> Case:
    """Both states as files, and their delta."""
    base = save_file(folder / "base.safetensors", before)
    new = save_file(folder / "new.safetensors", after)
    return Case(base, new, diff(before, after, codec="fast", seqs=(4, 5), threads=1))


def exported(case: Case, output: Path, name: str, variant: str | None = None, **meta: str) -> Path:
    """The delta in another tool's format."""
    wanted = FORMATS[name]
    chosen = variant or wanted.variants[0]
    export_delta(open_checkpoint(case.base), case.delta, output, wanted, variant=chosen, meta=meta, threads=1)
    return output


def imported(base: Path, foreign: Path, output: Path, name: str) -> Path:
    """Another tool's delta as ours."""
    import_delta(open_checkpoint(base), FORMATS[name].read(foreign), output, Coding("fast", threads=1))
    return output


def read_state(path: Path) -> dict[str, BitTensor]:
    """A checkpoint's tensors."""
    checkpoint = open_checkpoint(path)
    layout = checkpoint.layout()
    state = MappedState(checkpoint, layout)
    return {spec.name: state[at] for at, spec in enumerate(layout.tensors)}


def _crossed() -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint16]], ...]:
    patterns = np.array(SPECIAL_BF16, np.uint16)
    return np.repeat(patterns, patterns.size), np.tile(patterns, patterns.size)


@cache
def compile_interop_loops() -> None:
    """Runs every compiled loop of the formats once."""
    compile_loops()
    data = noise(1000, 1).view(np.uint8)
    for checksum in BY_NAME.values():
        checksum(data)
    positions = np.array([1, 5, 1 << 20], np.int64)
    decode_u16(memoryview(encode_u16(positions)), 3, 1 << 21, "loops")
    decode_rice(memoryview(encode_rice(positions)), 3, 1 << 21, "loops")
