"""diff, apply, merge, invert, transcode, digest: the functions, over states and deltas in memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from sync_runtime.bucket.manifest import NO_LINEAGE, Version
from sync_runtime.codec.cpu.merge import merge_block
from sync_runtime.codec.limits import CODEC_ANCHOR, CODEC_NUMBERS
from sync_runtime.delta.apply import Staging
from sync_runtime.errors import ChainError, LayoutError, MissingBaseError
from sync_runtime.offline.chain import Chain
from sync_runtime.offline.deltafile import Delta, Ends, describe
from sync_runtime.offline.objects import Source, write_object
from sync_runtime.offline.staging import BoundState, Comparison, check_base, stage, state_digests
from sync_runtime.tensors.bits import State, bind, bit_tensor, gather, memory_of
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import ZERO, Digest, total
from sync_runtime.tensors.layout import DEFAULT_BLOCK_ELEMENTS, Layout, Shards, make_layout
from sync_runtime.tensors.sparse import Bits, SparseBlock, inverted

Progress = Callable[[int], None]
"""Called with the number of the block just looked at."""


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


def codec_number(codec: str) -> int:
    """The number of a delta codec's name."""
    number = CODEC_NUMBERS.get(codec, CODEC_ANCHOR)
    if number == CODEC_ANCHOR:
        raise LayoutError(f"{codec!r} is not a codec of deltas: use fast, tight or auto")
    return number


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
    """The delta that turns one state into another, bit for bit."""
    number = codec_number(codec)
    agreed = layout or layout_of(base)
    blocks = BlockMap(agreed)
    pair = Comparison(blocks, bind(agreed, base), bind(agreed, new))
    _check_ties(agreed, new)
    sink = io.BytesIO()
    totals = write_object(sink, blocks, number, Source(range(len(blocks)), pair.sparse, pair.old), threads)
    origin = Version(seqs[0], total(pair.base_digests()))
    ends = Ends(origin, seqs[1], pair.digest_changes(), lineage, label)
    return Delta(agreed, describe(agreed, totals, ends), memoryview(sink.getvalue()))


def apply(state: State, delta: Delta, *, held: Digest | None = None, threads: int | None = None) -> None:
    """Brings a state forward in place, all of it or nothing.

    `held` is the state's digest where the caller knows it; otherwise it is computed. The tensors must be contiguous.
    """
    live = bind(delta.layout, state, writable=True)
    check_base(delta, held if held is not None else total(state_digests(delta.blocks, live, threads)))
    staging = Staging(delta.blocks, live)
    stage(delta, staging, threads)
    staging.commit()


def merge(
    *deltas: Delta, base: State | None = None, codec: str = "fast", label: str = "", threads: int | None = None
) -> Delta:
    """One delta for several that follow each other. The base is needed if an input or the result is tight."""
    check_chain(deltas)
    layout, blocks = deltas[0].layout, deltas[0].blocks
    bound = None if base is None else bind(layout, base)
    if bound is not None:
        check_base(deltas[0], total(state_digests(blocks, bound, threads)))
    old = None if bound is None else _gatherer(bound)
    chain = Chain(deltas, blocks, old)
    source = Source(chain.numbers, lambda block: merge_block(chain.parts(block), block), old)
    ends = Ends(deltas[0].base, deltas[-1].target.seq, summed_changes(deltas), deltas[0].manifest.lineage, label)
    return _written(blocks, codec, source, ends, threads)


def invert(
    delta: Delta, *, base: State | None = None, codec: str = "fast", label: str = "", threads: int | None = None
) -> Delta:
    """The way back. The base is needed if the delta or the result is tight."""
    layout, blocks = delta.layout, delta.blocks
    bound = None if base is None else bind(layout, base)
    if bound is not None:
        check_base(delta, total(state_digests(blocks, bound, threads)))
    chain = Chain([delta], blocks, None if bound is None else _gatherer(bound))

    def sparse(block: Block) -> SparseBlock:
        return inverted(merge_block(chain.parts(block), block), block.dtype.width_bits)

    source = Source(chain.numbers, sparse, None if bound is None else chain.after)
    changes = tuple(ZERO.minus(change) for change in delta.manifest.digest_changes)
    ends = Ends(delta.target, delta.base.seq, changes, delta.manifest.lineage, label)
    return _written(blocks, codec, source, ends, threads)


def transcode(delta: Delta, codec: str, *, base: State | None = None, threads: int | None = None) -> Delta:
    """The same delta in another codec; needs the base from and to tight."""
    return merge(delta, base=base, codec=codec, label=delta.manifest.label, threads=threads)


def digest(state: State, *, layout: Layout | None = None, threads: int | None = None) -> Digest:
    """128 bits of a whole state."""
    agreed = layout or layout_of(state)
    return total(state_digests(BlockMap(agreed), bind(agreed, state), threads))


def check_chain(deltas: Sequence[Delta]) -> None:
    """Whether each delta starts where the one before it ends."""
    if not deltas:
        raise ChainError("there is nothing to merge")
    for first, second in pairwise(deltas):
        if first.layout.hash != second.layout.hash or first.manifest.lineage != second.manifest.lineage:
            raise ChainError("deltas of different layouts or lineages cannot be merged")
        if first.target.digest != second.base.digest:
            raise ChainError(
                f"a delta to {first.target.digest} is followed by one from {second.base.digest}: give them in order"
            )


def summed_changes(deltas: Sequence[Delta]) -> tuple[Digest, ...]:
    """Per tensor the digest change of a chain."""
    columns = zip(*(delta.manifest.digest_changes for delta in deltas), strict=True)
    return tuple(total(column) for column in columns)


def _written(blocks: BlockMap, codec: str, source: Source, ends: Ends, threads: int | None) -> Delta:
    number = codec_number(codec)
    if codec != "fast" and source.old is None:
        raise MissingBaseError(f"coding {codec} needs the base's weights")
    sink = io.BytesIO()
    totals = write_object(sink, blocks, number, source, threads)
    layout = blocks.layout
    return Delta(layout, describe(layout, totals, ends), memoryview(sink.getvalue()))


def _gatherer(state: BoundState) -> Callable[[Block], Bits]:
    return lambda block: gather(block, state)


def _check_ties(layout: Layout, new: State) -> None:
    """A tied name must still be the tensor it is tied to, or its own changes would be lost."""
    for alias, name in layout.tied:
        if alias in new and memory_of(new[alias]) != memory_of(new[name]):
            raise LayoutError(f"{alias!r} is tied to {name!r} in the base but not in the new state")
