"""The actions of `syncgroup delta`: files in, files out, tensor by tensor. Nothing is left behind on failure."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sync_runtime.bucket.manifest import Manifest
from sync_runtime.codec.limits import FORMAT_VERSION, MODE_NAMES
from sync_runtime.delta.apply import Staging
from sync_runtime.errors import DigestError
from sync_runtime.offline import Delta, load
from sync_runtime.offline.checkpoints import Checkpoint, MappedState, open_checkpoint
from sync_runtime.offline.deltafile import write_file
from sync_runtime.offline.staging import Comparison, check_base, stage
from sync_runtime.offline.streams import state_digest, write_diff, write_inverse, write_merge
from sync_runtime.offline.written import stored_ties, write_staged
from sync_runtime.tensors.bits import gather
from sync_runtime.tensors.blocks import BlockMap
from syncgroup.commands.delta_device import write_on_device
from syncgroup.commands.delta_progress import Progress
from syncgroup.errors import CommandError
from syncgroup.output import say


def encode(options: argparse.Namespace) -> int:
    """BASE and NEW to a delta."""
    base, new = open_checkpoint(options.base), open_checkpoint(options.new)
    layout = base.layout()
    blocks, states = BlockMap(layout), (MappedState(base, layout), MappedState(new, layout))

    def write(file: BinaryIO) -> Manifest:
        if options.device == "cuda":
            return write_on_device(file, blocks, states, options)
        watch, pair = Progress("comparing").over, Comparison(blocks, *states)
        return write_diff(file, pair, codec=options.codec, label=options.label, watch=watch, threads=options.threads)

    _check_output(options.output)
    write_file(options.output, layout, write)
    _describe(load(options.output), options)
    return 0


def apply(options: argparse.Namespace) -> int:
    """BASE and a delta to a checkpoint."""
    base, delta = open_checkpoint(options.base), load(options.delta)
    live = MappedState(base, delta.layout)
    stored_ties(base, delta.layout)
    check_base(delta, state_digest(delta.blocks, live, options.threads))
    staging = Staging(delta.blocks, live)
    stage(delta, staging, options.threads)
    _check_output(options.output)
    if base.path.is_dir() and options.output.exists():
        raise CommandError(f"{options.output} exists already; a folder is not overwritten")
    _write_checkpoint(base, delta, staging, options.output)
    _tell(options, {"output": str(options.output), "digest": str(delta.target.digest)}, f"wrote {options.output}")
    return 0


def merge(options: argparse.Namespace) -> int:
    """Several deltas to one."""
    deltas = [load(path) for path in options.deltas]
    base = None if options.base is None else MappedState(open_checkpoint(options.base), deltas[0].layout)

    def write(file: BinaryIO) -> Manifest:
        watch = Progress("merging").over
        return write_merge(file, deltas, base, codec=options.codec, watch=watch, threads=options.threads)

    _check_output(options.output)
    write_file(options.output, deltas[0].layout, write)
    _describe(load(options.output), options)
    return 0


def invert(options: argparse.Namespace) -> int:
    """A delta to the one that leads back."""
    delta = load(options.delta)
    base = None if options.base is None else MappedState(open_checkpoint(options.base), delta.layout)

    def write(file: BinaryIO) -> Manifest:
        watch = Progress("inverting").over
        return write_inverse(file, delta, base, codec=options.codec, watch=watch, threads=options.threads)

    _check_output(options.output)
    write_file(options.output, delta.layout, write)
    _describe(load(options.output), options)
    return 0


def info(options: argparse.Namespace) -> int:
    """What a delta holds."""
    _describe(load(options.delta), options)
    return 0


def verify(options: argparse.Namespace) -> int:
    """Whether a delta leads from BASE to NEW, bit for bit."""
    base, delta, new = open_checkpoint(options.base), load(options.delta), open_checkpoint(options.new)
    live, wanted = MappedState(base, delta.layout), MappedState(new, delta.layout)
    check_base(delta, state_digest(delta.blocks, live, options.threads))
    staging = Staging(delta.blocks, live)
    stage(delta, staging, options.threads)
    for number in Progress("comparing").over(range(len(delta.blocks))):
        block = delta.blocks.block(number)
        if not np.array_equal(staging.current(block), gather(block, wanted)):
            name = delta.layout.tensors[block.pieces[0].tensor].name
            raise DigestError(f"{options.new} is not what {options.delta} leads to: {name!r} differs")
    digest = str(delta.target.digest)
    _tell(options, {"verified": True, "digest": digest}, f"verified: every bit is equal (digest {digest})")
    return 0


def _write_checkpoint(base: Checkpoint, delta: Delta, staging: Staging, output: Path) -> None:
    """A copy of the base beside the output, the list scattered into it, then one rename."""
    room = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        write_staged(base.copied(room / output.name), delta.blocks, staging)
        (room / output.name).replace(output)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _check_output(output: Path) -> None:
    if not output.parent.is_dir():
        raise CommandError(f"there is no folder {output.parent} to write to")


def _describe(delta: Delta, options: argparse.Namespace) -> None:
    facts = describe(delta)
    width = max(map(len, facts))
    lines = [f"{name:{width}}  {_shown(value)}" for name, value in facts.items()]
    _tell(options, facts, "\n".join(lines))


def describe(delta: Delta) -> dict[str, object]:
    """The facts about a delta, in the order in which they are shown."""
    manifest = delta.manifest
    modes: Counter[str] = Counter()
    body_bytes: Counter[str] = Counter()
    for _, record in delta.reader().records():
        modes[MODE_NAMES[record.mode]] += 1
        body_bytes[MODE_NAMES[record.mode]] += len(record.body)
    elements = sum(spec.numel for spec in delta.layout.tensors)
    size = len(delta.object) + len(delta.tail())
    return {
        "format": FORMAT_VERSION,
        "codec": manifest.codec,
        "label": manifest.label,
        "lineage": manifest.lineage,
        "base_seq": delta.base.seq,
        "base_digest": str(delta.base.digest),
        "target_seq": delta.target.seq,
        "target_digest": str(delta.target.digest),
        "tensors": len(delta.layout.tensors),
        "elements": elements,
        "changed": manifest.num_changed,
        "density": manifest.num_changed / elements if elements else 0.0,
        "bytes": size,
        "bits_per_changed": 8 * size / manifest.num_changed if manifest.num_changed else 0.0,
        "blocks": {**modes, "empty": len(delta.blocks) - manifest.num_blocks},
        "body_bytes": dict(body_bytes),
        "signed": bool(delta.signature),
    }


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items() if count) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _tell(options: argparse.Namespace, facts: dict[str, object], text: str) -> None:
    say(json.dumps(facts) if options.json else text)
