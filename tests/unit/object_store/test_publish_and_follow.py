"""A trainer publishes to a folder and members follow: what is visible when, and that the bits are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.errors import OldTermError, TermConflictError, WrongGroupError
from sync_runtime.identity.signing import TrustedSigners
from sync_runtime.transport.object_store.errors import (
    StoreAheadError,
    StoreDamagedError,
    StoreDeniedError,
    StoreForeignError,
    StoreMissingError,
)
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.names import LATEST, object_path, temporary_path
from sync_runtime.transport.object_store.patience import Patience
from sync_runtime.transport.object_store.publisher import Beginning, Publication
from sync_runtime.transport.object_store.reader import StoreReader
from sync_runtime.transport.object_store.route import find_anchor_route, find_route
from sync_runtime.transport.object_store.seal import Seal
from tests.support.identities import GROUP_UID, Group
from tests.support.stores import (
    LAYOUT,
    LAYOUT_HASH,
    LINEAGE,
    NEXT_LINEAGE,
    QUICK,
    Member,
    TrainerSide,
    anchor_key,
    version,
    way_key,
)

KEY = bytes(range(32))


@pytest.fixture
def member(trainer: TrainerSide, store: FolderStore, tmp_path: Path) -> Iterator[Member]:
    one = Member.of(trainer, store, tmp_path / "member")
    yield one
    one.reader.close()
    one.spool.close()


def files(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.name != ".lock")


def test_a_member_gets_every_version_bit_for_bit(store: FolderStore, trainer: TrainerSide, member: Member) -> None:
    publisher = trainer.publisher(store)
    publisher.open()
    assert member.follow() == ()  # claimed, and nothing published yet
    trainer.begin(publisher)
    for seq in (1, 2, 3):
        trainer.publish(publisher, seq)
        assert member.follow() == (delta_key(LINEAGE, seq - 1, seq),)
    assert member.held == VersionRef(LINEAGE, 3)
    assert member.reader.poll() is None  # nothing new
    publisher.close()


def test_a_version_is_invisible_until_the_pointer_names_it(
    store: FolderStore, trainer: TrainerSide, member: Member
) -> None:
    publisher = trainer.begun(store)
    trainer.publish(publisher, 1)
    publisher._uploads.put(trainer.link(2))  # everything of version 2 but the pointer
    assert member.follow() == (delta_key(LINEAGE, 0, 1),)
    publisher.close()


def test_any_lag_costs_few_objects(store: FolderStore, trainer: TrainerSide, member: Member) -> None:
    publisher = trainer.begun(store, keep=100)
    for seq in range(1, 41):
        trainer.publish(publisher, seq, size_bytes=1000)
        trainer.add_skips(publisher)
    assert len(member.follow()) <= 6  # skip deltas to the newest version itself are named by the next pointer
    assert member.held == VersionRef(LINEAGE, 40)
    trainer.publish(publisher, 41, size_bytes=1000)
    member.held = VersionRef(LINEAGE, 0)
    assert [(key.base_seq, key.target_seq) for key in member.follow()] == [(0, 32), (32, 40), (40, 41)]
    publisher.close()


def test_what_is_sealed_shows_nothing_and_opens_for_the_group_alone(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    publisher = trainer.begun(store, key=KEY)
    trainer.publish(publisher, 1)
    contents = [path.read_bytes() for path in files(tmp_path)]
    assert contents
    assert all(content.startswith(b"SGE1") for content in contents)
    assert not any(LINEAGE.encode() in content or b"CERTIFICATE" in content for content in contents)
    _, data, sha256 = trainer.link(1).read(0)
    assert not any(sha256.hex() in str(path) or bytes(data[:64]) in path.read_bytes() for path in files(tmp_path))
    member = Member.of(trainer, store, tmp_path / "member", key=KEY)
    assert member.follow() == (delta_key(LINEAGE, 0, 1),)
    for wrong in (None, bytes(32)):
        with pytest.raises(StoreDamagedError):
            StoreReader(store, GROUP_UID, trainer.trusted(), Seal(GROUP_UID, wrong)).poll()
    publisher.close()


def test_a_reader_with_a_key_takes_nothing_that_is_not_sealed(store: FolderStore, trainer: TrainerSide) -> None:
    publisher = trainer.publisher(store)
    publisher.open()
    with pytest.raises(StoreDamagedError, match="not sealed"):
        StoreReader(store, GROUP_UID, trainer.trusted(), Seal(GROUP_UID, KEY)).poll()
    publisher.close()


def test_a_sealed_object_under_another_key_does_not_open(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    publisher = trainer.begun(store, key=KEY)
    pointer = trainer.publish(publisher, 1, 2)
    first, second = (
        tmp_path / "store" / object_path(row.place, row.key) for row in pointer.lines[0].links
    )  # the manifests of two versions
    first.write_bytes(second.read_bytes())
    member = Member.of(trainer, store, tmp_path / "member", key=KEY)
    with pytest.raises(StoreDamagedError, match="altered"):
        member.follow()
    publisher.close()


def test_a_damaged_bucket_is_never_kept(
    store: FolderStore, trainer: TrainerSide, member: Member, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    trainer.publish(publisher, 1)
    name = trainer.link(1).read(1)[2].hex()
    (path,) = (path for path in files(tmp_path) if path.name == name)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(StoreDamagedError):
        member.follow()
    path.write_bytes(good[:-1])
    with pytest.raises(StoreDamagedError):
        member.follow()
    path.write_bytes(good)
    assert member.follow() == (delta_key(LINEAGE, 0, 1),)  # what had come was kept, the rest is fetched
    publisher.close()


def test_what_is_gone_from_the_store_is_named(
    store: FolderStore, trainer: TrainerSide, member: Member, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    trainer.publish(publisher, 1)
    name = trainer.link(1).read(1)[2].hex()
    next(path for path in files(tmp_path) if path.name == name).unlink()
    with pytest.raises(StoreMissingError):
        member.follow()
    assert member.held == VersionRef(LINEAGE, 0)
    publisher.close()


def test_a_new_trainer_takes_over_and_fences_the_old_one_off(
    store: FolderStore, trainer: TrainerSide, member: Member, tmp_path: Path
) -> None:
    old = trainer.begun(store)
    trainer.publish(old, 1)
    successor = TrainerSide.make(tmp_path, term=2, incarnation="ef" * 16, group=trainer.group)
    new = successor.publisher(store)
    assert new.open().lines[0].head.seq == 1
    with pytest.raises(OldTermError):
        trainer.publish(old, 2)
    with pytest.raises(OldTermError):
        trainer.publisher(store).open()
    successor.publish(new, 2)
    assert [key.target_seq for key in member.follow()] == [1, 2]  # signed by both trainers
    successor.spool.close()
    old.close()
    new.close()


def test_two_trainers_of_one_term_do_not_both_publish(store: FolderStore, trainer: TrainerSide, tmp_path: Path) -> None:
    publisher = trainer.publisher(store)
    publisher.open()
    rival = TrainerSide.make(tmp_path, incarnation="ef" * 16, group=trainer.group)
    with pytest.raises(TermConflictError):
        rival.publisher(store).open()
    restarted = trainer.publisher(store)
    restarted.open()  # the same trainer after a restart
    with pytest.raises(TermConflictError, match="second process"):
        trainer.begin(publisher)
    rival.spool.close()
    publisher.close()
    restarted.close()


def test_a_spool_that_is_an_old_copy_is_told_so(store: FolderStore, trainer: TrainerSide) -> None:
    publisher = trainer.begun(store)
    trainer.publish(publisher, 1, 2, 3)
    with pytest.raises(StoreAheadError, match="old copy"):
        trainer.publish(publisher, 2)
    publisher.close()


def test_a_store_of_somebody_else_is_left_alone(store: FolderStore, trainer: TrainerSide, tmp_path: Path) -> None:
    store.put("latest", b"a file of somebody's own")
    with pytest.raises(StoreForeignError, match="another prefix"):
        trainer.publisher(store).open()
    assert (tmp_path / "store" / "latest").read_bytes() == b"a file of somebody's own"


def test_another_groups_pointer_is_refused_by_readers(store: FolderStore, trainer: TrainerSide) -> None:
    publisher = trainer.publisher(store)
    publisher.open()
    with pytest.raises(WrongGroupError):
        StoreReader(store, "another-group", trainer.trusted(), Seal(GROUP_UID)).poll()
    publisher.close()


def test_a_pointer_that_no_trainer_signed_is_refused(store: FolderStore, trainer: TrainerSide, tmp_path: Path) -> None:
    other = Group(tmp_path / "others")
    publisher = trainer.publisher(store)
    publisher.open()
    trusted = TrustedSigners(other.authority.certificate_pem, GROUP_UID)
    with pytest.raises(Exception, match="not signed by a trainer"):
        StoreReader(store, GROUP_UID, trusted, Seal(GROUP_UID)).poll()
    publisher.close()


def test_an_older_pointer_that_comes_back_changes_nothing(
    store: FolderStore, trainer: TrainerSide, member: Member, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    trainer.publish(publisher, 1)
    before = (tmp_path / "store" / "latest").read_bytes()
    trainer.publish(publisher, 2)
    member.follow()
    (tmp_path / "store" / "latest").write_bytes(before)  # a store, or a cache, that went back
    assert member.reader.poll() is None
    assert member.reader.old_copies == 1
    assert publisher.mend()  # the publisher finds out and puts it again
    assert not publisher.mend()
    trainer.publish(publisher, 3)
    member.follow()
    assert member.held == VersionRef(LINEAGE, 3)
    publisher.close()


def test_a_pointer_that_was_deleted_is_put_again(
    store: FolderStore, trainer: TrainerSide, member: Member, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    trainer.publish(publisher, 1)
    (tmp_path / "store" / "latest").unlink()
    assert member.reader.poll() is None
    trainer.publish(publisher, 2)
    member.follow()
    assert member.held == VersionRef(LINEAGE, 2)
    publisher.close()


def test_a_new_lineage_is_reached_by_its_way_or_by_an_anchor(
    store: FolderStore, trainer: TrainerSide, member: Member, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    trainer.publish(publisher, 1, 2, 3)
    member.follow()
    way = trainer.make_object(way_key(VersionRef(LINEAGE, 3), NEXT_LINEAGE, 1))
    publisher.begin(Beginning(NEXT_LINEAGE, version(1, NEXT_LINEAGE), LAYOUT, LAYOUT_HASH, way))
    trainer.publish(publisher, 2, lineage=NEXT_LINEAGE)
    member.follow()
    assert member.held == VersionRef(NEXT_LINEAGE, 2)
    late = Member.of(trainer, store, tmp_path / "late")
    late.follow()  # from version 0 of the first lineage, through its head
    assert late.held == VersionRef(NEXT_LINEAGE, 2)
    third = "33" * 16
    publisher.begin(Beginning(third, version(0, third), LAYOUT, LAYOUT_HASH))  # no way leads there
    pointer = member.reader.poll()
    assert pointer is not None
    assert find_route(pointer, member.held) is None
    assert find_anchor_route(pointer) is None
    publisher.add_anchor(trainer.make_object(anchor_key(0, third)))
    publisher.publish([Publication(trainer.link(1, third))])
    pointer = member.reader.poll()
    assert pointer is not None
    route = find_anchor_route(pointer)
    assert route is not None
    assert [row.key.text for row in route.steps] == [f"{third}/anchor-0", f"{third}/0-1.fast"]
    for row in route.steps:
        member.reader.fetch(pointer, row, member.spool)
    assert member.reader.layout(pointer.lines[0]) == LAYOUT
    publisher.close()


def test_retention_keeps_what_a_kept_version_needs_and_nothing_else(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    publisher = trainer.begun(store, keep=4)
    for seq in range(1, 21):
        trainer.publish(publisher, seq, size_bytes=1000)
        trainer.add_skips(publisher)
        publisher.retire()
    for seq in range(16, 21):
        member = Member.of(trainer, store, tmp_path / f"member-{seq}")
        member.held = VersionRef(LINEAGE, seq)
        member.follow()
        assert member.held == VersionRef(LINEAGE, 20)
    kept = {path.parent.name for path in files(tmp_path) if path.name == "manifest"}
    bases = [int(name.split("_")[1].split("-")[0]) for name in kept]
    assert min(bases) == 15  # one pointer longer than its row
    assert len(kept) < 12
    publisher.close()


def test_garbage_of_a_dead_process_goes_and_what_is_needed_stays(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    dead = trainer.begun(store)
    trainer.publish(dead, 1)
    dead._uploads.put(trainer.link(2))  # it died before the pointer moved
    store.put(temporary_path(f"places/{dead.place}/x", "0011223344556677"), b"half a file")
    store.put("places/not-ours/objects/x", b"somebody else's")
    before = len(files(tmp_path))
    after_restart = trainer.publisher(store)
    after_restart.open()
    gone = after_restart.collect()
    assert gone == trainer.link(2).num_buckets + 2
    assert len(files(tmp_path)) == before - gone
    assert after_restart.collect() == 0
    member = Member.of(trainer, store, tmp_path / "member", patience=QUICK)
    trainer.publish(after_restart, 2)
    member.follow()
    assert member.held == VersionRef(LINEAGE, 2)
    dead.close()
    after_restart.close()


class Closing(FolderStore):
    """A folder that lets nobody put a pointer any more, once it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_closed = False

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        if self.is_closed and key == LATEST:
            raise StoreDeniedError("the store does not let us at latest")
        return super().swap(key, data, tag)


def test_a_publisher_whose_credentials_end_says_so_at_once_and_goes_on_with_new_ones(
    trainer: TrainerSide, tmp_path: Path
) -> None:
    store = Closing(tmp_path / "closing")
    publisher = trainer.begun(store, patience=Patience())  # the usual one would wait a minute
    store.is_closed = True
    with pytest.raises(StoreDeniedError):
        trainer.publish(publisher, 1)
    other = trainer.publisher(store, patience=Patience())
    with pytest.raises(StoreDeniedError):
        other.open()
    other.close()
    store.is_closed = False
    assert trainer.publish(publisher, 1).head == VersionRef(LINEAGE, 1)
    publisher.close()
