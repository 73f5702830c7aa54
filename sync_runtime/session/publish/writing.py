"""One version on its way into the spool: from PUBLISH to a durable, signed manifest, or to nothing at all.

Coding and disk work run in threads. Buckets are shown to children as they become whole; before the manifest is durable
they mean nothing, and `abort` takes them back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from sync_runtime.bucket.keys import FAST, TIGHT, ObjectKey, delta_key
from sync_runtime.bucket.manifest import Manifest, Version, pack_envelope
from sync_runtime.bucket.spool import ObjectWriter
from sync_runtime.errors import LocalProtocolError, SyncError
from sync_runtime.local.messages import Publish, Totals
from sync_runtime.offline.staging import Comparison
from sync_runtime.offline.streams import write_diff
from sync_runtime.session.mirror import Mirror
from sync_runtime.session.publish.context import Standing, TrainerContext
from sync_runtime.session.relay import Shelved
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import parse_digest, total
from sync_runtime.transport.messages import BaseVersion, Begin


class Writing:
    """A version that is not durable yet."""

    def __init__(
        self,
        context: TrainerContext,
        standing: Standing,
        message: Publish,
        writer: ObjectWriter,
        incoming: Mirror | None,
    ) -> None:
        """Use `begin`."""
        self._context, self._standing = context, standing
        self.key = writer.key
        self.step = message.step
        self.label = message.label or ("" if message.step is None else str(message.step))
        self.incoming = incoming
        """The new state; None: the library codes."""
        self.trace = context.trace(self.key.target, message.step)
        self.tight = False
        """Whether the `tight` object is to follow: children wait for it."""
        self.timings_us: dict[str, int] = {}
        self._writer = writer
        self._started = time.monotonic()
        self._coding: asyncio.Task[Manifest] | None = None

    @classmethod
    async def begin(cls, context: TrainerContext, standing: Standing, message: Publish, *, tight: bool) -> Writing:
        """Takes room in the spool and tells the children; a failure leaves nothing. `tight`: that follows."""
        position, layout = standing.position, standing.layout
        key = delta_key(position.lineage, position.seq, position.seq + 1)
        size_bytes, streams = context.bucket_bytes(), context.streams()
        writer = await asyncio.to_thread(context.spool.create, key, layout.hash.hex(), size_bytes, streams=streams)
        incoming = None
        try:
            if standing.mirror is not None:
                incoming = await asyncio.to_thread(Mirror.create, context.mirrors, layout)
        except SyncError:
            await asyncio.to_thread(writer.abort)
            raise
        writing = cls(context, standing, message, writer, incoming)
        writing.tight = tight
        if tight:
            context.distributor.promise(replace(key, codec=TIGHT))
        context.distributor.begun(Shelved(key, begin_message(context, standing, key, writing.trace), writer))
        if standing.mirror is not None and incoming is not None:
            writing._coding = asyncio.create_task(writing._code(standing.mirror, incoming))
        return writing

    async def take(self, data: memoryview) -> None:
        """The next bytes of the state, or of the library's object."""
        if self.incoming is not None:
            # A copy into mapped pages: short enough for the loop, and the encoder may already be waiting for it.
            self.incoming.append(data)
            return
        for kept in await asyncio.to_thread(self._writer.write, bytes(data)):
            self._context.distributor.bucket(self.key, kept.index)

    async def manifest(self, totals: Totals | None) -> Manifest:
        """The stream is at its end: everything is coded and cut when this returns."""
        if self._coding is not None:
            if self.incoming is None or not self.incoming.is_complete:
                raise LocalProtocolError("the state ended before all of its bytes had come")
            manifest = await self._coding
        elif totals is not None:
            await asyncio.to_thread(self._writer.finish)
            for index in range(len(self._writer.buckets)):
                self._context.distributor.bucket(self.key, index)
            manifest = _manifest_of_library(self._standing, totals, self.label)
        else:
            raise LocalProtocolError("END of an object must carry its totals")
        return replace(manifest, buckets=self._writer.buckets)

    async def commit(self, manifest: Manifest) -> bytes:
        """Signs and makes durable; returns the envelope."""
        coded = time.monotonic()
        document = manifest.to_json()
        envelope = pack_envelope(document, self._context.sign(document))
        signed = time.monotonic()
        await asyncio.to_thread(self._writer.commit, envelope)
        spent_us = int((coded - self._started) * 1e6)
        self.timings_us = {
            "encode": max(0, spent_us - self.timings_us.get("copy", 0)),
            "sign": int((signed - coded) * 1e6),
            "spool": int((time.monotonic() - signed) * 1e6),
            **self.timings_us,
        }
        return envelope

    async def abort(self, reason: str) -> None:
        """Nothing of it stays, here or anywhere."""
        if self.incoming is not None:
            self.incoming.give_up(reason)  # wakes the encoder, which then fails
        if self._coding is not None:
            await asyncio.gather(self._coding, return_exceptions=True)
        await asyncio.to_thread(self._writer.abort)
        self._context.distributor.aborted(self.key, "Failed")
        self._context.distributor.aborted(replace(self.key, codec=TIGHT), "Failed")
        self._context.failed(self.key.target, reason)
        if self.incoming is not None:
            self.incoming.remove()

    async def _code(self, base: Mirror, incoming: Mirror) -> Manifest:
        """Compares and encodes on other threads while the state is still arriving."""
        pair = Comparison(BlockMap(base.layout), base.bound(), incoming.bound())
        return await code_diff(
            self._context,
            self._writer,
            pair,
            self._standing.position.seq,
            label=self.label,
            watch=lambda numbers: _as_they_arrive(numbers, pair.blocks, incoming),
        )


async def code_diff(
    context: TrainerContext,
    writer: ObjectWriter,
    pair: Comparison,
    base_seq: int,
    *,
    label: str,
    watch: Callable[[Iterable[int]], Iterator[int]] = iter,
) -> Manifest:
    """Writes the delta of two states in another thread, bucket by bucket onto the children's links."""
    loop, key = asyncio.get_running_loop(), writer.key
    sink = _Sink(writer, lambda index: loop.call_soon_threadsafe(context.distributor.bucket, key, index))

    def work() -> Manifest:
        manifest = write_diff(
            sink,
            pair,
            codec=TIGHT if key.codec == TIGHT else FAST,
            seqs=(base_seq, key.target_seq),
            lineage=key.lineage,
            label=label,
            watch=watch,
        )
        sink.finish()
        return replace(manifest, buckets=writer.buckets)

    return await asyncio.to_thread(work)


def begin_message(context: TrainerContext, standing: Standing, key: ObjectKey, trace: str) -> Begin:
    """What children are told of an object that starts from where the publisher stands."""
    fence = context.versions.fence
    return Begin(
        key=key.text,
        base=BaseVersion(seq=standing.position.seq, digest=str(standing.position.digest)),
        target_seq=key.target_seq,
        codec="tight" if key.codec == TIGHT else "fast",
        layout=standing.layout.hash.hex(),
        term=fence.term,
        incarnation=fence.incarnation or "",
        trace=trace,
        priority=0,
    )


def _manifest_of_library(standing: Standing, totals: Totals, label: str) -> Manifest:
    position = standing.position
    changes = tuple(
        parse_digest(totals.digest_changes[at : at + 32]) for at in range(0, len(totals.digest_changes), 32)
    )
    target = position.digest.plus(total(changes))
    if str(target) != totals.digest:
        raise LocalProtocolError("the library's digests contradict each other")
    return Manifest(
        codec=totals.codec,
        layout_hash=standing.layout.hash.hex(),
        base=Version(position.seq, position.digest),
        target=Version(position.seq + 1, target),
        num_blocks=totals.blocks,
        num_changed=totals.changed,
        buckets=(),
        digest_changes=changes,
        lineage=position.lineage,
        label=label,
    )


class _Sink:
    """Takes an object's bytes in a coding thread and tells of every bucket that became whole."""

    def __init__(self, writer: ObjectWriter, kept: Callable[[int], object]) -> None:
        self._writer, self._kept = writer, kept

    def write(self, data: bytes, /) -> None:
        """The next bytes."""
        for bucket in self._writer.write(data):
            self._kept(bucket.index)

    def finish(self) -> None:
        """The last buckets."""
        for bucket in self._writer.finish():
            self._kept(bucket.index)


def _as_they_arrive(numbers: Iterable[int], blocks: BlockMap, incoming: Mirror) -> Iterator[int]:
    """Block numbers, each once the tensors it needs have come."""
    for number in numbers:
        for piece in blocks.block(number).pieces:
            incoming.wait_for(piece.tensor)
        yield number
