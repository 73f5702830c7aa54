"""diff, apply, merge, invert, transcode, digest: the functions, over states and deltas in memory."""

from __future__ import annotations

import io
from collections.abc import Mapping

from sync_runtime.bucket.manifest import NO_LINEAGE
from sync_runtime.delta.apply import Staging
from sync_runtime.errors import LayoutError
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.staging import Comparison, check_base, stage
from sync_runtime.offline.streams import check_chain, state_digest, write_diff, write_inverse, write_merge
from sync_runtime.tensors.bits import State, bind, bit_tensor, memory_of
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest
from sync_runtime.tensors.layout import DEFAULT_BLOCK_ELEMENTS, Layout, Shards, make_layout


def layout_of(
    state: State, *, shards: Mapping[str, Shards] | None = None, block_elements: int = DEFAULT_BLOCK_ELEMENTS
) -> Layout:
    """The layout of a state. Names that share one tensor are tied: it travels under the first of them."""
    tensors, tied = [], {}
    seen: dict[tuple[int, tuple[int, ...], str], str] = {}
    for name in sorted(state, key=str.encode):
        memory = memory_of(state[name])
        if memory is not None and memory in seen:
            tied[name] = seen[memory]
            continue
        if memory is not None:
            seen[memory] = name
        bits = bit_tensor(state[name], name)
        tensors.append((name, bits.dtype.name, bits.shape))
    return make_layout(tensors, tied=tied, shards=shards, block_elements=block_elements)


def diff(
    base: State,
    new: State,
    *,
    codec: str = "fast",
    layout: Layout | None = None,
    seqs: tuple[int, int] = (0, 1),
    lineage: str = NO_LINEAGE,
    label: str = "",
    threads: int | None = None,
) -> Delta:
    """The delta that turns one state into another, bit for bit. `auto` is the smallest of all codecs."""
    agreed = layout or layout_of(base)
    pair = Comparison(BlockMap(agreed), bind(agreed, base), bind(agreed, new))
    _check_ties(agreed, new)
    sink = io.BytesIO()
    manifest = write_diff(sink, pair, codec=codec, seqs=seqs, lineage=lineage, label=label, threads=threads)
    return Delta(agreed, manifest, memoryview(sink.getvalue()))


def apply(state: State, delta: Delta, *, held: Digest | None = None, threads: int | None = None) -> None:
    """Brings a state forward in place, all of it or nothing.

    `held` is the state's digest where the caller knows it; otherwise it is computed. The tensors must be contiguous.
    """
    live = bind(delta.layout, state, writable=True)
    check_base(delta, held if held is not None else state_digest(delta.blocks, live, threads))
    staging = Staging(delta.blocks, live)
    stage(delta, staging, threads)
    staging.commit()


def merge(
    *deltas: Delta, base: State | None = None, codec: str = "fast", label: str = "", threads: int | None = None
) -> Delta:
    """One delta for several that follow each other. The base is needed if an input or the result is tight."""
    check_chain(deltas)
    layout = deltas[0].layout
    bound = None if base is None else bind(layout, base)
    sink = io.BytesIO()
    manifest = write_merge(sink, deltas, bound, codec=codec, label=label, threads=threads)
    return Delta(layout, manifest, memoryview(sink.getvalue()))


def invert(
    delta: Delta, *, base: State | None = None, codec: str = "fast", label: str = "", threads: int | None = None
) -> Delta:
    """The way back. The base is needed if the delta or the result is tight."""
    bound = None if base is None else bind(delta.layout, base)
    sink = io.BytesIO()
    manifest = write_inverse(sink, delta, bound, codec=codec, label=label, threads=threads)
    return Delta(delta.layout, manifest, memoryview(sink.getvalue()))


def transcode(delta: Delta, codec: str, *, base: State | None = None, threads: int | None = None) -> Delta:
    """The same delta in another codec; needs the base from and to tight."""
    return merge(delta, base=base, codec=codec, label=delta.manifest.label, threads=threads)


def digest(state: State, *, layout: Layout | None = None, threads: int | None = None) -> Digest:
    """128 bits of a whole state."""
    agreed = layout or layout_of(state)
    return state_digest(BlockMap(agreed), bind(agreed, state), threads)


def _check_ties(layout: Layout, new: State) -> None:
    """A tied name must still be the tensor it is tied to, or its own changes would be lost."""
    for alias, name in layout.tied:
        if alias in new and memory_of(new[alias]) != memory_of(new[name]):
            raise LayoutError(f"{alias!r} is tied to {name!r} in the base but not in the new state")
