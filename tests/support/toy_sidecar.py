"""A sidecar in memory that publishers and subscribers can both attach to: no network, no codec, no spool.

It keeps every version's state (coder `sidecar`) or object (coder `library`) as bytes, stages them for subscribers, and
can be told to misbehave.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from sync_runtime.errors import SyncError, WrongBaseError
from sync_runtime.local import messages as m
from sync_runtime.local.link import LibraryLink
from sync_runtime.session.local_server import Admission, LocalLimits
from sync_runtime.tensors.layout import Layout, parse_layout
from tests.support.local import ServerThread, serving

RING = LocalLimits(ring_bytes=1 << 16)


@dataclass(frozen=True)
class Kept:
    """A version."""

    lineage: str
    seq: int
    digest: str
    step: int | None
    state: bytes
    object: bytes = b""
    """What leads there from the version before; coder `library`."""

    @property
    def ref(self) -> m.VersionRef:
        """Its name."""
        return m.VersionRef(self.lineage, self.seq)


@dataclass
class Member:
    """One attached subscriber."""

    link: LibraryLink
    live: Kept | None
    staged: Kept | None = None


def digest_of(state: bytes) -> str:
    """Any 128 bits do here."""
    return hashlib.sha256(state).hexdigest()[:32]


def list_between(layout: Layout, old: bytes, new: bytes) -> bytes:
    """The list of new bits that leads from one state to another."""
    found, at = [], 0
    for number, spec in enumerate(layout.tensors):
        size = spec.numel * spec.dtype.width_bytes
        before, after = (np.frombuffer(state[at : at + size], spec.dtype.bits_dtype) for state in (old, new))
        places = np.flatnonzero(before != after)
        if places.size:
            body = places.astype("<u8").tobytes() + after[places].tobytes()
            found.append(struct.pack("<IIQ", number, 0, places.size) + body + bytes(-len(body) % 8))
        at += size
    return b"".join(found)


@dataclass
class ToySidecar:
    """The handler of a local server."""

    versions: list[Kept] = field(default_factory=list)
    layout: Layout | None = None
    members: dict[int, Member] = field(default_factory=dict)
    publishers: list[LibraryLink] = field(default_factory=list)
    said: list[m.Message] = field(default_factory=list)
    fail: dict[type[m.Message], SyncError] = field(default_factory=dict)
    """What the next message of a type is answered with."""
    hang_up_on: type[m.Message] | None = None
    """Dies when this message comes."""
    hang_up_after_durable: bool = False
    """Dies between making a version durable and saying so."""
    silent: bool = False
    """Makes versions durable without saying so."""
    stage_new: bool = True
    """Whether versions are staged as soon as they are there."""
    anchors: list[tuple[m.Anchor, bytes]] = field(default_factory=list)
    _streams: dict[int, tuple[m.Message, bytearray]] = field(default_factory=dict)

    def admit(self, hello: m.Hello) -> Admission:
        """Everyone."""
        return Admission("toy", "member", 1)

    async def attached(self, library: LibraryLink) -> None:
        """Waits for OPEN."""
        if library.hello.kind == "publisher":
            self.publishers = [library]

    async def message(self, library: LibraryLink, message: m.Message) -> None:
        """Answers."""
        self.said.append(message)
        if isinstance(message, self.hang_up_on or ()):
            self.hang_up_on = None
            library.hang_up()
            return
        if type(message) in self.fail:
            raise self.fail.pop(type(message))
        if m.begins_stream(message):
            self._streams[id(library)] = (message, bytearray())
        elif isinstance(message, m.End):
            begin, data = self._streams.pop(id(library))
            await self._complete(library, begin, bytes(data), message)
        elif isinstance(message, m.Cancel):
            self._streams.pop(id(library))
        elif isinstance(message, m.Scrub):
            live = self.members[id(library)].live
            assert live is not None
            await library.send(m.Scrubbed(message.digest == live.digest, message.blocks))
        elif isinstance(message, m.Activate):
            await library.send(m.Go(message.lineage, message.seq, 1))
        elif isinstance(message, m.Activated):
            member = self.members[id(library)]
            member.live, member.staged = self.version(message.lineage, message.seq), None
        elif isinstance(message, m.Close):
            await library.send(m.Closed(True))

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """Keeps it."""
        self._streams[id(library)][1].extend(data)

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """Forgets it."""
        self._streams.pop(id(library), None)
        self.members.pop(id(library), None)

    def version(self, lineage: str, seq: int) -> Kept:
        """A version by name."""
        return next(kept for kept in self.versions if (kept.lineage, kept.seq) == (lineage, seq))

    async def stage(self, member: Member, version: Kept, *, form: m.Form = "list") -> None:
        """Sends a version to a subscriber."""
        assert self.layout is not None
        base = member.staged or member.live
        if member.link.hello.coder == "library":
            await self._stage_object(member, version, base)
            return
        old = base.state if base is not None else bytes(len(version.state))
        data = version.state if form == "state" else list_between(self.layout, old, version.state)
        member.staged = version
        begin = m.Stage(
            version.lineage, version.seq, version.digest, version.step,
            None if base is None or form == "state" else base.ref, form, len(data),
        )  # fmt: skip
        await member.link.stream(begin, [data], m.End())

    async def _stage_object(self, member: Member, version: Kept, base: Kept | None) -> None:
        assert base is not None
        assert version.seq == base.seq + 1
        member.staged = version
        await self.stage_bytes(member, version, base.ref, version.object)

    async def stage_bytes(self, member: Member, version: Kept, base: m.VersionRef | None, data: bytes) -> None:
        """Sends any bytes as an object."""
        size = len(data)
        begin = m.Stage(version.lineage, version.seq, version.digest, version.step, base, "object", size)
        await member.link.stream(begin, [data], m.End())

    async def stage_newest(self) -> None:
        """Sends the newest version to every subscriber that lacks it and that its one object leads there."""
        for member in list(self.members.values()):
            if self.versions and (member.staged or member.live) != self.versions[-1] and self._leads(member):
                await self.stage(member, self.versions[-1])

    def _leads(self, member: Member) -> bool:
        """A coder `library` takes objects, and the toy has only those of neighbours in a lineage."""
        base, newest = member.staged or member.live, self.versions[-1]
        if member.link.hello.coder != "library":
            return True
        return base is not None and (newest.lineage, newest.seq) == (base.lineage, base.seq + 1)

    async def repair(self, member: Member, damaged: bytes) -> None:
        """Sends a subscriber the bits that its live version should have."""
        assert self.layout is not None
        assert member.live is not None
        live, data = member.live, list_between(self.layout, damaged, member.live.state)
        begin = m.Stage(live.lineage, live.seq, live.digest, live.step, live.ref, "list", len(data))
        await member.link.stream(begin, [data], m.End())

    async def _complete(self, library: LibraryLink, begin: m.Message, data: bytes, end: m.End) -> None:
        if isinstance(begin, m.Open):
            self.layout = parse_layout(data[: begin.layout_bytes])
            await self._open(library, begin, data[begin.layout_bytes :])
        elif isinstance(begin, m.Publish):
            await self._publish(library, begin, data, end)
        elif isinstance(begin, m.Anchor):
            self.anchors.append((begin, data))
        elif isinstance(begin, m.Scrub):
            live = self.members[id(library)].live
            assert live is not None
            passed = live.state == data
            await library.send(m.Scrubbed(passed, () if passed else ((0, 1),)))
            if not passed:
                await self.repair(self.members[id(library)], data)

    async def _open(self, library: LibraryLink, begin: m.Open, state: bytes) -> None:
        digests = (digest_of(state),) if begin.state else begin.digests
        if library.hello.kind == "subscriber":
            live = next((kept for kept in self.versions[::-1] if kept.digest in digests), None)
            self.members[id(library)] = Member(library, live)
            if live is None:
                await library.send(m.Opened(None, None, None, None, False))
                return
            await library.send(m.Opened(live.lineage, live.seq, live.digest, live.step, True))
            return
        newest = self.versions[-1] if self.versions else None
        follows = begin.resume and library.hello.coder == "sidecar"  # the mirror is one version further
        before = [kept.digest for kept in self.versions[-2:]] if follows else []
        continued = newest is not None and (newest.digest in digests or bool(set(before) & set(digests)))
        if begin.resume and not continued:
            raise WrongBaseError("that version is not here")
        if not continued or newest is None:
            newest = Kept(secrets.token_hex(16), 0, digests[0], None, state)
            self.versions.append(newest)
        await library.send(m.Opened(newest.lineage, newest.seq, newest.digest, newest.step, continued))

    async def _publish(self, library: LibraryLink, begin: m.Publish, data: bytes, end: m.End) -> None:
        last = self.versions[-1]
        if end.totals is None:
            kept = Kept(last.lineage, last.seq + 1, digest_of(data), begin.step, data)
        else:
            kept = Kept(last.lineage, last.seq + 1, end.totals.digest, begin.step, b"", data)
        self.versions.append(kept)
        if self.hang_up_after_durable:
            self.hang_up_after_durable = False
            library.hang_up()
            return
        if self.silent:
            return
        await library.send(m.Published(kept.lineage, kept.seq, kept.digest, 0, len(data), {}))
        if self.stage_new:
            await self.stage_newest()


@contextmanager
def toy_sidecar(path: str, sidecar: ToySidecar | None = None) -> Iterator[tuple[ToySidecar, ServerThread]]:
    """A sidecar on a socket."""
    handler = sidecar or ToySidecar()
    with serving(path, handler, RING) as server:
        yield handler, server
