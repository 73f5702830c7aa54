"""Plans and launches of the digest kernels: which piece takes which kernel, with tables that are made once."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sync_runtime.delta.kernels import digest as kernels
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.sections import Section
from sync_runtime.tensors.digest import Digest

TILE_ROWS = 64
TILE_STEP = 1
TILE_COLS = 256
TILE_WARPS = 1
_ANY_SIZE, _ANY_TILES = 1024, 16
_LIST_SIZE, _LIST_PARTS = 512, 4
_ROW_KEYS = 1024
_WORD = 1 << 64


@dataclass(frozen=True)
class TilePlan:
    """How the pieces of a section are scrubbed."""

    unit_piece: torch.Tensor
    unit_row: torch.Tensor
    unit_col: torch.Tensor
    """int32[T] each: parts of regular tiles."""
    host_unit_block: NDArray[np.int64]
    """[T]: the block of each part, ascending."""
    key_first: torch.Tensor
    """int64[P]: where a piece's row keys begin."""
    key_table: torch.Tensor
    """int64[2, K]: row keys of A and of B."""
    others: torch.Tensor
    """int32: pieces that need `scrub_any`."""
    most_parts: int
    """The most programs that one of them needs."""


def is_regular(section: Section, *states: Bound) -> NDArray[np.bool_]:
    """Per piece: whether `tile_pass` can take it in all these states (aligned, whole words, one piece per block)."""
    shapes = section.piece_shape.cpu().numpy()
    counts = np.bincount(section.piece_block.cpu().numpy(), minlength=section.num_blocks)
    regular = (counts[section.piece_block.cpu().numpy()] == 1) & (shapes[:, 1] % 32 == 0)
    for state in states:
        size = state.memory_bits // 8
        address, down, across = state.host_pieces.T
        regular &= (address % 16 == 0) & (down * size % 16 == 0) & (across == 1)
    return np.asarray(regular, np.bool_)


def plan_tiles(section: Section, *states: Bound) -> TilePlan:
    """Parts of tiles and row keys, for states of one section that are read together."""
    regular = is_regular(section, *states)
    shapes = section.piece_shape.cpu().numpy().astype(np.int64)
    blocks = section.piece_block.cpu().numpy().astype(np.int64)
    units = []
    for piece in np.flatnonzero(regular):
        row, col = np.meshgrid(
            np.arange(0, shapes[piece, 0], TILE_ROWS), np.arange(0, shapes[piece, 1], TILE_COLS), indexing="ij"
        )
        units.append(np.stack([np.full(row.size, piece), row.ravel(), col.ravel()]))
    table = np.concatenate(units, axis=1) if units else np.zeros((3, 0), np.int64)
    key_first, key_table = _row_keys(section, regular)
    others = np.flatnonzero(~regular)
    most = int(shapes[others].prod(axis=1).max()) if others.size else 0
    device = section.device
    return TilePlan(
        unit_piece=torch.as_tensor(table[0].astype(np.int32), device=device),
        unit_row=torch.as_tensor(table[1].astype(np.int32), device=device),
        unit_col=torch.as_tensor(table[2].astype(np.int32), device=device),
        host_unit_block=blocks[table[0]],
        key_first=key_first,
        key_table=key_table,
        others=torch.as_tensor(others.astype(np.int32), device=device),
        most_parts=-(-most // (_ANY_SIZE * _ANY_TILES)),
    )


def _row_keys(section: Section, regular: NDArray[np.bool_]) -> tuple[torch.Tensor, torch.Tensor]:
    """Row keys of every tensor with a regular tile; tiles side by side share them."""
    tensors = section.piece_tensor.cpu().numpy()
    origins = section.piece_origin.cpu().numpy()
    shapes = section.piece_shape.cpu().numpy()
    first, owners, rows = np.zeros(len(tensors), np.int64), [], []
    total = 0
    seen: dict[tuple[int, int, int], int] = {}
    for piece in np.flatnonzero(regular):
        band = (int(tensors[piece]), int(origins[piece, 0]), int(shapes[piece, 0]))
        if band not in seen:
            seen[band] = total
            owners.append(np.full(band[2], piece, np.int64))
            rows.append(np.arange(band[1], band[1] + band[2], dtype=np.int64))
            total += band[2]
        first[piece] = seen[band]
    device = section.device
    table = torch.zeros((2, max(1, total)), dtype=torch.int64, device=device)
    if total:
        owner = torch.as_tensor(np.concatenate(owners), device=device)
        number = torch.as_tensor(np.concatenate(rows), device=device)
        kernels.row_keys[(-(-total // _ROW_KEYS),)](section.piece_keys, owner, number, table, total, _ROW_KEYS)
    return torch.as_tensor(first, device=device), table


def launch_tiles(
    plan: TilePlan, new: Bound, sums: torch.Tensor, units: range, *, old: Bound | None = None,
    mask: torch.Tensor | None = None, word_base: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Digest of regular tiles; with `old` also the mask of what differs."""
    section, other = new.section, old or new
    if not len(units):
        return
    kernels.tile_pass[(len(units),)](
        plan.unit_piece, plan.unit_row, plan.unit_col, units.start, section.piece_shape, section.piece_origin,
        section.piece_keys, plan.key_first, plan.key_table, plan.key_table.shape[1], sums, new.pieces.address,
        new.pieces.row_stride, other.pieces.address, other.pieces.row_stride, sums if mask is None else mask,
        sums if word_base is None else word_base, section.piece_block,
        WIDTH=section.dtype.width_bits, CAST=new.cast, NAN=new.nan_bits, COMPARE=old is not None, ROWS=TILE_ROWS,
        STEP=TILE_STEP, COLS=TILE_COLS, ALIGN=16 // section.dtype.width_bytes if not new.cast else 8,
        num_warps=TILE_WARPS,
    )  # fmt: skip


def launch_others(plan: TilePlan, state: Bound, sums: torch.Tensor) -> None:
    """Digest of the pieces that are not regular."""
    section = state.section
    if plan.others.numel():
        kernels.scrub_any[(plan.others.numel(), plan.most_parts)](
            plan.others, state.pieces.address, state.pieces.row_stride, state.pieces.col_stride, section.piece_shape,
            section.piece_origin, section.piece_keys, sums, WIDTH=section.dtype.width_bits, CAST=state.cast,
            NAN=state.nan_bits, SIZE=_ANY_SIZE, TILES=_ANY_TILES,
        )  # fmt: skip


def scrub(state: Bound, plan: TilePlan, sums: torch.Tensor) -> None:
    """The full digest of a state: int64[P, 2], a pair of words per piece."""
    sums.zero_()
    launch_tiles(plan, state, sums, range(int(plan.unit_piece.numel())))
    launch_others(plan, state, sums)


def list_digest(changes: ChangeList, live: Bound, sums: torch.Tensor) -> None:
    """What a list of new bits adds to the digests of the live state's pieces: O(changed)."""
    sums.zero_()
    _launch_list(changes, live, sums, digest=True)


def commit(changes: ChangeList, live: Bound, sums: torch.Tensor) -> None:
    """Writes a list of new bits into the live tensors. Doing it twice does nothing more."""
    _launch_list(changes, live, sums, store=True)


def add_differences(changes: ChangeList, state: Bound, sums: torch.Tensor) -> None:
    """Adds a list of differences to a state. To be done once."""
    _launch_list(changes, state, sums, add=True)


def _launch_list(
    changes: ChangeList, live: Bound, sums: torch.Tensor, *, digest: bool = False, store: bool = False,
    add: bool = False,
) -> None:  # fmt: skip
    section = live.section
    kernels.list_pass[(section.num_pieces, _LIST_PARTS)](
        changes.where, changes.value, changes.first, section.piece_block, section.piece_first, section.piece_shape,
        section.piece_origin, section.piece_keys, live.pieces.address, live.pieces.row_stride, live.pieces.col_stride,
        sums, WIDTH=section.dtype.width_bits, CAST=live.cast, DIGEST=digest, STORE=store, ADD=add, SIZE=_LIST_SIZE,
    )  # fmt: skip


def tensor_digests(section: Section, sums: torch.Tensor) -> dict[int, Digest]:
    """Digests (or changes of digests) per tensor, from the words per piece."""
    found: dict[int, Digest] = {}
    words = sums.cpu().numpy().view(np.uint64)
    for tensor, (a, b) in zip(section.piece_tensor.cpu().tolist(), words.tolist(), strict=True):
        found[tensor] = found.get(tensor, Digest(0, 0)).plus(Digest(a % _WORD, b % _WORD))
    return found


def block_digests(section: Section, sums: torch.Tensor) -> list[Digest]:
    """Digests per block of the section: what a repair compares."""
    totals = torch.zeros((section.num_blocks, 2), dtype=torch.int64, device=sums.device)
    totals.index_add_(0, section.piece_block.long(), sums)
    return [Digest(a % _WORD, b % _WORD) for a, b in totals.cpu().tolist()]
