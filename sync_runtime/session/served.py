"""A served checkpoint folder as a member's engine: for rollouts that only know `from_pretrained`.

What a library does in the user's process happens here: the folder opens with its full digest, versions are decoded from
the spool against it, the link moves when leave is given, and a scrub follows. So joining, catching up, new lineages and
reports are those of any engine. Several versions that wait for readers to leave are taken in one step.

Lives on the brain's loop; the folder's work runs in threads. Knows no parent and no wire.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from sync_runtime.bucket.durable import disk_errors
from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.errors import LayoutError, LibraryLostError, SettingsError, SyncError
from sync_runtime.local import messages as local
from sync_runtime.local.link import Library
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.served.copies import Held
from sync_runtime.offline.served.folder import CURRENT, ServedFolder
from sync_runtime.session.members import EngineSession
from sync_runtime.session.stager import Stager
from sync_runtime.session.versions import Versions
from sync_runtime.session.weights import EngineWeights
from sync_runtime.tensors.digest import Digest
from sync_runtime.tensors.layout import Layout, parse_layout

_log = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_S = 1.0
"""Between two attempts to open."""
LOOK_S = 0.2
"""Between two looks at whether anybody still reads the copy that is to be written."""
MAX_FOLDED = 64
"""Versions that are taken in one step."""
TROUBLE = "ServedFolder"


class FolderLibrary:
    """What the session takes for a library that codes. It is told little: objects are taken from the spool."""

    def __init__(self) -> None:
        self._hello = local.Hello(local.PROTOCOLS, "subscriber", 0, 1, os.getpid(), "library", "")
        self.ended, self.scrub_due = asyncio.Event(), asyncio.Event()

    @property
    def hello(self) -> local.Hello:
        """One rank that decodes by itself."""
        return self._hello

    @property
    def is_lost(self) -> bool:
        """Whether the session hung up."""
        return self.ended.is_set()

    async def send(self, message: local.Message) -> None:
        """Of all that a library is told, a folder only needs to know that a scrub is wanted."""
        if isinstance(message, local.Recheck):
            self.scrub_due.set()

    async def send_quietly(self, message: local.Message) -> None:
        """The same."""
        await self.send(message)

    async def stream(
        self, begin: local.Message, chunks: Iterable[bytes | memoryview] | AsyncIterable[bytes | memoryview],
        end: local.End,
    ) -> None:  # fmt: skip
        """Nothing is streamed to a folder: where the session tries to, both disagree, and a full digest decides."""
        del begin, chunks, end
        raise LibraryLostError("a served folder takes objects from the spool, not from a stream")

    def hang_up(self) -> None:
        """It opens again with its full digest."""
        self.ended.set()


class FolderEngine:
    """Keeps one folder level with the group."""

    def __init__(self, root: Path, base: Path, spool: Spool, grace_s: float) -> None:
        self._root, self._base, self.spool, self._grace_s = root, base, spool, grace_s
        self._folder: ServedFolder | None = None
        self._session: EngineSession | None = None
        self.busy = asyncio.Lock()
        """Held while an object is being staged: what it was staged for must not go away meanwhile."""
        self._turn = asyncio.Lock()
        """Held from leave to ACTIVATED: a scrub's word is not for a version in between."""

    def stager(self, weights: EngineWeights, versions: Versions) -> Stager:
        """What the session stages with."""
        return FolderStager(self, weights, versions)

    @property
    def folder(self) -> ServedFolder:
        """The folder, once it is open."""
        if self._folder is None:
            raise LibraryLostError(f"the folder {self._root} is not open")
        return self._folder

    async def run(self, session: EngineSession) -> None:
        """Serves until it is cancelled."""
        self._session = session
        try:
            while True:
                library, reason = FolderLibrary(), "its session hung up"
                try:
                    await self._serve(session, library)
                except SyncError as error:
                    reason = str(error)
                    self._tell_trouble(session, reason)
                finally:
                    library.hang_up()
                    async with self.busy:
                        await session.detached(library, reason)
                await asyncio.sleep(RETRY_S)
        finally:
            if self._folder is not None:
                self._folder.close()

    async def activate(self, library: Library, version: VersionRef) -> None:
        """Moves the link to what is prepared, with the session's leave; raises SyncError where there is none."""
        session = self._session
        if session is None:
            raise LibraryLostError("nobody gives leave")
        async with self._turn:
            await session.message(library, local.Activate(version.lineage, version.seq))
            await in_thread(f"serving {self._root}", self.folder.switch)
            await session.message(library, local.Activated(version.lineage, version.seq, 0))
        if isinstance(library, FolderLibrary):
            library.scrub_due.set()

    async def staged(self, library: Library, version: VersionRef, spent_us: int) -> None:
        """Tells how long it took."""
        if self._session is not None:
            message = local.Staged(version.lineage, version.seq, {"stage": spent_us})
            await self._session.message(library, message)

    async def _serve(self, session: EngineSession, library: FolderLibrary) -> None:
        if self._folder is None:
            self._folder = await in_thread(f"opening {self._root}", self._opened)
            _log.info("versions are served at %s", self._root / CURRENT)
        digest = await in_thread(f"reading {self._root}", self.folder.digest)
        if session.trouble is not None and session.trouble[0] == TROUBLE:
            session.trouble = None
        document = self.folder.layout.document
        await session.attached(library)
        await session.message(library, local.Open(len(document), False, (str(digest),), resume=False))
        await session.data(library, memoryview(document))
        await session.message(library, local.End())
        while not library.is_lost:
            waiting = [asyncio.ensure_future(one.wait()) for one in (library.ended, library.scrub_due)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waiting:
                    one.cancel()
            if library.scrub_due.is_set() and not library.is_lost:
                library.scrub_due.clear()
                await self._scrub(session, library)

    async def _scrub(self, session: EngineSession, library: FolderLibrary) -> None:
        version = session.live
        digest: Digest = await in_thread(f"reading {self._root}", self.folder.digest)
        async with self._turn:
            if version is not None and session.live == version and not library.is_lost:
                await session.message(library, local.Scrub(*version, str(digest), (), state=False))

    def _opened(self) -> ServedFolder:
        if not (self._root / CURRENT).is_symlink() and not self._base.is_dir():
            raise SettingsError(
                f"the checkpoint folder {self._base} is not there, from which {self._root} is made: put it there"
            )
        return ServedFolder(self._root, self._base, grace_s=self._grace_s)

    def _tell_trouble(self, session: EngineSession, sentence: str) -> None:
        if session.trouble != (TROUBLE, sentence):
            _log.warning("%s", sentence)
        session.trouble = (TROUBLE, sentence)


class FolderStager(Stager):
    """Stages objects in a folder, and has them served at once: readers wait for nothing."""

    def __init__(self, engine: FolderEngine, weights: EngineWeights, versions: Versions) -> None:
        super().__init__(weights, versions)
        self._engine = engine

    def check_fit(self, library: Library, layout: Layout) -> None:
        """A folder decodes under the trainer's layout, and says what does not fit where it reads its own files."""

    async def stage(self, library: Library, stored: StoredObject) -> bool:
        """Brings the folder forward; True: whole weights were taken, and the live version is their target now."""
        async with self._engine.busy:
            began = time.monotonic()
            if stored.key.is_anchor:
                await self._whole(library, stored)
            else:
                await self._deltas(library, stored)
            self.decode_us = int((time.monotonic() - began) * 1e6)
        return stored.key.is_anchor

    async def _whole(self, library: Library, stored: StoredObject) -> None:
        target, folder = stored.key.target, self._engine.folder
        layout, view = self._layout_of(stored), await asyncio.to_thread(stored.view)
        promised = stored.facts.target.digest
        held = Held(target.seq, promised)
        await self._until_free(library, lambda: folder.prepare_whole(view, layout, held))
        await in_thread("serving whole weights", folder.switch)
        self._weights.replaced(target, None, str(promised))
        self._weights.layout = layout

    async def _deltas(self, library: Library, stored: StoredObject) -> None:
        folder, began = self._engine.folder, time.monotonic()
        taken: list[StoredObject] = []

        def prepared() -> bool:
            taken[:] = self._chain(stored)
            try:
                return folder.prepare(*(self._delta(one) for one in taken))
            except SyncError:
                if len(taken) == 1:
                    raise
            taken[:] = [stored]  # one of those behind it is at fault, and has its turn
            return folder.prepare(self._delta(stored))

        await self._until_free(library, prepared)
        self._weights.layout = folder.layout
        for one in taken:
            self._weights.stage(one.key.target, str(one.facts.target.digest))
        last = taken[-1].key.target
        await self._engine.staged(library, last, int((time.monotonic() - began) * 1e6))
        await self._engine.activate(library, last)

    async def _until_free(self, library: Library, prepare: Callable[[], bool]) -> None:
        """Readers of the older copy are waited for."""
        while True:
            if library.is_lost:
                raise LibraryLostError("the folder is opened anew")
            if await in_thread("writing the next version", prepare):
                break
            await asyncio.sleep(LOOK_S)
        if library.is_lost:
            raise LibraryLostError("the folder is opened anew")

    def _chain(self, stored: StoredObject) -> list[StoredObject]:
        """The object and what follows it in the spool: called again when more may have come."""
        found, objects = [stored], self._engine.spool.objects()
        while len(found) < MAX_FOLDED:
            last = found[-1]
            onward = [
                one for one in objects
                if one.key.is_link and one.key.base == last.key.target
                and one.facts.layout_hash == last.facts.layout_hash
            ]  # fmt: skip
            if not onward:
                break
            found.append(onward[0])
        return found

    def _delta(self, stored: StoredObject) -> Delta:
        return Delta(self._layout_of(stored), stored.manifest, stored.view())

    def _layout_of(self, stored: StoredObject) -> Layout:
        document = self._engine.spool.layout(stored.facts.layout_hash)
        if document is None:
            raise LayoutError(f"the layout of {stored.key} is not known here")
        return parse_layout(document)


async def in_thread(what: str, work: Callable[[], T]) -> T:
    """Runs it in a thread, which is waited for also where the caller is cancelled: nobody else may write meanwhile."""

    def guarded() -> T:
        with disk_errors(what):
            return work()

    running = asyncio.ensure_future(asyncio.to_thread(guarded))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
