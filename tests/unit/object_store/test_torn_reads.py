"""A store that answers with the bytes of one state of `latest` and the tag of the next: nothing is lost or missed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.errors import OldTermError
from sync_runtime.transport.object_store.errors import StoreConflictError, StoreError
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.names import LATEST
from sync_runtime.transport.object_store.ports import Fetched
from tests.support.stores import LINEAGE, Member, TrainerSide


class TornStore:
    """A folder whose tags of `latest` are numbers, or hashes, and whose next answers may be torn."""

    def __init__(self, folder: Path, *, hashes: bool = False) -> None:
        self._folder = FolderStore(folder)
        self._hashes = hashes
        self._states: list[bytes] = []
        self.torn = 0
        """How many answers are still to have the bytes of the state before."""

    def get(self, key: str, limit_bytes: int) -> Fetched:
        found = self._folder.get(key, limit_bytes)
        if key != LATEST:
            return found
        data = bytes(found.data)
        if self.torn and len(self._states) > 1:
            self.torn -= 1
            data = self._states[-2]
        return Fetched(data, self._tag)

    @property
    def _tag(self) -> str:
        last = self._states[-1] if self._states else b""
        return hashlib.md5(last, usedforsecurity=False).hexdigest() if self._hashes else str(len(self._states))

    def get_if_changed(self, key: str, tag: str | None, limit_bytes: int) -> Fetched | None:
        return None if tag == self._tag else self.get(key, limit_bytes)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._folder.put(key, data)

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        if key != LATEST:  # turned round, a hash is none
            turn = slice(None, None, 1 if self._hashes else -1)
            return self._folder.swap(key, data, None if tag is None else tag[turn])[turn]
        if tag != (self._tag if self._states else None):
            raise StoreConflictError(f"{key} has another tag")
        self._folder.put(key, data)
        self._states.append(bytes(data))
        return self._tag

    def remove(self, keys: Iterable[str]) -> None:
        self._folder.remove(keys)

    def list(self, prefix: str) -> Iterator[str]:
        return self._folder.list(prefix)


@pytest.fixture(params=["numbers", "hashes"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TornStore:
    return TornStore(tmp_path / "store", hashes=request.param == "hashes")


@pytest.mark.parametrize(("hashes", "torn"), [(False, 1), (True, 1), (True, 3)])
def test_a_successor_does_not_undo_a_version_that_it_read_too_early(
    trainer: TrainerSide, tmp_path: Path, hashes: bool, torn: int
) -> None:
    store = TornStore(tmp_path / "store", hashes=hashes)
    old = trainer.begun(store)
    trainer.publish(old, 1, size_bytes=1000)
    successor = TrainerSide.make(tmp_path, term=2, incarnation="ef" * 16, group=trainer.group)
    new = successor.publisher(store)
    store.torn = torn
    assert new.open().head == VersionRef(LINEAGE, 1)
    with pytest.raises(OldTermError):
        trainer.publish(old, 2, size_bytes=1000)
    old.close()
    new.close()
    successor.spool.close()


def test_a_reader_does_not_wait_for_the_change_after_the_one_it_missed(
    store: TornStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    member = Member.of(trainer, store, tmp_path / "member")
    member.follow()
    trainer.publish(publisher, 1, size_bytes=1000)
    store.torn = 1
    member.follow()
    assert member.held == VersionRef(LINEAGE, 1)
    member.reader.close()
    member.spool.close()
    publisher.close()


def test_a_pointer_that_never_settles_is_tried_later(store: TornStore, trainer: TrainerSide, tmp_path: Path) -> None:
    publisher = trainer.begun(store)
    member = Member.of(trainer, store, tmp_path / "member")
    original, flip = store.get, iter(range(10_000))

    def restless(key: str, limit_bytes: int) -> Fetched:
        found = original(key, limit_bytes)
        return Fetched(found.data, str(next(flip))) if key == LATEST else found

    store.get = restless  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="changes whenever"):
        member.reader.poll()
    member.reader.close()
    member.spool.close()
    publisher.close()
