"""Publishing through a store that fails: bits are right, nothing is lost, nothing half is ever visible."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.errors import FenceError, OldTermError
from sync_runtime.transport.object_store.errors import StoreDeniedError, StoreError
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.publisher import StorePublisher
from sync_runtime.transport.object_store.remote import RemoteStore
from tests.support.s3 import S3Server, s3_server, write_credentials
from tests.support.store_faults import Fault, FaultProxy
from tests.support.stores import IMPATIENT, LINEAGE, Member, TrainerSide, payload

pytestmark = pytest.mark.timeout(60)


@contextmanager
def publishing(trainer: TrainerSide, store: RemoteStore, keep: int = 32) -> Iterator[StorePublisher]:
    publisher = trainer.publisher(store, keep=keep)
    try:
        yield publisher
    finally:
        publisher.close()


def check_all_that_is_named(member: Member) -> None:
    """Every object that the newest pointer names can be fetched, and has the right bytes."""
    member.reader.poll()
    pointer = member.reader.pointer
    assert pointer is not None
    for line in pointer.lines:
        for row in line.rows():
            stored = member.reader.fetch(pointer, row, member.spool)
            assert bytes(stored.view()) == payload(row.key, row.size_bytes)


FAULTS: dict[str, Fault] = {
    "an internal error": Fault("status", 500, "InternalError"),
    "a store that asks to slow down": Fault("status", 503, "SlowDown"),
    "throttling": Fault("status", 429, "TooManyRequests"),
    "requests that never arrive": Fault("drop"),
    "answers that never come": Fault("lose answer"),
    "uploads that are cut in the middle": Fault("cut"),
    "a slow store": Fault("slow", delay_s=0.05),
}


@pytest.mark.parametrize("name", FAULTS)
def test_versions_arrive_through(
    name: str, proxy: FaultProxy, faulty: RemoteStore, trainer: TrainerSide, member: Member
) -> None:
    dice = random.Random(name)  # noqa: S311 -- which request fails, not a secret
    proxy.choose = lambda method, path, count: FAULTS[name] if dice.random() < 0.3 else None
    other = Member.of(trainer, faulty, member.spool.path.with_name("other"))
    with publishing(trainer, faulty) as publisher:
        publisher.open()
        trainer.begin(publisher)
        for seq in range(1, 6):
            trainer.publish(publisher, seq)
            trainer.add_skips(publisher)
            check_all_that_is_named(member)
        member.follow()
        other.follow()
    assert member.held == other.held == VersionRef(LINEAGE, 5)
    assert proxy.counts[FAULTS[name].kind] > 5
    other.reader.close()
    other.spool.close()


def test_a_store_that_is_away_is_an_error_and_the_version_is_published_later(
    proxy: FaultProxy, faulty: RemoteStore, trainer: TrainerSide, member: Member
) -> None:
    publisher = trainer.begun(faulty, patience=IMPATIENT)
    trainer.publish(publisher, 1)
    proxy.choose = lambda method, path, count: Fault("status", 503)
    with pytest.raises(StoreError):
        trainer.publish(publisher, 2)
    member.follow()
    assert member.held == VersionRef(LINEAGE, 1)
    proxy.choose = lambda method, path, count: None
    trainer.publish(publisher, 2, 3)  # what waited goes with one pointer
    member.follow()
    assert member.held == VersionRef(LINEAGE, 3)
    publisher.close()


@pytest.mark.parametrize("kind", ["lose answer", "lose write", "drop"])
def test_a_pointer_write_that_is_lost_is_found_out(
    kind: str, proxy: FaultProxy, faulty: RemoteStore, trainer: TrainerSide, member: Member
) -> None:
    with publishing(trainer, faulty) as publisher:
        publisher.open()
        trainer.begin(publisher)
        trainer.publish(publisher, 1)
        hits = iter([Fault(kind)])
        proxy.choose = lambda method, path, count: (
            next(hits, None) if method == "PUT" and path.endswith("/latest") else None
        )
        trainer.publish(publisher, 2)
        assert proxy.counts[kind] == 1
        member.follow()
        if kind == "lose write":  # acknowledged, and not there: the publisher looks after its pointer
            assert member.held == VersionRef(LINEAGE, 1)
            assert publisher.mend()
            member.follow()
        assert member.held == VersionRef(LINEAGE, 2)
        trainer.publish(publisher, 3)
        member.follow()
    assert member.held == VersionRef(LINEAGE, 3)


def test_a_stale_list_removes_nothing_that_is_needed(
    proxy: FaultProxy, faulty: RemoteStore, trainer: TrainerSide, member: Member
) -> None:
    def stale(method: str, path: str, count: int) -> Fault | None:
        return Fault("replay") if method == "GET" and "list-type" in path else None

    with publishing(trainer, faulty) as first:
        first.open()
        trainer.begin(first)
        first._uploads.put(trainer.link(2))  # of a publish that failed
        trainer.publish(first, 1)
        first.collect()  # the answer that will be repeated
    proxy.choose = stale
    with publishing(trainer, faulty) as second:
        second.open()
        trainer.publish(second, 2)
        gone = second.collect()  # the old list shows the garbage of the first, and nothing of the second
        assert proxy.counts["replay"] >= 1
        assert gone >= 1
        check_all_that_is_named(member)
        assert second.collect() == gone  # still listed, gone already: removing again is no error


def test_following_costs_one_small_request_while_nothing_changes_and_never_lists(
    proxy: FaultProxy, faulty: RemoteStore, plain: RemoteStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    member = Member.of(trainer, faulty, tmp_path / "polling")
    with publishing(trainer, plain) as publisher:
        publisher.open()
        trainer.begin(publisher)
        trainer.publish(publisher, 1)
        member.follow()
        before = len(proxy.requests)
        for _ in range(5):
            assert member.reader.poll() is None
        assert [method for method, _ in proxy.requests[before:]] == ["GET"] * 5
        trainer.publish(publisher, 2)
        member.follow()
        # One version: the pointer, with the manifest in it, and the buckets.
        assert len(proxy.requests) - before == 5 + 1 + trainer.link(2).num_buckets
    assert not any("list-type" in path for _, path in proxy.requests)
    member.reader.close()
    member.spool.close()


def test_two_trainers_that_publish_at_once_leave_one_story(
    plain: RemoteStore, trainer: TrainerSide, member: Member, tmp_path: Path
) -> None:
    successor = TrainerSide.make(tmp_path, term=2, incarnation="ef" * 16, group=trainer.group)
    for seq in range(1, 12):
        trainer.link(seq)
        successor.link(seq)
    old = trainer.begun(plain)
    published: dict[int, int] = {1: 0, 2: 0}
    ends: dict[int, Exception] = {}

    def run(side: TrainerSide, publisher: StorePublisher, first: int) -> None:
        try:
            for seq in range(first, 12):
                side.publish(publisher, seq)
                published[side.term] = seq
        except FenceError as error:
            ends[side.term] = error

    racing = threading.Thread(target=run, args=(trainer, old, 1))
    racing.start()
    new = successor.publisher(plain)
    head = new.open().head
    assert head is not None
    run(successor, new, head.seq + 1)
    racing.join()
    if published[1] < 11:  # it was interrupted, and knows by whom
        assert isinstance(ends[1], OldTermError)
    assert published[1] <= head.seq  # nothing that it called published was lost
    assert 2 not in ends
    check_all_that_is_named(member)
    member.follow()
    assert member.held == VersionRef(LINEAGE, 11)
    assert member.reader.seen.term == 2
    old.close()
    new.close()
    successor.spool.close()


def test_rotated_credentials_are_read_again(tmp_path: Path, trainer: TrainerSide) -> None:
    with s3_server(tmp_path) as running:
        port = running.port
        store = RemoteStore(running.url, "p", running.credentials)
        publisher = trainer.begun(store, patience=IMPATIENT)
    with s3_server(tmp_path, port=port, secret="another-secret-key"):
        write_credentials(running.credentials)  # the Secret has not been rotated here yet
        with pytest.raises(StoreDeniedError):
            trainer.publish(publisher, 1)
        write_credentials(running.credentials, secret="another-secret-key")
        trainer.publish(publisher, 1)
        member = Member.of(trainer, RemoteStore(running.url, "p", running.credentials), tmp_path / "m")
        member.follow()
        assert member.held == VersionRef(LINEAGE, 1)
        member.reader.close()
    publisher.close()


def test_garbage_is_collected_and_retention_keeps_its_promise(
    plain: RemoteStore, trainer: TrainerSide, member: Member, inside: FolderStore
) -> None:
    with publishing(trainer, plain, keep=3) as dead:
        dead.open()
        trainer.begin(dead)
        trainer.publish(dead, 1)
        dead._uploads.put(trainer.link(2))
    with publishing(trainer, plain, keep=3) as publisher:
        publisher.open()
        assert publisher.collect() == trainer.link(2).num_buckets + 1
        for seq in range(2, 9):
            trainer.publish(publisher, seq)
            trainer.add_skips(publisher)
            publisher.retire()
        check_all_that_is_named(member)
        stems = {path.split("/")[3] for path in inside.list("places/") if "/objects/" in path}
        assert min(int(stem.split("_")[1].split("-")[0]) for stem in stems) >= 4


def test_everything_that_is_put_is_sealed_with_a_group_key(
    plain: RemoteStore, trainer: TrainerSide, inside: FolderStore, tmp_path: Path
) -> None:
    publisher = trainer.publisher(plain, key=bytes(range(32)))
    publisher.open()
    trainer.begin(publisher)
    trainer.publish(publisher, 1)
    paths = ["latest", *inside.list("places/")]
    assert len(paths) > 4
    assert all(bytes(inside.get(path, 1 << 24).data).startswith(b"SGE1") for path in paths)
    member = Member.of(trainer, plain, tmp_path / "sealed", key=bytes(range(32)))
    member.follow()
    assert member.held == VersionRef(LINEAGE, 1)
    publisher.close()
    member.reader.close()


def test_an_unknown_user_or_bucket_is_not_taken_for_an_empty_store(server: S3Server, tmp_path: Path) -> None:
    stranger = RemoteStore(server.url, "weights", write_credentials(tmp_path / "other", "nobody", "knows"))
    elsewhere = RemoteStore(f"{server.url}-of-nobody", "weights", server.credentials)
    with pytest.raises(StoreDeniedError, match="does not know our account or access key"):
        stranger.get("latest", 100)
    with pytest.raises(StoreError, match="the bucket does not exist"):
        elsewhere.get("latest", 100)
