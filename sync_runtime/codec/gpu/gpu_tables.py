"""Probability tables on the device (FORMAT.md, section 7): from histograms in integers, in the shapes kernels read.

Equal to `codec.tables`, which stays the reference and writes the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from sync_runtime.codec.rules import PROBABILITY_ONE, SAMPLE_EVERY
from sync_runtime.codec.tables import MAX_CLASSES, MAX_CONTEXTS, Tables
from sync_runtime.tensors.dtypes import BY_CODE

PairOfTables = tuple[torch.Tensor, dict[int, torch.Tensor]]


@dataclass(frozen=True)
class DeviceTables:
    """Tables of one object: positions of all groups, values of one dtype."""

    position: torch.Tensor
    """int32[G, 512]: probability of a change, of 2^15, by the context with the bits above it."""
    frequency: torch.Tensor
    """int64[256, 32]: of each class."""


def position_table(changed: torch.Tensor, elements: torch.Tensor, sampled: torch.Tensor) -> torch.Tensor:
    """p per group and context; int64[G, 256] each, sampled: bool[G]."""
    total = torch.where(sampled[:, None], elements * SAMPLE_EVERY + SAMPLE_EVERY // 2, elements)
    most = torch.maximum(torch.maximum(total, changed), torch.ones_like(total))
    scaled = torch.div(changed * PROBABILITY_ONE + (total >> 1), most, rounding_mode="floor")
    return torch.where(changed > 0, scaled.clamp(1, PROBABILITY_ONE - 1), 0).to(torch.int32)


def value_table(classes: torch.Tensor) -> torch.Tensor:
    """Frequencies per context; int64[256, 32]."""
    return normalised_rows(classes, PROBABILITY_ONE)


def normalised_rows(counts: torch.Tensor, one: int) -> torch.Tensor:
    """Frequencies that sum to `one` in every row with a count, none lost; int64[N, K]."""
    total, kinds = counts.sum(1, keepdim=True), (counts > 0).sum(1, keepdim=True)
    scaled = 1 + torch.div(counts * (one - kinds), total.clamp(min=1), rounding_mode="floor")
    found = torch.where(counts > 0, scaled, 0)
    width = counts.shape[1]
    lowest_first = width - 1 - torch.arange(width, device=counts.device)  # ties: argmax promises no order
    best = (counts * width + lowest_first).argmax(1, keepdim=True)
    missing = torch.where(total > 0, one - found.sum(1, keepdim=True), 0)
    return found.scatter_add(1, best, missing)


def position_entries(position: torch.Tensor) -> torch.Tensor:
    """int64[G, 2, 256] for the encoder: unchanged << 48 | f << 32 | floor(2^32 / f), unchanged first."""
    changed = position.to(torch.int64)
    f = torch.stack([PROBABILITY_ONE - changed, changed], 1)
    reciprocal = torch.div(torch.full_like(f, 1 << 32), f.clamp(min=1), rounding_mode="floor").clamp(max=(1 << 32) - 1)
    flag = torch.tensor([1 << 48, 0], dtype=torch.int64, device=position.device)[None, :, None]
    return (flag | (f << 32) | reciprocal).contiguous()


def class_entries(frequency: torch.Tensor) -> torch.Tensor:
    """int32[256, 32] for the encoder: f << 16 | start, as bits."""
    start = frequency.cumsum(1) - frequency
    return _wrapped((frequency << 16) | (start & 0xFFFF))


def class_starts(frequency: torch.Tensor) -> torch.Tensor:
    """int32[256, 33] for the decoder: starts, then 2^15; rows without a table hold 2^15 alone."""
    ends = frequency.cumsum(1)
    starts = torch.cat([torch.zeros_like(ends[:, :1]), ends], 1)
    return torch.where(ends[:, -1:] > 0, starts, PROBABILITY_ONE).to(torch.int32).contiguous()


def _wrapped(words: torch.Tensor) -> torch.Tensor:
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32).contiguous()


def to_tables(position: torch.Tensor, frequencies: dict[int, torch.Tensor]) -> Tables:
    """What `codec.tables` packs: groups and dtypes with at least one change."""
    rows = position.cpu().numpy().astype(np.uint32)
    values = {code: table.cpu().numpy().astype(np.uint32) for code, table in frequencies.items()}
    return Tables(
        position={group: row for group, row in enumerate(rows) if row.any()},
        value={code: table for code, table in values.items() if table.any()},
    )


def tables_on(tables: Tables, num_groups: int, codes: Iterable[int], device: torch.device) -> PairOfTables:
    """Parsed tables as the encoder has its own: positions of all groups, values by dtype code."""
    position = np.zeros((num_groups, MAX_CONTEXTS), np.int32)
    for group, row in tables.position.items():
        position[group] = row
    frequencies = {}
    for code in codes:
        table = tables.value.get(code, np.zeros((MAX_CONTEXTS, MAX_CLASSES), np.uint32))
        frequencies[code] = torch.as_tensor(table.astype(np.int64), device=device)
    return torch.as_tensor(position, device=device), frequencies


def from_tables(tables: Tables, num_groups: int, code: int, device: torch.device) -> DeviceTables:
    """Parsed tables on the device; what is missing is zero, under which nothing decodes."""
    contexts = BY_CODE[code].num_contexts
    position = np.zeros((max(1, num_groups), 2 * MAX_CONTEXTS), np.int32)
    for group, row in tables.position.items():
        position[group] = np.resize(row[:contexts], 2 * MAX_CONTEXTS)  # repeated, whatever stands above the context
    frequency = np.zeros((MAX_CONTEXTS, MAX_CLASSES), np.int64)
    if code in tables.value:
        table = tables.value[code]
        frequency[: table.shape[0], : table.shape[1]] = table
    return DeviceTables(torch.as_tensor(position, device=device), torch.as_tensor(frequency, device=device))
