"""The formats by name: what reads and writes them, and their variants, of which the first is the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sync_runtime.errors import FormatError
from sync_runtime.offline.interop import dense, grail, hfdelta, pulsept1, skyrl, trl
from sync_runtime.offline.interop.model import Foreign
from sync_runtime.offline.interop.target import Export, Written


@dataclass(frozen=True)
class Format:
    """One entry."""

    name: str
    summary: str
    variants: tuple[str, ...]
    """For writing; a reader sees by itself what it has."""
    read: Callable[[Path], Foreign]
    write: Callable[[Export], Written]
    meta: tuple[str, ...] = ()
    """What a user may add to the header."""


def _read_packed(path: Path) -> Foreign:
    """A folder of either kind."""
    found = [name for name in (hfdelta.INDEX, skyrl.MANIFEST) if (path / name).is_file()]
    if len(found) != 1:
        raise FormatError(f"{path} is no folder with either {hfdelta.INDEX} or {skyrl.MANIFEST}")
    return hfdelta.read(path) if found[0] == hfdelta.INDEX else skyrl.read(path)


def _read_pulse(path: Path) -> Foreign:
    with path.open("rb") as file:
        is_envelope = file.read(len(pulsept1.MAGIC)) == pulsept1.MAGIC
    return pulsept1.read(path) if is_envelope else grail.read(path)


def _write_packed(export: Export) -> Written:
    return skyrl.write(export) if export.variant == "skyrl" else hfdelta.write(export)


def _write_pulse(export: Export) -> Written:
    return grail.write(export) if export.variant in grail.VARIANTS else pulsept1.write(export)


_ALL = (
    Format(
        "trl-safetensors", "the sparse safetensors of TRL", trl.VARIANTS, trl.read, trl.write, meta=("model_version",)
    ),
    Format(
        "pulse", "PULSE patches: PULSEPT1 and grail", (*pulsept1.VARIANTS, *grail.VARIANTS), _read_pulse, _write_pulse,
        meta=("step", "baseStep", "model", "modelDigest"),
    ),
    Format("dense-safetensors", "whole checkpoints", ("checkpoint",), dense.read, dense.write),
    Format(
        "xor-zstd", "XOR under zstd: slime, miles, SkyRL, ModelExpress", ("slime", "skyrl", "modelexpress"),
        _read_packed, _write_packed, meta=("version", "base_version"),
    ),
)  # fmt: skip
FORMATS: Mapping[str, Format] = {entry.name: entry for entry in _ALL}
