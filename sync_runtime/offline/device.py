"""The delta of two states on disk, made on a GPU: where extraction and coder meet over files.

Tensors travel one by one, so the host holds about two of them; both states must fit the GPU's memory, with some room
for the delta. The bytes are those that the CPU writes. Needs torch and triton: only what was asked to use a GPU
imports this.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

import numpy as np
import torch

from sync_runtime.bucket.manifest import NO_LINEAGE, Manifest, Version
from sync_runtime.codec.frame import END_RECORD, Header, pack_header, truncated_layout_hash
from sync_runtime.codec.gpu.encode import DeltaEncoder
from sync_runtime.codec.gpu.lanes import Part
from sync_runtime.codec.limits import CODEC_AUTO, CODEC_FAST, KIND_DELTA
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.delta.kernels.scrub import TilePlan, scrub, tensor_digests
from sync_runtime.errors import SyncError
from sync_runtime.offline.deltafile import Ends, describe
from sync_runtime.offline.objects import Sink, Totals
from sync_runtime.offline.staging import per_tensor
from sync_runtime.offline.streams import Watch, codec_number
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import TORCH_DTYPES, Bound, bind
from sync_runtime.tensors.device.sections import Section, sections_of
from sync_runtime.tensors.digest import Digest, total
from sync_runtime.tensors.layout import Layout, TensorSpec

ROOM_SHARE = 0.06
"""Memory for lists, masks and records beside the two states, as a part of one: enough for some per cent of changes."""
_ROOM_BYTES = 64 << 20
_BESIDE = "; use --device cpu, the bytes are the same"


class DeviceError(SyncError):
    """There is no GPU, or not enough of its memory, for what was asked."""


class DeviceDiff(NamedTuple):
    """Two states on a device, extracted."""

    blocks: BlockMap
    extractors: tuple[Extractor, ...]
    """By section."""
    base: tuple[Digest, ...]
    changes: tuple[Digest, ...]
    """Per tensor: the base's digest, and what the new state adds to it."""


def write_device_diff(
    sink: Sink,
    blocks: BlockMap,
    states: tuple[Mapping[int, BitTensor], Mapping[int, BitTensor]],
    *,
    codec: str,
    device: str = "cuda",
    seqs: tuple[int, int] = (0, 1),
    lineage: str = NO_LINEAGE,
    label: str = "",
    watch: Watch = iter,
) -> Manifest:
    """Writes the delta from the first state to the second; returns its manifest. Raises DeviceError.

    `watch` passes the numbers of tensors through as they are taken.
    """
    number = codec_number(codec)
    check_room(blocks.layout, device)
    try:
        found = compare(blocks, states, device=device, watch=watch)
        totals = _write(sink, found, number)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"both states fit the GPU's memory, but not together with a delta of this size{_BESIDE}"
        ) from error
    origin = Version(seqs[0], total(found.base))
    return describe(blocks.layout, totals, Ends(origin, seqs[1], found.changes, lineage, label))


def check_room(layout: Layout, device: str) -> None:
    """Whether the device is there and can hold two states and what is made of them; raises DeviceError."""
    if torch.device(device).type != "cuda":
        return
    if not torch.cuda.is_available():
        raise DeviceError(f"torch finds no CUDA device here{_BESIDE}")
    size_bytes = sum(spec.numel * spec.dtype.width_bytes for spec in layout.tensors)
    wanted = int((2 + ROOM_SHARE) * size_bytes) + _ROOM_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    if wanted > free:
        raise DeviceError(
            f"both states and their delta need about {wanted / 2**30:.1f} GiB of GPU memory, "
            f"and {free / 2**30:.1f} GiB are free{_BESIDE}"
        )


def compare(
    blocks: BlockMap,
    states: tuple[Mapping[int, BitTensor], Mapping[int, BitTensor]],
    *,
    device: str,
    watch: Watch = iter,
) -> DeviceDiff:
    """Brings both states to the device, tensor by tensor, and extracts what differs."""
    layout = blocks.layout
    old: dict[str, torch.Tensor] = {}
    new: dict[str, torch.Tensor] = {}
    for at in watch(range(len(layout.tensors))):
        spec = layout.tensors[at]
        for held, state in zip((old, new), states, strict=True):
            held[spec.name] = uploaded(state[at], spec, device)
    extractors, base, after = [], [], []
    for section in sections_of(blocks, device):
        snapshot, live = bind(layout, section, old), bind(layout, section, new)
        extractor = Extractor(live, snapshot)
        extractor.run()
        extractors.append(extractor)
        base.append(_digests(section, snapshot, extractor.plan))
        after.append(tensor_digests(section, extractor.sums))
    before, now = (per_tensor(words, len(layout.tensors)) for words in (base, after))
    changes = tuple(there.minus(here) for there, here in zip(now, before, strict=True))
    return DeviceDiff(blocks, tuple(extractors), before, changes)


def uploaded(source: BitTensor, spec: TensorSpec, device: str) -> torch.Tensor:
    """A tensor of the layout's dtype and shape with the source's bits."""
    raw = torch.from_numpy(np.ascontiguousarray(source.matrix).reshape(-1).view(np.uint8))
    items = torch.empty(prod(spec.shape), dtype=TORCH_DTYPES[spec.dtype.name], device=device)
    if raw.numel():
        items.view(torch.uint8).copy_(raw)
    return items.view(spec.shape)


def _digests(section: Section, state: Bound, plan: TilePlan) -> dict[int, Digest]:
    sums = torch.zeros((section.num_pieces, 2), dtype=torch.int64, device=section.device)
    scrub(state, plan, sums)
    return tensor_digests(section, sums)


def _write(sink: Sink, found: DeviceDiff, codec: int) -> Totals:
    """The object's bytes to the sink, and what its manifest says of them."""
    written = hashlib.sha256()
    size_bytes = 0
    taken, num_blocks, pieces = _encoded(found, codec)
    for piece in pieces:
        sink.write(piece)
        written.update(piece)
        size_bytes += len(piece)
    num_changed = sum(int(one.changes.first[-1].item()) for one in found.extractors)
    return Totals(taken, size_bytes, written.hexdigest(), num_blocks, num_changed)


def _encoded(found: DeviceDiff, codec: int) -> tuple[int, int, Iterable[bytes]]:
    """(codec, named blocks, bytes). A layout without elements has no section and an object without records."""
    layout_hash = found.blocks.layout.hash
    if not found.extractors:
        taken = CODEC_FAST if codec == CODEC_AUTO else codec
        return taken, 0, [pack_header(Header(KIND_DELTA, taken, truncated_layout_hash(layout_hash), 0)), END_RECORD]
    parts = [Part(one.snapshot, one.live, one.changes, one.scratch) for one in found.extractors]
    encoder = DeltaEncoder(found.blocks, parts, codec)
    encoded = encoder.encode()
    return encoded.codec, encoder.num_named, encoded.pieces(layout_hash)
