"""Foreign deltas under attack: sound files of every format, and the question that damaged ones must answer.

A damaged file raises our error, or becomes a delta from the base to some state of the base's shapes: a format without a
checksum cannot know better. Where the format has one, the state must be the right one.
"""

from __future__ import annotations

import io
from pathlib import Path

from sync_runtime.errors import SyncError
from sync_runtime.offline.checkpoints import open_checkpoint
from sync_runtime.offline.interop.convert import Coding, write_import
from sync_runtime.offline.interop.registry import FORMATS
from tests.support.interop import Case, bf16_next, bf16_state, exported, saved

SINGLE = {
    "trl-safetensors": ("gap_delta", "raw", "v1"),
    "pulse": ("pulsept1-v1", "pulsept1-v2", "pulsept1-v3", "grail-v2", "grail-v3", "grail-v3.1"),
}
"""Formats in one file; folders are attacked file by file."""
VERIFIED = frozenset({"v1", "pulsept1-v1", "pulsept1-v2", "pulsept1-v3", "slime", "skyrl", "modelexpress"})


def small_case(folder: Path) -> Case:
    """A few hundred elements, every kind of change."""
    before = {name: bits for name, bits in bf16_state().items() if bits.matrix.size < 200}
    after = {name: bits for name, bits in bf16_next(bf16_state(), per_mille=200).items() if name in before}
    return saved(folder, before, after)


class ForeignTarget:
    """A base and a good foreign delta; tries damaged files in the place of one of its own."""

    def __init__(self, folder: Path, name: str, variant: str, file: str = "") -> None:
        self.case = small_case(folder)
        self._name, self._variant = name, variant
        self._foreign = exported(self.case, folder / "foreign", name, variant)
        self.path = self._foreign / file if file else self._foreign
        self.good = self.path.read_bytes()

    def is_taken(self, damaged: bytes) -> bool:
        """Whether it was taken; what it then says must hold."""
        self.path.unlink()  # a file that is cut and written again is flushed by some file systems, which takes its time
        self.path.write_bytes(damaged)
        try:
            foreign = FORMATS[self._name].read(self._foreign)
            found = write_import(io.BytesIO(), open_checkpoint(self.case.base), foreign, Coding("fast", threads=1))
        except SyncError:
            return False
        assert found.base is not None
        assert found.base.digest == self.case.delta.base.digest
        if self._variant in VERIFIED:
            assert found.target.digest == self.case.delta.target.digest, "a wrong state passed the checksums"
        return True
