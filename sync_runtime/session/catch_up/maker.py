"""Makes the objects that members need to catch up, on the CPU, without weights and without torch.

Merged and negated deltas come from the spool's own links, anchors from a state that is handed in. What was made is
signed and kept under its key: a span that many ask for is made once. Knows no members and no links.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from sync_runtime.bucket.keys import FAST, ObjectKey
from sync_runtime.bucket.manifest import Manifest, Version, pack_envelope
from sync_runtime.bucket.spool import ObjectWriter, Spool, StoredObject
from sync_runtime.codec.cpu.merge import merge_block
from sync_runtime.codec.limits import CODEC_FAST
from sync_runtime.errors import ChainError, SpoolError, SyncError
from sync_runtime.offline.anchors import describe_anchor, write_anchor
from sync_runtime.offline.chain import Chain
from sync_runtime.offline.deltafile import Delta, Ends, describe
from sync_runtime.offline.objects import Sink, Source, write_object
from sync_runtime.offline.staging import BoundState
from sync_runtime.offline.streams import write_merge
from sync_runtime.session.catch_up.choice import Path, SpoolIndex, find_path
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import ZERO, Digest, total
from sync_runtime.tensors.layout import Layout, parse_layout
from sync_runtime.tensors.sparse import SparseBlock, inverted


def index_of(spool: Spool) -> SpoolIndex:
    """The index of a spool as it is now."""
    stored = frozenset(found.key for found in spool.objects())
    return SpoolIndex(stored, {lineage.lineage: lineage.origin for lineage in spool.lineages()})


@dataclass(frozen=True)
class MakerSettings:
    """How objects are made."""

    sign: Callable[[bytes], bytes]
    """A manifest's JSON in, its signature out."""
    bucket_bytes: Callable[[], int]
    streams: Callable[[], int]
    threads: int | None = None


class Watcher:
    """Told of an object while it is made, in the thread that makes it; does nothing by itself."""

    def begun(self, writer: ObjectWriter) -> None:
        """Its buckets can be sent from here on."""

    def kept(self, key: ObjectKey, index: int) -> None:
        """One more bucket is whole."""


class Maker:
    """Makes what is missing, each object once. Thread-safe; every method may take seconds."""

    def __init__(self, spool: Spool, settings: MakerSettings) -> None:
        self._spool = spool
        self._settings = settings
        self._lock = threading.Lock()
        self._making: dict[ObjectKey, Future[StoredObject]] = {}
        self._layouts: dict[str, Layout] = {}

    def make(self, key: ObjectKey, watcher: Watcher | None = None) -> StoredObject:
        """The `fast` object of a key from the spool's links; raises ChainError where no way leads there."""
        return self._once(key, lambda: self._make_delta(key, watcher or Watcher()))

    def make_anchor(
        self,
        key: ObjectKey,
        state: BoundState,
        version: Version,
        layout: Layout,
        *,
        numbers: Sequence[int] | None = None,
        watcher: Watcher | None = None,
    ) -> StoredObject:
        """An anchor from a state that does not change meanwhile: all blocks, or those of ascending numbers."""
        if not key.is_anchor or key.target_seq != version.seq:
            raise ChainError(f"the state is version {version.seq}; {key} cannot be made of it")
        blocks = BlockMap(layout)

        def write(sink: Sink) -> Manifest:
            threads = self._settings.threads
            totals = write_anchor(sink, blocks, state, seq=version.seq, numbers=numbers, threads=threads)
            return describe_anchor(blocks, totals, version, key.lineage)

        return self._once(key, lambda: self._write(key, layout, write, watcher or Watcher()))

    def _once(self, key: ObjectKey, make: Callable[[], StoredObject]) -> StoredObject:
        with self._lock:
            stored = self._spool.stored(key)
            if stored is not None:
                return stored
            running = self._making.get(key)
            future: Future[StoredObject] = running or Future()
            self._making[key] = future
        if running is not None:
            return running.result()
        try:
            future.set_result(make())
        except SyncError as error:
            future.set_exception(error)
        finally:
            if not future.done():
                future.set_exception(SpoolError(f"{key} could not be made"))  # a bug's own exception goes its way
            with self._lock:
                del self._making[key]
        return future.result()

    def _make_delta(self, key: ObjectKey, watcher: Watcher) -> StoredObject:
        path = find_path(key, index_of(self._spool))
        if path is None:
            raise ChainError(f"{key} cannot be made: a delta between its versions is not kept any more")
        found = [self._spool.stored(step.link) for step in path.steps]
        links = [stored for stored in found if stored is not None]
        if len(links) != len(found):
            raise ChainError(f"{key} cannot be made: a delta it needs was evicted just now")
        layout, base = self._start_of(path, links)
        deltas = [Delta(layout, stored.manifest, stored.view()) for stored in links]
        target = self._spool.versions(key.lineage).get(key.target_seq)
        label = "" if target is None else target.label
        is_plain = all(not step.is_back and step.link.lineage == key.lineage for step in path.steps)

        def write(sink: Sink) -> Manifest:
            threads = self._settings.threads
            if deltas and is_plain:
                return write_merge(sink, deltas, None, codec=FAST, label=label, threads=threads)
            return write_path(sink, path, deltas, layout=layout, base=base, label=label, threads=threads)

        return self._write(key, layout, write, watcher)

    def _write(
        self, key: ObjectKey, layout: Layout, write: Callable[[Sink], Manifest], watcher: Watcher
    ) -> StoredObject:
        settings = self._settings
        writer = self._spool.create(key, layout.hash.hex(), settings.bucket_bytes(), streams=settings.streams())
        try:
            watcher.begun(writer)
            sink = _Sink(writer, watcher)
            manifest = write(sink)
            sink.finish()
            document = replace(manifest, buckets=writer.buckets).to_json()
            return writer.commit(pack_envelope(document, settings.sign(document)))
        finally:
            writer.abort()  # does nothing once it is committed

    def _start_of(self, path: Path, links: Sequence[StoredObject]) -> tuple[Layout, Version]:
        """Layout and base of an object; where it has no steps, from the lineage that it leads into."""
        if links:
            facts = links[0].facts
            first = facts.target if path.steps[0].is_back else facts.base
            if first is None:
                raise ChainError(f"{facts.key} has no base")
            return self._layout(facts.layout_hash), first
        for lineage in self._spool.lineages():
            if lineage.lineage == path.key.lineage:
                return self._layout(lineage.layout_hash), lineage.start
        raise ChainError(f"{path.key} cannot be made: its lineage is not known here")

    def _layout(self, layout_hash: str) -> Layout:
        known = self._layouts.get(layout_hash)
        if known is None:
            document = self._spool.layout(layout_hash)
            if document is None:
                raise ChainError("the layout of these versions is not kept any more")
            known = self._layouts[layout_hash] = parse_layout(document)
        return known


class _Sink:
    """Hands bytes to a writer and tells of every bucket that became whole."""

    def __init__(self, writer: ObjectWriter, watcher: Watcher) -> None:
        self._writer, self._watcher = writer, watcher

    def write(self, data: bytes, /) -> None:
        for bucket in self._writer.write(data):
            self._watcher.kept(self._writer.key, bucket.index)

    def finish(self) -> None:
        for bucket in self._writer.finish():
            self._watcher.kept(self._writer.key, bucket.index)


def write_path(
    sink: Sink,
    path: Path,
    deltas: Sequence[Delta],
    *,
    layout: Layout,
    base: Version,
    label: str,
    threads: int | None,
) -> Manifest:
    """Writes the sum of a path's links, those that are taken back negated, in one pass over the blocks."""
    changes = _checked_changes(path, deltas, base, len(layout.tensors))
    back = Chain([delta for step, delta in zip(path.steps, deltas, strict=True) if step.is_back], None)
    forth = Chain([delta for step, delta in zip(path.steps, deltas, strict=True) if not step.is_back], None)
    in_back, in_forth = set(back.numbers), set(forth.numbers)

    def sparse(block: Block) -> SparseBlock:
        parts = list(forth.parts(block)) if block.number in in_forth else []
        if block.number in in_back:
            parts.insert(0, inverted(merge_block(back.parts(block), block), block.dtype.width_bits))
        return merge_block(parts, block)

    totals = write_object(sink, BlockMap(layout), CODEC_FAST, Source(sorted(in_back | in_forth), sparse), threads)
    return describe(layout, totals, Ends(base, path.key.target_seq, changes, path.key.lineage, label))


def _checked_changes(path: Path, deltas: Sequence[Delta], base: Version, num_tensors: int) -> tuple[Digest, ...]:
    """Per tensor what the whole path changes; raises ChainError where one link does not end where the next begins."""
    at = base.digest
    changes = [ZERO] * num_tensors
    for step, delta in zip(path.steps, deltas, strict=True):
        first, last = (delta.target, delta.base) if step.is_back else (delta.base, delta.target)
        if first.digest != at:
            raise ChainError(f"{step.link} does not continue the way: its state is another one")
        at = last.digest
        for tensor, change in enumerate(delta.manifest.digest_changes):
            changes[tensor] = changes[tensor].minus(change) if step.is_back else changes[tensor].plus(change)
    if base.digest.plus(total(changes)) != at:
        raise ChainError("the digests of the way contradict each other")
    return tuple(changes)
