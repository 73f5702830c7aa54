"""From a foreign delta to a `.sgd` file and back: where formats, checkpoints and our own deltas meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sync_runtime.bucket.durable import sync_folder
from sync_runtime.bucket.manifest import Manifest
from sync_runtime.errors import SettingsError
from sync_runtime.offline.checkpoints import Checkpoint, MappedState
from sync_runtime.offline.deltafile import Delta, write_file
from sync_runtime.offline.durable import sync_file
from sync_runtime.offline.interop.model import Foreign, PatchedState
from sync_runtime.offline.interop.registry import Format
from sync_runtime.offline.interop.target import Export, Target, Written
from sync_runtime.offline.objects import Sink
from sync_runtime.offline.staging import Comparison
from sync_runtime.offline.streams import Watch, write_diff
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import Layout


@dataclass(frozen=True)
class Coding:
    """How a delta is to be written."""

    codec: str = "auto"
    label: str = ""
    """In place of what the foreign delta says of itself."""
    threads: int | None = None
    watch: Watch = iter


def import_delta(base: Checkpoint, foreign: Foreign, output: Path, coding: Coding) -> Manifest:
    """Writes the delta from the base to what the foreign one makes of it."""
    manifest = write_file(output, base.layout(), lambda file: write_import(file, base, foreign, coding))
    sync_file(output)
    sync_folder(output.parent)
    return manifest


def write_import(sink: Sink, base: Checkpoint, foreign: Foreign, coding: Coding) -> Manifest:
    """The same into a sink. What covers a whole state is verified first, checksums of tensors as they are made."""
    layout = base.layout()
    live = MappedState(base, layout)
    new = PatchedState(live, layout, foreign)
    foreign.check_base(_named(layout, live))
    foreign.check_state(_named(layout, new))
    for at, spec in enumerate(layout.tensors):
        if not spec.numel:  # no block holds it, so that nobody else would ask for it
            _ = new[at]
    return write_diff(
        sink,
        Comparison(BlockMap(layout), live, new),
        codec=coding.codec,
        seqs=foreign.origin.seqs,
        label=coding.label or foreign.origin.label,
        watch=coding.watch,
        threads=coding.threads,
    )


def export_delta(
    base: Checkpoint, delta: Delta, output: Path, wanted: Format, *, variant: str, meta: dict[str, str],
    threads: int | None = None,
) -> Written:  # fmt: skip
    """Writes a delta in another tool's format."""
    if variant not in wanted.variants:
        raise SettingsError(f"{wanted.name} has no variant {variant!r}; it has {', '.join(wanted.variants)}")
    unknown = sorted(set(meta) - set(wanted.meta))
    if unknown:
        raise SettingsError(f"{wanted.name} has no place for {unknown[0]!r}; it has {', '.join(wanted.meta) or 'none'}")
    return wanted.write(Export(Target(base, delta, threads), output, variant, meta))


def _named(layout: Layout, state: Mapping[int, BitTensor]) -> Iterator[tuple[str, BitTensor]]:
    """By ascending name, which is the layout's order."""
    for at, spec in enumerate(layout.tensors):
        yield spec.name, state[at]
