"""Sparse safetensors as Hugging Face's TRL writes them for its delta synchronisation.

    v1          `{name}.indices` int32, `{name}.values`; the first releases add a SHA-256 of the whole new state
    raw         `{name}.idx` int32, `{name}.val`
    gap_delta   `{name}.idx` gaps to the previous index, less one, as uint16 or uint32; `{name}.val`

Values are absolute, so a file says nothing about its base: the checkpoint that it starts from must be known. Anchors
are plain checkpoints: the format `dense-safetensors`. The encoding `nvcomp_cascaded` needs a GPU library: refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sync_runtime.errors import DigestError, FormatError, LimitError, UnknownFormatError
from sync_runtime.offline.durable import durable_file
from sync_runtime.offline.interop.container import (
    Container,
    Part,
    Stored,
    by_alignment,
    open_container,
    write_container,
)
from sync_runtime.offline.interop.items import (
    I64,
    changed_positions,
    check_count,
    check_dtype,
    check_positions,
    items_of,
    num_items,
    overwritten,
    raw_bytes,
)
from sync_runtime.offline.interop.model import NOTHING_CHECKED, Foreign, Origin
from sync_runtime.offline.interop.target import Export, Pair, Written
from sync_runtime.tensors.bits import BitTensor

VARIANTS = ("gap_delta", "raw", "v1")
_FORMAT = "sparse_weight_patch"
_MAX_INDEX = (1 << 31) - 1


class _Suffixes(NamedTuple):
    position: str
    value: str


_V1, _V2 = _Suffixes(".indices", ".values"), _Suffixes(".idx", ".val")
_INDEX_DTYPES = {"v1": ("I32",), "raw": ("I32",), "gap_delta": ("U16", "U32")}


class TrlPatch(Foreign):
    """An opened file."""

    def __init__(self, container: Container, what: str) -> None:
        suffixes = _suffixes(container, what)
        metadata = container.metadata
        if metadata.get("format", _FORMAT) != _FORMAT:
            raise UnknownFormatError(f"{what} says that its format is {metadata['format']!r}, not {_FORMAT!r}")
        self._pairs = _paired(container, suffixes, what)
        variant = "v1" if suffixes is _V1 else _encoding(metadata, self._pairs, what)
        for name, (index, value) in self._pairs.items():
            _check_pair(name, index, value, _INDEX_DTYPES[variant])
        _check_totals(metadata, self._pairs, what)
        self._sha256 = metadata.get("checksum_sha256", "")
        checked = "the SHA-256 of the whole new state" if self._sha256 else NOTHING_CHECKED
        step = metadata.get("model_version", "")
        self.origin = Origin(variant, f"TRL model_version {step}" if step.isdecimal() else "", checked)
        self.names = frozenset(self._pairs)

    def patched(self, name: str, old: BitTensor) -> BitTensor:
        """The base with the file's values in their places."""
        index, value = self._pairs[name]
        check_dtype(value.dtype_name, old, name)
        check_count(index.num_items, num_items(old), name)
        positions = decode_indices(index.items(), gaps=self.origin.variant == "gap_delta")
        check_positions(positions, num_items(old), name)
        return overwritten(old, positions, value.items())

    def check_state(self, tensors: Iterator[tuple[str, BitTensor]]) -> None:
        """What v1 has in place of the identity of a base."""
        if not self._sha256:
            return
        found = hashlib.sha256()
        for _, tensor in tensors:
            found.update(raw_bytes(tensor).data)
        if found.hexdigest() != self._sha256:
            raise DigestError(
                "the new state does not have the SHA-256 that the file promises: the base is another one, "
                "or it has other tensors than the model that was trained"
            )


def read(path: Path) -> TrlPatch:
    """Opens a file."""
    return TrlPatch(open_container(path), str(path))


def decode_indices(stored: np.ndarray[tuple[int, ...], np.dtype[np.unsignedinteger]], *, gaps: bool) -> I64:
    """Absolute positions; not checked yet."""
    if not gaps:
        return stored.view("<i4").astype(np.int64)
    return np.cumsum(stored.astype(np.int64) + 1) - 1


def encode_indices(positions: I64, variant: str) -> Part:
    """Positions as a file holds them."""
    if positions.size and int(positions[-1]) > _MAX_INDEX:
        raise LimitError("TRL counts in 32 bits: a tensor with a change above element 2^31 - 1 cannot be written so")
    if variant != "gap_delta":
        return Part("I32", (positions.size,), positions.astype("<i4").tobytes())
    gaps = np.diff(positions, prepend=-1) - 1
    wide = bool(gaps.size) and int(gaps.max()) > 0xFFFF
    raw = gaps.astype("<u4" if wide else "<u2").tobytes()
    return Part("U32" if wide else "U16", (positions.size,), raw)


def write(export: Export) -> Written:
    """Writes a file."""
    variant = export.variant
    suffixes = _V1 if variant == "v1" else _V2
    parts: dict[str, Part] = {}
    changed, elements, names, whole = 0, 0, [], hashlib.sha256()
    for pair in export.pairs():
        elements += num_items(pair.old)
        positions = changed_positions(pair.old, pair.new)
        if variant == "v1":
            whole.update(raw_bytes(pair.new).data)
        if positions.size:
            names.append(pair.name)
            changed += positions.size
            parts[pair.name + suffixes.position] = encode_indices(positions, variant)
            parts[pair.name + suffixes.value] = _values(pair, positions)
    metadata = {
        "format": _FORMAT, "version": "1", "model_version": str(export.number("model_version", export.target_seq)),
        "num_changed_params": str(len(names)), "total_changed_elements": str(changed),
        "total_elements": str(elements), "sparsity": str(1.0 - changed / max(elements, 1)),
    }  # fmt: skip
    if variant == "v1":
        before = {"prev_model_version": str(export.base_seq), "anchor_step": "0", "base_model_id": ""}
        metadata |= before | {"checksum_sha256": whole.hexdigest(), "changed_params": json.dumps(names)}
    else:
        metadata |= {"sparse": "True", "encoding": variant}
    with durable_file(export.output) as file:
        write_container(file, by_alignment(parts), metadata)
    return Written(changed, len(names))


def _values(pair: Pair, positions: I64) -> Part:
    items = items_of(pair.new)[positions]
    return Part(pair.new.dtype.name, (positions.size,), items.astype(items.dtype.newbyteorder("<")).tobytes())


def _suffixes(container: Container, what: str) -> _Suffixes:
    """Which generation a file is of; a mixture is refused."""
    found = [pair for pair in (_V1, _V2) if any(key.endswith(tuple(pair)) for key in container.tensors)]
    if len(found) > 1:
        raise FormatError(f"{what} mixes {_V1.position} and {_V2.position}: two generations of the format in one file")
    plain = [key for key in container.tensors if not found or not key.endswith(tuple(found[0]))]
    if plain:
        raise FormatError(
            f"{what} holds {plain[0]!r}, a tensor as a whole: an anchor is read with --format dense-safetensors"
        )
    return found[0] if found else _V2


def _paired(container: Container, suffixes: _Suffixes, what: str) -> dict[str, tuple[Stored, Stored]]:
    pairs = {}
    for key in container.tensors:
        name = key[: -len(suffixes.position)] if key.endswith(suffixes.position) else key[: -len(suffixes.value)]
        index, value = container.tensors.get(name + suffixes.position), container.tensors.get(name + suffixes.value)
        if index is None or value is None:
            raise FormatError(f"{what} has only one of {name + suffixes.position!r} and {name + suffixes.value!r}")
        pairs[name] = (index, value)
    return pairs


def _encoding(metadata: Mapping[str, str], pairs: Mapping[str, tuple[Stored, Stored]], what: str) -> str:
    """What the header says; a file without a header is told by its dtypes."""
    said = metadata.get("encoding")
    if said is not None and said not in VARIANTS[:2]:
        raise UnknownFormatError(f"{what} has indices in the encoding {said!r}; known are {', '.join(VARIANTS[:2])}")
    return said or ("raw" if any(index.dtype_name == "I32" for index, _ in pairs.values()) else "gap_delta")


def _check_pair(name: str, index: Stored, value: Stored, dtypes: Iterable[str]) -> None:
    if index.dtype_name not in dtypes:
        raise FormatError(f"the indices of {name!r} are {index.dtype_name}, which their encoding does not use")
    if len(index.shape) != 1 or index.shape != value.shape:
        raise FormatError(f"{name!r} has indices of shape {list(index.shape)} and values of {list(value.shape)}")


def _check_totals(metadata: Mapping[str, str], pairs: Mapping[str, tuple[Stored, Stored]], what: str) -> None:
    """A total that disagrees means that tensors are missing."""
    total = str(sum(index.num_items for index, _ in pairs.values()))
    if metadata.get("total_changed_elements", total) != total:
        raise FormatError(f"{what} announces {metadata['total_changed_elements']} changes and holds {total}")
