"""A member's real session with a store in its parent's place: it follows, resumes, asks by name, and is not fooled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.session.incoming import MemberContext
from sync_runtime.session.receive import ReceiverSession
from sync_runtime.session.relay import Distributor
from sync_runtime.session.shelf import Supply
from sync_runtime.session.versions import Versions
from sync_runtime.transport.events import (
    BucketFailed,
    BucketKept,
    DialFailed,
    Event,
    MessageArrived,
    ParentConnected,
    ParentGone,
)
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.parent import StoreFollower
from sync_runtime.transport.object_store.ports import Objects
from sync_runtime.transport.object_store.reader import ReadSettings, StoreReader
from sync_runtime.transport.object_store.seal import Seal
from tests.support.identities import GROUP_UID
from tests.support.stores import IMPATIENT, LINEAGE, TrainerSide, anchor_key, payload
from tests.unit.session.receivers import Engine

START = VersionRef(LINEAGE, 0)


class Following(Engine):
    """Holds what arrived. Objects become durable in any order, and one may wait for the one before it."""

    def __init__(self, held: VersionRef | None) -> None:
        super().__init__()
        self.version = held
        self.got: set[str] = set()
        self._following: dict[VersionRef | None, VersionRef] = {}

    def arrived(self, stored: StoredObject) -> None:
        assert bytes(stored.view()) == payload(stored.key, stored.size_bytes)
        self.got.add(stored.key.text.partition("/")[2])
        if stored.key.is_anchor:
            self.version = stored.key.target
        else:
            self._following[stored.key.base] = stored.key.target
        while self.version in self._following:
            self.version = self._following.pop(self.version)


class MemberSide:
    """A session, its spool and its engine; events come from the follower's threads."""

    def __init__(self, trainer: TrainerSide, store: Objects, folder: Path, held: VersionRef | None = START) -> None:
        self._trainer, self._store = trainer, store
        self.spool = Spool.open(folder, max_bytes=1 << 30, max_versions=100)
        self.versions, self.engine = Versions(), Following(held)
        self.failed: list[str] = []
        self.ended: list[str] = []

    async def __aenter__(self) -> MemberSide:
        self._loop = asyncio.get_running_loop()
        supply = Supply(stored=self.spool.stored, layout=self.spool.layout, request=lambda key, blocks: None)
        self.session = ReceiverSession(
            MemberContext(
                spool=self.spool,
                versions=self.versions,
                distributor=Distributor(self.versions, supply),
                signers=self._trainer.trusted(),
                group_uid=GROUP_UID,
                codecs=lambda: ("fast",),
                bounds=lambda: (None, None),
                begun=lambda begin: "",
                received=lambda key: None,
            ),
            self.engine,
        )
        reader = StoreReader(
            self._store, GROUP_UID, self._trainer.trusted(), Seal(GROUP_UID), settings=ReadSettings(4, IMPATIENT)
        )
        self.follower = StoreFollower(reader, self._emit, self.session.sink, poll_s=0.02)
        self.follower.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.follower.close)
        await self.session.close()
        self.spool.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(15):
            while not holds():  # noqa: ASYNC110 -- what is waited for happens in other threads and in files
                await asyncio.sleep(0.01)

    def _emit(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._happened, event)

    def _happened(self, event: Event) -> None:
        match event:
            case ParentConnected(link=link):
                self.session.connected(link)
            case ParentGone(link=link, reason=reason):
                self.ended.append(reason)
                self.session.gone(link)
            case MessageArrived(link=link, message=message):
                self.session.arrived(link, message)  # type: ignore[arg-type]
            case BucketKept(key=key, index=index):
                self.session.bucket_kept(key, index)
            case BucketFailed(link=link, transfer=transfer, error=error):
                self.session.bucket_failed(link, transfer, error)
            case DialFailed(reason=reason):
                self.failed.append(reason)
            case _:
                pass


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


def test_a_session_follows_a_store_as_it_follows_a_parent(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with MemberSide(trainer, store, tmp_path / "member") as member:
            publisher = trainer.begun(store)
            for seq in (1, 2, 3):
                trainer.publish(publisher, seq)
                await member.until(lambda seq=seq: member.engine.version == VersionRef(LINEAGE, seq))  # type: ignore[misc]
            assert member.engine.got == {"0-1.fast", "1-2.fast", "2-3.fast"}
            assert member.versions.fence.speaker == (1, trainer.incarnation)  # the term was proved
            assert member.spool.layout(trainer.link(1).facts.layout_hash) is not None
            publisher.close()

    run(scene())


def test_one_that_is_behind_takes_skip_deltas(store: FolderStore, trainer: TrainerSide, tmp_path: Path) -> None:
    async def scene() -> None:
        publisher = trainer.begun(store)
        for seq in range(1, 10):
            trainer.publish(publisher, seq, size_bytes=1000)
            trainer.add_skips(publisher)
        async with MemberSide(trainer, store, tmp_path / "member") as member:
            await member.until(lambda: member.engine.version == VersionRef(LINEAGE, 9))
            assert member.engine.got == {"0-8.fast", "8-9.fast"}
        publisher.close()

    run(scene())


def test_buckets_of_an_earlier_life_are_not_fetched_again(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    async def scene() -> None:
        publisher = trainer.begun(store)
        trainer.publish(publisher, 1)
        with Spool.open(tmp_path / "member", max_bytes=1 << 30, max_versions=100) as before:
            receiver = before.receive(delta_key(LINEAGE, 0, 1))
            offset, data, sha256 = trainer.link(1).read(0)
            receiver.put(0, offset, data, sha256)
        taken = sorted((tmp_path / "store").rglob(sha256.hex()))
        taken[0].unlink()  # so that asking for it would fail
        async with MemberSide(trainer, store, tmp_path / "member") as member:
            await member.until(lambda: member.engine.version == VersionRef(LINEAGE, 1))
        publisher.close()

    run(scene())


def test_whoever_has_no_version_is_given_the_anchor_and_what_follows(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    async def scene() -> None:
        publisher = trainer.begun(store)
        trainer.publish(publisher, 1)
        publisher.add_anchor(trainer.make_object(anchor_key(1)))
        trainer.publish(publisher, 2)
        async with MemberSide(trainer, store, tmp_path / "member", held=None) as member:
            await member.until(lambda: "anchor-1" in member.engine.got)
            member.session.follow()
            await member.until(lambda: member.engine.version == VersionRef(LINEAGE, 2))
        publisher.close()

    run(scene())


def test_what_the_store_has_lost_is_said_and_comes_when_it_is_back(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    async def scene() -> None:
        publisher = trainer.begun(store)
        trainer.publish(publisher, 1)
        sha256 = trainer.link(1).read(1)[2].hex()
        (path,) = (tmp_path / "store").rglob(sha256)
        good = path.read_bytes()
        path.unlink()
        async with MemberSide(trainer, store, tmp_path / "member") as member:
            await member.until(lambda: "StoreMissing" in member.failed)
            await member.until(lambda: delta_key(LINEAGE, 0, 1) in member.engine.lost)
            path.write_bytes(good)
            await member.until(lambda: member.engine.version == VersionRef(LINEAGE, 1))
        publisher.close()

    run(scene())


def test_a_trainer_that_was_replaced_is_not_followed_again(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    async def scene() -> None:
        old = trainer.begun(store)
        trainer.publish(old, 1)
        before = (tmp_path / "store" / "latest").read_bytes()
        successor = TrainerSide.make(tmp_path, term=2, incarnation="ef" * 16, group=trainer.group)
        new = successor.publisher(store)
        new.open()
        successor.publish(new, 2)
        async with MemberSide(trainer, store, tmp_path / "member") as member:
            await member.until(lambda: member.engine.version == VersionRef(LINEAGE, 2))
            (tmp_path / "store" / "latest").write_bytes(before)
            await member.until(lambda: "OldTerm" in member.failed)
            assert member.versions.fence.term == 2
            assert member.engine.version == VersionRef(LINEAGE, 2)
        for publisher in (old, new):
            publisher.close()
        successor.spool.close()

    run(scene())
