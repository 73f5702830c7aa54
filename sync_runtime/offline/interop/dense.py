"""Whole checkpoints in place of deltas: two of them become a delta, a base and a delta become a folder.

The folder is one that `from_pretrained` takes: beside the weights it has everything small that lies in the base,
such as configuration and tokeniser. Weights in other formats are left out: they would still be the old ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from sync_runtime.errors import LayoutError
from sync_runtime.offline.checkpoints import Checkpoint, MappedState, open_checkpoint
from sync_runtime.offline.companions import companions
from sync_runtime.offline.durable import durable_file, durable_folder
from sync_runtime.offline.interop.items import changed_positions, raw_bytes
from sync_runtime.offline.interop.model import NOTHING_CHECKED, Foreign, Origin
from sync_runtime.offline.interop.target import Export, Written
from sync_runtime.tensors.bits import BitTensor

_COPY_BYTES = 16 << 20


class DenseState(Foreign):
    """The new state, whole."""

    lists_all = True

    def __init__(self, new: Checkpoint) -> None:
        self.origin = Origin("checkpoint", "", NOTHING_CHECKED)
        self.names = frozenset(new.entries)
        self._numbers = {spec.name: at for at, spec in enumerate(new.layout().tensors)}
        self._path, self._state = new.path, MappedState(new, new.layout())

    def patched(self, name: str, old: BitTensor) -> BitTensor:
        """The tensor as the new checkpoint has it."""
        new = self._state[self._numbers[name]]
        if (new.dtype, new.shape) != (old.dtype, old.shape):
            have, want = f"{new.dtype.name}{list(new.shape)}", f"{old.dtype.name}{list(old.shape)}"
            raise LayoutError(f"{name!r} is {have} in {self._path}, in the base {want}")
        return new


def read(path: Path) -> DenseState:
    """Opens a checkpoint."""
    return DenseState(open_checkpoint(path))


def write(export: Export) -> Written:
    """Writes a folder where the base is one, else a file."""
    base = export.target.base
    if not base.path.is_dir():
        with durable_file(export.output) as file, base.path.open("rb") as source:
            shutil.copyfileobj(source, file, _COPY_BYTES)
            return _patched(export, {base.path: file})
    with durable_folder(export.output) as folder, ExitStack() as opened:
        for path in (*base.files, *companions(base)):
            shutil.copyfile(path, folder / path.name)
        shards = {path: opened.enter_context((folder / path.name).open("r+b")) for path in base.files}
        return _patched(export, shards)


def _patched(export: Export, copies: Mapping[Path, BinaryIO]) -> Written:
    """Writes the tensors that changed over their old selves in the copies."""
    changed, tensors = 0, 0
    for pair in export.pairs():
        positions = changed_positions(pair.old, pair.new)
        if positions.size:
            changed, tensors = changed + positions.size, tensors + 1
            entry = export.target.base.entries[pair.name]
            copies[entry.file].seek(entry.begin)
            copies[entry.file].write(raw_bytes(pair.new).data)
    return Written(changed, tensors)
