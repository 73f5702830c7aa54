"""The trainer's session: takes states or objects from the library and makes durable, signed versions of them.

Lives on the brain's loop; coding and disk work run in threads. Buckets leave as they are written; the version exists
when its manifest is durable, and only then does the base advance. What fails leaves nothing behind: the next version is
cut from the last durable one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sync_runtime.bucket.keys import FAST, TIGHT, ObjectKey, VersionRef, delta_key
from sync_runtime.bucket.manifest import Manifest, Version, pack_envelope
from sync_runtime.bucket.spool import ObjectWriter, Spool
from sync_runtime.errors import LibraryLostError, LocalProtocolError, SyncError, WrongBaseError
from sync_runtime.local.link import LibraryLink
from sync_runtime.local.messages import (
    Cancel,
    Close,
    Closed,
    End,
    Message,
    Note,
    Open,
    Opened,
    Publish,
    Published,
    Totals,
)
from sync_runtime.offline.staging import Comparison
from sync_runtime.offline.streams import write_diff
from sync_runtime.session.lineage import Position, open_position
from sync_runtime.session.machine import PublishEvent, PublishState, publisher_machine
from sync_runtime.session.mirror import Mirror
from sync_runtime.session.relay import Distributor, Shelved
from sync_runtime.session.versions import Versions
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest, parse_digest, total
from sync_runtime.tensors.layout import Layout, parse_layout
from sync_runtime.transport.messages import BaseVersion, Begin, Head

DRAIN_POLL_S = 0.05


@dataclass(frozen=True)
class TrainerContext:
    """What the session works with."""

    spool: Spool
    versions: Versions
    distributor: Distributor
    group_uid: str
    sign: Callable[[bytes], bytes]
    """Ed25519 over a manifest's JSON, with the current certificate's key."""
    bucket_bytes: Callable[[], int]
    streams: Callable[[], int]
    trace: Callable[[VersionRef], str]
    """Begins the trace of a version; its traceparent, or nothing."""
    published: Callable[[VersionRef, Mapping[str, int]], None]
    """Told of every durable version with its timings in microseconds."""


@dataclass(frozen=True)
class Snapshot:
    """Weights of a version, for anchors."""

    version: VersionRef
    digest: Digest
    mirror: Mirror


@dataclass
class _Writing:
    """A version on its way into the spool."""

    key: ObjectKey
    step: int | None
    label: str
    writer: ObjectWriter
    trace: str
    started: float
    coding: asyncio.Task[Manifest] | None = None
    timings_us: dict[str, int] = field(default_factory=dict)


class PublisherSession:
    """One trainer's library at a time."""

    def __init__(self, context: TrainerContext) -> None:
        self._context = context
        self._machine = publisher_machine()
        self._library: LibraryLink | None = None
        self._layout: Layout | None = None
        self._document = bytearray()
        self._open: Open | None = None
        self._opened_layout: Layout | None = None
        self._digest_before: str | None = None
        """Of the version before the newest: a publisher that did not hear PUBLISHED still stands there."""
        self._base: Mirror | None = None
        self._incoming: Mirror | None = None
        self._position: Position | None = None
        self._writing: _Writing | None = None
        self._tight: asyncio.Task[None] | None = None
        self._step: int | None = None

    @property
    def state(self) -> PublishState:
        """What it is doing."""
        return self._machine.state

    @property
    def version(self) -> VersionRef | None:
        """The newest durable version of this opening."""
        return None if self._position is None else VersionRef(self._position.lineage, self._position.seq)

    @property
    def step(self) -> int | None:
        """The user's number of it."""
        return self._step

    def snapshot(self) -> Snapshot | None:
        """The last durable version and its weights, which do not change any more; None with coder `library`."""
        if self._base is None or self._position is None:
            return None
        return Snapshot(VersionRef(self._position.lineage, self._position.seq), self._position.digest, self._base)

    # --- what the library says ---------------------------------------------------------------------------------------

    async def attached(self, library: LibraryLink) -> None:
        """A library is in."""
        if self._library is not None:
            raise LocalProtocolError("another publisher is connected: a trainer has one, several ranks come later")
        self._library = library

    async def message(self, library: LibraryLink, message: Message) -> None:
        """A message of the library."""
        match message:
            case Open():
                self._begin_open(message)
            case Publish():
                await self._begin_publish(message)
            case End():
                await self._end(library, message)
            case Cancel(reason=reason):
                await self._failed(LocalProtocolError(f"the library gave up: {reason}"))
            case Close(drain_ms=drain_ms):
                await library.send(Closed(await self._drain(drain_ms / 1000)))
            case Note():
                return
            case _:
                raise LocalProtocolError(f"a publisher does not send {type(message).__name__}")

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """Bytes of the layout, of a state, or of an object."""
        rest = self._take_document(data) if self._machine.state is PublishState.OPENING else data
        if not len(rest):
            return
        if self._writing is not None and library.hello.coder == "library":
            await self._write_object(bytes(rest))
            return
        if self._incoming is None:
            raise LocalProtocolError("bytes of a state came where none was announced")
        # A copy into mapped pages: short enough for the loop, and the encoder may already be waiting for it.
        self._incoming.append(rest)

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """The library is gone."""
        if library is not self._library:
            return
        self._library = None
        if self._machine.allows(PublishEvent.LIBRARY_GONE):
            self._machine.feed(PublishEvent.LIBRARY_GONE)
        await self._abort(f"the user's process went away: {reason}")
        self._incoming = None

    # --- opening -----------------------------------------------------------------------------------------------------

    def _begin_open(self, message: Open) -> None:
        self._machine.feed(PublishEvent.LIBRARY_OPENS)
        self._open, self._document = message, bytearray()
        self._opened_layout = None

    def _take_document(self, data: memoryview) -> memoryview:
        """The layout's document comes first; returns what is behind it."""
        if self._open is None:
            raise LocalProtocolError("bytes came before OPEN")
        missing = self._open.layout_bytes - len(self._document)
        self._document += data[:missing]
        if self._opened_layout is None and len(self._document) == self._open.layout_bytes:
            self._opened_layout = parse_layout(bytes(self._document))
            if self._open.state:
                self._incoming = Mirror.create(self._context.spool.path / "mirror", self._opened_layout)
        return data[missing:] if missing < len(data) else data[len(data) :]

    async def _opened(self, library: LibraryLink, message: Open) -> None:
        """The state is here, or its digest: which version is it?"""
        layout = self._opened_layout
        if layout is None:
            raise LocalProtocolError("OPEN ended before the layout was complete")
        if message.resume:
            position = self._resumed(message.digests, layout, needs_mirror=library.hello.coder == "sidecar")
        else:
            position = await self._found(message, layout)
        self._machine.feed(PublishEvent.DIGEST_KNOWN)
        self._position, self._layout = position, layout
        if self._incoming is not None:
            if self._base is not None:
                self._base.remove()
            self._base, self._incoming = self._incoming, None
        self._tell_index(position)
        await library.send(
            Opened(position.lineage, position.seq, str(position.digest), self._step, position.is_continued)
        )

    def _resumed(self, digests: Sequence[str], layout: Layout, *, needs_mirror: bool) -> Position:
        """A publisher that lost this sidecar, or its connection: its weights have gone on, the version has not."""
        position = self._position
        if position is None or self._layout is None or self._layout.hash != layout.hash:
            raise WrongBaseError("this sidecar does not hold the version to go on from: open with the weights")
        if needs_mirror and self._base is None:
            raise WrongBaseError("this sidecar has no mirror of that version: open with the weights")
        known = {str(position.digest), *([self._digest_before] if needs_mirror else [])}
        if not known & set(digests):
            raise WrongBaseError("the publisher stands on another version than this sidecar: open with the weights")
        return replace(position, is_continued=True)

    async def _found(self, message: Open, layout: Layout) -> Position:
        context = self._context
        if self._incoming is not None:
            digest = await asyncio.to_thread(self._incoming.digest)
        elif len(message.digests) == 1:
            digest = parse_digest(message.digests[0])
        else:
            raise LocalProtocolError("OPEN without a state must carry the digest of the live weights")
        layout_hash = await asyncio.to_thread(context.spool.put_layout, layout.document)
        return await asyncio.to_thread(
            open_position, context.spool, context.versions.fence, context.group_uid, digest, layout_hash
        )

    def _tell_index(self, position: Position) -> None:
        context = self._context
        for known in (*position.before, position.record):
            rows = [(seq, str(digest)) for seq, digest in sorted(known.digests.items())]
            origin = known.origin
            context.versions.learn_lineage(known.lineage, rows, start=origin, current=known.lineage == position.lineage)
            context.distributor.tell_index(known.lineage)
        self._tell_head("")

    def _tell_head(self, trace: str) -> None:
        position, fence = self._position, self._context.versions.fence
        if position is None or fence.incarnation is None:
            return
        self._context.versions.learn_head(VersionRef(position.lineage, position.seq), str(position.digest))
        self._context.distributor.set_head(
            Head(
                lineage=position.lineage,
                seq=position.seq,
                digest=str(position.digest),
                step=self._step,
                term=fence.term,
                incarnation=fence.incarnation,
                published_unix_ns=time.time_ns(),
                trace=trace,
            )
        )

    # --- publishing --------------------------------------------------------------------------------------------------

    async def _begin_publish(self, message: Publish) -> None:
        context, position, layout = self._context, self._position, self._layout
        if position is None or layout is None:
            raise LocalProtocolError("PUBLISH came before OPEN")
        if self._tight is not None:
            await self._tight  # it reads the base that is about to be compared and replaced
        self._machine.feed(PublishEvent.PUBLISH)
        key = delta_key(position.lineage, position.seq, position.seq + 1)
        try:
            writer = await asyncio.to_thread(
                context.spool.create, key, layout.hash.hex(), context.bucket_bytes(), streams=context.streams()
            )
        except SyncError:
            self._machine.feed(PublishEvent.FAILED)
            raise
        trace = context.trace(key.target)
        label = message.label or ("" if message.step is None else str(message.step))
        self._writing = _Writing(key, message.step, label, writer, trace, time.monotonic())
        if context.distributor.wants_codec(TIGHT) and self._base is not None:
            context.distributor.promise(replace(key, codec=TIGHT))
        context.distributor.begun(Shelved(key, self._begin_message(key, trace), writer))
        if self._base is not None:
            self._incoming = Mirror.create(context.spool.path / "mirror", layout)
            self._writing.coding = asyncio.create_task(self._code(self._writing, self._base, self._incoming))

    def _begin_message(self, key: ObjectKey, trace: str) -> Begin:
        position, fence = self._position, self._context.versions.fence
        if position is None or self._layout is None:
            raise LocalProtocolError("nothing is open")
        return Begin(
            key=key.text,
            base=BaseVersion(seq=position.seq, digest=str(position.digest)),
            target_seq=key.target_seq,
            codec="tight" if key.codec == TIGHT else "fast",
            layout=self._layout.hash.hex(),
            term=fence.term,
            incarnation=fence.incarnation or "",
            trace=trace,
            priority=0,
        )

    async def _code(self, writing: _Writing, base: Mirror, incoming: Mirror) -> Manifest:
        """Compares and encodes on other threads while the state is still arriving."""
        loop = asyncio.get_running_loop()
        pair = Comparison(BlockMap(base.layout), base.bound(), incoming.bound())
        sink = _Sink(writing.writer, lambda index: self._kept(loop, writing.key, index))
        position = self._position
        if position is None:
            raise LocalProtocolError("nothing is open")

        def work() -> Manifest:
            manifest = write_diff(
                sink,
                pair,
                codec=FAST,
                seqs=(position.seq, position.seq + 1),
                lineage=position.lineage,
                label=writing.label,
                watch=lambda numbers: _as_they_arrive(numbers, pair.blocks, incoming),
            )
            sink.finish()
            return manifest

        return await asyncio.to_thread(work)

    def _kept(self, loop: asyncio.AbstractEventLoop, key: ObjectKey, index: int) -> None:
        loop.call_soon_threadsafe(self._context.distributor.bucket, key, index)

    async def _write_object(self, data: bytes) -> None:
        writing = self._writing
        if writing is None:
            return
        for kept in await asyncio.to_thread(writing.writer.write, data):
            self._context.distributor.bucket(writing.key, kept.index)

    async def _end(self, library: LibraryLink, message: End) -> None:
        """The end of a stream: of OPEN, or of PUBLISH."""
        if self._machine.state is PublishState.OPENING:
            try:
                await self._opened(library, self._open_message())
            except LibraryLostError:
                raise
            except SyncError:
                self._machine.feed(PublishEvent.FAILED)
                self._incoming = None
                raise
            return
        writing = self._writing
        if writing is None:
            return  # it failed before; the library was told
        try:
            manifest = await self._manifest(writing, message.totals)
            self._machine.feed(PublishEvent.OBJECT_COMPLETE)
            answer = await self._commit(writing, manifest)
        except LibraryLostError:
            raise
        except SyncError as error:
            await self._failed(error)
            raise
        writing.timings_us.update(message.timings_us or {})
        await library.send(answer)

    def _open_message(self) -> Open:
        if self._open is None:
            raise LocalProtocolError("END came before OPEN")
        return self._open

    async def _manifest(self, writing: _Writing, totals: Totals | None) -> Manifest:
        if writing.coding is not None:
            if self._incoming is None or not self._incoming.is_complete:
                writing.coding.cancel()
                raise LocalProtocolError("the state ended before all of its bytes had come")
            manifest = await writing.coding
        elif totals is not None:
            await asyncio.to_thread(writing.writer.finish)
            for index in range(len(writing.writer.buckets)):
                self._context.distributor.bucket(writing.key, index)
            manifest = self._manifest_of_library(writing, totals)
        else:
            raise LocalProtocolError("END of an object must carry its totals")
        return replace(manifest, buckets=writing.writer.buckets)

    def _manifest_of_library(self, writing: _Writing, totals: Totals) -> Manifest:
        position, layout = self._position, self._layout
        if position is None or layout is None:
            raise LocalProtocolError("nothing is open")
        changes = tuple(
            parse_digest(totals.digest_changes[at : at + 32]) for at in range(0, len(totals.digest_changes), 32)
        )
        target = position.digest.plus(total(changes))
        if str(target) != totals.digest:
            raise LocalProtocolError("the library's digests contradict each other")
        return Manifest(
            codec=totals.codec,
            layout_hash=layout.hash.hex(),
            base=Version(position.seq, position.digest),
            target=Version(position.seq + 1, target),
            num_blocks=totals.blocks,
            num_changed=totals.changed,
            buckets=(),
            digest_changes=changes,
            lineage=position.lineage,
            label=writing.label,
        )

    async def _commit(self, writing: _Writing, manifest: Manifest) -> Published:
        context, position = self._context, self._position
        if position is None:
            raise LocalProtocolError("nothing is open")
        document = manifest.to_json()
        coded = time.monotonic()
        envelope = pack_envelope(document, context.sign(document))
        await asyncio.to_thread(writing.writer.commit, envelope)
        self._machine.feed(PublishEvent.DURABLE)
        durable = time.monotonic()
        writing.timings_us |= {
            "encode": int((coded - writing.started) * 1e6),
            "spool": int((durable - coded) * 1e6),
        }
        old, self._base = self._base, self._incoming or self._base
        self._incoming, self._writing, self._step = None, None, writing.step
        self._digest_before = str(position.digest)
        self._position = position.advanced(manifest.target)
        context.distributor.completed(writing.key, envelope)
        self._tell_head(writing.trace)
        context.distributor.stored(writing.key)
        tight = replace(writing.key, codec=TIGHT)
        if old is not None and self._base is not None and context.distributor.wants_codec(TIGHT):
            self._tight = asyncio.create_task(self._write_tight(tight, old, self._base, manifest, writing.trace))
        elif old is not None and old is not self._base:
            old.remove()
        context.published(writing.key.target, writing.timings_us)
        return Published(
            position.lineage,
            manifest.target.seq,
            str(manifest.target.digest),
            manifest.num_changed,
            manifest.size_bytes,
            writing.timings_us,
        )

    async def _write_tight(self, key: ObjectKey, old: Mirror, new: Mirror, fast: Manifest, trace: str) -> None:
        """The same delta once more in fewer bytes, for slow links. Its failure costs only those bytes."""
        context = self._context
        base = fast.base
        if base is None:
            return
        loop = asyncio.get_running_loop()
        try:
            writer = await asyncio.to_thread(
                context.spool.create, key, fast.layout_hash, context.bucket_bytes(), streams=context.streams()
            )
            begin = replace_begin(self._begin_message(key, trace), base)
            context.distributor.begun(Shelved(key, begin, writer))
            sink = _Sink(writer, lambda index: self._kept(loop, key, index))
            pair = Comparison(BlockMap(old.layout), old.bound(), new.bound())

            def work() -> Manifest:
                manifest = write_diff(
                    sink,
                    pair,
                    codec=TIGHT,
                    seqs=(base.seq, fast.target.seq),
                    lineage=fast.lineage,
                    label=fast.label,
                )
                sink.finish()
                return replace(manifest, buckets=writer.buckets)

            manifest = await asyncio.to_thread(work)
            document = manifest.to_json()
            envelope = pack_envelope(document, context.sign(document))
            await asyncio.to_thread(writer.commit, envelope)
            await asyncio.sleep(0)  # the last buckets' calls are in the loop's queue before this one
            context.distributor.completed(key, envelope)
            context.distributor.stored(key)
        except SyncError:
            context.distributor.aborted(key, "Failed")
        finally:
            old.remove()
            self._tight = None

    async def _failed(self, error: SyncError) -> None:
        if self._machine.allows(PublishEvent.FAILED):
            self._machine.feed(PublishEvent.FAILED)
        await self._abort(str(error))

    async def _abort(self, reason: str) -> None:
        """Nothing of a version that failed stays, here or anywhere."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        if self._incoming is not None:
            self._incoming.give_up(reason)  # wakes the encoder, which then fails
        if writing.coding is not None:
            await asyncio.gather(writing.coding, return_exceptions=True)
        await asyncio.to_thread(writing.writer.abort)
        self._context.distributor.aborted(writing.key, "Failed")
        self._context.distributor.aborted(replace(writing.key, codec=TIGHT), "Failed")
        if self._incoming is not None:
            self._incoming.remove()
            self._incoming = None

    async def _drain(self, timeout_s: float) -> bool:
        """Whether everyone below has the newest version, after so long at most."""
        end = time.monotonic() + timeout_s
        while True:
            if self._tight is None and not any(view.transfers for view in self._context.distributor.children):
                return True
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(DRAIN_POLL_S)


class _Sink:
    """Takes an object's bytes in a coding thread and tells of every bucket that became whole."""

    def __init__(self, writer: ObjectWriter, kept: Callable[[int], None]) -> None:
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


def replace_begin(begin: Begin, base: Version) -> Begin:
    """A BEGIN for another base than the newest version."""
    return begin.model_copy(update={"base": BaseVersion(seq=base.seq, digest=str(base.digest))})
