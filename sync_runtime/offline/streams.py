"""diff, merge and invert into a sink, over bound states: what the surface and the command line stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from sync_runtime.bucket.manifest import NO_LINEAGE, Manifest, Version
from sync_runtime.codec.cpu.merge import merge_block
from sync_runtime.codec.limits import CODEC_ANCHOR, CODEC_FAST, CODEC_NUMBERS
from sync_runtime.errors import ChainError, LayoutError, MissingBaseError
from sync_runtime.offline.chain import Chain
from sync_runtime.offline.deltafile import Delta, Ends, describe
from sync_runtime.offline.objects import Sink, Source, write_object
from sync_runtime.offline.staging import BoundState, Comparison, check_base, state_digests
from sync_runtime.tensors.bits import gather
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import ZERO, Digest, total
from sync_runtime.tensors.sparse import Bits, SparseBlock, inverted

Watch = Callable[[Sequence[int]], Iterable[int]]
"""Passes the block numbers through as they are taken: a progress bar."""


def codec_number(codec: str) -> int:
    """The number of a delta codec's name."""
    number = CODEC_NUMBERS.get(codec, CODEC_ANCHOR)
    if number == CODEC_ANCHOR:
        raise LayoutError(f"{codec!r} is not a codec of deltas: use fast, tight or auto")
    return number


def write_diff(
    sink: Sink,
    pair: Comparison,
    *,
    codec: str,
    seqs: tuple[int, int] = (0, 1),
    lineage: str = NO_LINEAGE,
    label: str = "",
    watch: Watch = iter,
    threads: int | None = None,
) -> Manifest:
    """Writes the delta of two states; returns its manifest."""
    blocks = pair.blocks
    source = Source(watch(range(len(blocks))), pair.sparse, pair.old)
    totals = write_object(sink, blocks, codec_number(codec), source, threads)
    origin = Version(seqs[0], total(pair.base_digests()))
    return describe(blocks.layout, totals, Ends(origin, seqs[1], pair.digest_changes(), lineage, label))


def write_merge(
    sink: Sink,
    deltas: Sequence[Delta],
    base: BoundState | None,
    *,
    codec: str,
    label: str = "",
    watch: Watch = iter,
    threads: int | None = None,
) -> Manifest:
    """Writes one delta for several that follow each other; needs the base where an input or the result is tight."""
    check_chain(deltas)
    first, blocks = deltas[0], deltas[0].blocks
    _check_held(first, base, threads)
    old = None if base is None else _gatherer(base)
    chain = Chain(deltas, old)
    source = Source(watch(chain.numbers), lambda block: merge_block(chain.parts(block), block), old)
    changes = tuple(total(column) for column in zip(*(d.manifest.digest_changes for d in deltas), strict=True))
    ends = Ends(first.base, deltas[-1].target.seq, changes, first.manifest.lineage, label)
    return _write(sink, codec, source, ends, blocks=blocks, threads=threads)


def write_inverse(
    sink: Sink,
    delta: Delta,
    base: BoundState | None,
    *,
    codec: str,
    label: str = "",
    watch: Watch = iter,
    threads: int | None = None,
) -> Manifest:
    """Writes the way back; needs the base where the delta or the result is tight."""
    _check_held(delta, base, threads)
    chain = Chain([delta], None if base is None else _gatherer(base))

    def sparse(block: Block) -> SparseBlock:
        return inverted(merge_block(chain.parts(block), block), block.dtype.width_bits)

    source = Source(watch(chain.numbers), sparse, None if base is None else chain.after)
    changes = tuple(ZERO.minus(change) for change in delta.manifest.digest_changes)
    ends = Ends(delta.target, delta.base.seq, changes, delta.manifest.lineage, label)
    return _write(sink, codec, source, ends, blocks=delta.blocks, threads=threads)


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


def state_digest(blocks: BlockMap, state: BoundState, threads: int | None = None) -> Digest:
    """The full digest of a bound state."""
    return total(state_digests(blocks, state, threads))


def _check_held(delta: Delta, base: BoundState | None, threads: int | None) -> None:
    if base is not None:
        check_base(delta, state_digest(delta.blocks, base, threads))


def _write(sink: Sink, codec: str, source: Source, ends: Ends, *, blocks: BlockMap, threads: int | None) -> Manifest:
    number = codec_number(codec)
    if number != CODEC_FAST and source.old is None:
        raise MissingBaseError(f"coding {codec} needs the base's weights")
    return describe(blocks.layout, write_object(sink, blocks, number, source, threads), ends)


def _gatherer(state: BoundState) -> Callable[[Block], Bits]:
    return lambda block: gather(block, state)
