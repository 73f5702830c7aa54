"""A subscriber whose weights are on a GPU: decodes, checks, folds and scatters there.

Decoding runs on a stream of its own while the engine generates; live weights are only read. A version is handed out as
a layer once its list leads to the promised digest. Digests of all pieces are kept as they should be, so that a scrub
can name the blocks that differ without asking anyone.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.delta.kernels.scrub import block_digests, commit, list_digest, tensor_digests
from sync_runtime.errors import DigestError, LayoutError
from sync_runtime.library.coders import Opening, Receiver
from sync_runtime.library.device_anchors import block_bits, write_block
from sync_runtime.library.device_receive import Layer, receiver_for
from sync_runtime.library.device_state import LiveState, Sums, new_sums, on_device
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.messages import Scrub, Stage
from sync_runtime.local.ranges import to_ranges
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.device.bind import BITS_OF_WIDTH
from sync_runtime.tensors.device.fold import folded
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.overlay import Overlay
from sync_runtime.tensors.device.sections import Section, sections_of
from sync_runtime.tensors.digest import ZERO, Digest

Entries = Mapping[int, tuple[torch.Tensor, torch.Tensor]]
"""Per block number: positions (int32) and bits."""


class DeviceSubscriber:
    """Live weights on a device, and what leads on from them."""

    def __init__(self, weights: Weights) -> None:
        self._weights, device = weights, weights.device
        holding = weights.holding
        self._counted = frozenset(holding.counted)
        self._sections = sections_of(weights.blocks, device, (*holding.counted, *holding.copies))
        if not self._sections:
            raise LayoutError("the model, or this rank's part of it, has no elements")
        self._live = LiveState(weights, self._sections, writable=True)
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._written = torch.cuda.current_stream(device).record_event() if self._side is not None else None
        """When the live weights were last written, on the writer's stream."""
        self._using = threading.Lock()
        """One of decoding and writing at a time: a list's digest is taken against live bits."""
        self._expected: Sums = ()
        self._after: tuple[Layer, Sums] | None = None
        """Digest words that a layer leads to, while it is being written."""
        self._mended: set[int] = set()
        """Blocks whose right bits are in a layer that is not written yet: what is live there is known to be wrong."""
        self._last_fold: tuple[Layer, Layer, Layer] | None = None
        self._decoder: DeltaDecoder | None = None
        self._share = ZERO

    def opening(self) -> Opening:
        """The full digest of the live weights, which become what is expected."""
        with self._reading():
            self._mended.clear()
            self._expected = self._live.sums()
            digests = self._block_digests(self._expected) if self._weights.is_part else ""
            return Opening((str(self._total(self._expected)),), None, digests)

    def share(self) -> str | None:
        """What this rank's blocks add to the digest of the version received last; None: there are no other ranks."""
        return str(self._share) if self._weights.is_part else None

    def receive(self, stage: Stage) -> Receiver:
        """An object on its way in."""
        return receiver_for(self, self._weights, stage)

    def fold(self, earlier: Layer, later: Layer) -> Layer:
        """One list of two, by section."""
        last = self._last_fold
        if last is not None and last[0] is earlier and last[1] is later:
            return last[2]
        with self._reading():
            return self._folded(earlier, later)

    def apply(self, layer: Layer) -> None:
        """One scatter per section, on the caller's stream; done when this returns."""
        device = self._weights.device
        with self._using, on_device(device):
            self._look()
            if self._after is None or self._after[0] is not layer:
                steps = zip(self._base_sums(), self._list_sums(layer), strict=True)
                self._after = (layer, tuple(before + step for before, step in steps))
            for bound, changes in zip(self._live.bounds, layer, strict=True):
                commit(changes, bound, new_sums(bound.section))
            self._expected, self._after = self._after[1], None
            self._mended.clear()
            if self._side is not None:
                self._written = torch.cuda.current_stream(device).record_event()

    def scrub(self, version: Version) -> tuple[Scrub, Iterable[memoryview]]:
        """The full digest, and the blocks whose own is not what it should be."""
        with self._reading():
            found = self._live.sums()
            wrong: set[int] = set()
            for section, words, expected in zip(self._sections, found, self._expected, strict=True):
                pieces = (words != expected).any(dim=1)
                wrong.update(section.numbers[section.piece_block.long()[pieces]].tolist())
            digest = str(self._total(found))
        return Scrub(version.lineage, version.seq, digest, to_ranges(sorted(wrong)), False), ()

    # --- what receivers hand their bytes to --------------------------------------------------------------------------

    def decode(self, data: memoryview, under: Layer | None, step: Digest) -> Layer:
        """A delta's list over what is staged; raises DigestError where it does not add `step` to the digest."""
        with self._reading():
            if self._decoder is None:
                self._decoder = DeltaDecoder(self._weights.blocks, self._live.bounds)
            over = None
            if under is not None:
                over = [Overlay(bound, one) for bound, one in zip(self._live.bounds, under, strict=True)]
            made = tuple(_copied(one) for one in self._decoder.decode(data, over))
            whole = made if under is None else self._folded(under, made)
            reached = self._total(self._list_sums(whole))
            found = reached if under is None else reached.minus(self._total(self._list_sums(under)))
            if self._weights.is_part:
                self._share = self._total(self._base_sums()).plus(reached)
            elif found != step:
                raise DigestError("the delta does not lead to the promised digest: its bytes or its base are wrong")
            self._last_fold = None if under is None else (under, made, whole)
            return made

    def write(self, block: Block, bits: torch.Tensor) -> None:
        """A block of whole weights, into the live tensors."""
        with self._reading():
            places = self._weights.places
            write_block(self._weights.blocks, self._live.state(), block, bits.to(self._weights.device), places)

    def check_whole(self, promised: str) -> Layer:
        """Whole weights have come: raises DigestError where they are not the version; nothing else is to be written."""
        with self._reading():
            self._expected = self._live.sums()
            self._share = self._total(self._expected)
            if str(self._share) != promised and not self._weights.is_part:
                raise DigestError("the whole weights that came do not have the version's digest")
            return self._layer({})

    def repair(self, blocks: list[tuple[Block, torch.Tensor]]) -> Layer:
        """What differs between the live weights and blocks as they should be."""
        entries = {}
        with self._reading():
            for block, bits in blocks:
                right = bits.to(self._weights.device)
                here = block_bits(self._weights.blocks, self._live.state(), block, self._weights.places)
                places = (here != right).nonzero().reshape(-1)
                if places.numel():
                    entries[block.number] = (places.to(torch.int32), right[places])
            self._mended.update(block.number for block, _ in blocks)
            return self._layer(entries)

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """On the side stream, after what was last written; tensors are looked up anew."""
        with self._using:
            if self._side is not None and self._written is not None:
                self._side.wait_event(self._written)
            with on_device(self._weights.device, self._side):
                self._look()
                yield

    def _look(self) -> None:
        if self._live.refresh():
            self._decoder = None

    def _folded(self, earlier: Layer, later: Layer) -> Layer:
        pairs = zip(self._sections, earlier, later, strict=True)
        return tuple(folded(section, before, after) for section, before, after in pairs)

    def _list_sums(self, layer: Layer) -> Sums:
        found = []
        for bound, changes in zip(self._live.bounds, layer, strict=True):
            words = new_sums(bound.section)
            list_digest(changes, bound, words)
            found.append(words)
        return tuple(found)

    def _base_sums(self) -> Sums:
        """The digest words that a list leads on from: as they should be, but where it mends wrong bits as they are."""
        if not self._mended:
            return self._expected
        found = []
        for section, live, expected in zip(self._sections, self._live.sums(), self._expected, strict=True):
            mended = torch.tensor([block.number in self._mended for block in section.blocks], device=section.device)
            pieces = mended[section.piece_block.long()]
            found.append(torch.where(pieces[:, None], live, expected))
        return tuple(found)

    def _total(self, sums: Sums) -> Digest:
        found = ZERO
        for section, words in zip(self._sections, sums, strict=True):
            if self._weights.is_part:  # other ranks count what is a copy here
                for block, digest in zip(section.blocks, block_digests(section, words), strict=True):
                    found = found.plus(digest) if block.number in self._counted else found
                continue
            for digest in tensor_digests(section, words).values():
                found = found.plus(digest)
        return found

    def _block_digests(self, sums: Sums) -> str:
        """Of all blocks here: those that it counts, then its copies."""
        found: dict[int, Digest] = {}
        for section, words in zip(self._sections, sums, strict=True):
            numbers = (block.number for block in section.blocks)
            found.update(zip(numbers, block_digests(section, words), strict=True))
        holding = self._weights.holding
        return "".join(str(found[number]) for number in (*holding.counted, *holding.copies))

    def _layer(self, entries: Entries) -> Layer:
        return tuple(_list_of(section, entries) for section in self._sections)


def _list_of(section: Section, entries: Entries) -> ChangeList:
    """A list with the entries of some blocks."""
    here = [entries[block.number] for block in section.blocks if block.number in entries]
    counts = [int(entries[one.number][0].numel()) if one.number in entries else 0 for one in section.blocks]
    return ChangeList(
        first=torch.tensor([0, *np.cumsum(counts).tolist()], dtype=torch.int64, device=section.device),
        where=torch.cat([torch.empty(0, dtype=torch.int32, device=section.device), *(one[0] for one in here)]),
        value=torch.cat([
            torch.empty(0, dtype=BITS_OF_WIDTH[section.dtype.width_bits], device=section.device),
            *(one[1] for one in here),
        ]),
    )  # fmt: skip


def _copied(changes: ChangeList) -> ChangeList:
    """A decoder's list, kept: the decoder overwrites its own."""
    size = int(changes.first[-1].item())
    return ChangeList(changes.first.clone(), changes.where[:size].clone(), changes.value[:size].clone())
