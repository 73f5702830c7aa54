"""Azure's blob storage, by Microsoft's own emulator: conditions, polling, versions, and credentials that are wrong."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.errors import OldTermError
from sync_runtime.transport.object_store.errors import StoreConflictError, StoreDeniedError, StoreError
from sync_runtime.transport.object_store.opening import open_store
from sync_runtime.transport.object_store.patience import Patience
from sync_runtime.transport.object_store.ports import Objects
from sync_runtime.transport.object_store.probe import prove_conditions
from tests.support.azure import OTHER_KEY, AzureServer, azure_server, write_credentials
from tests.support.stores import IMPATIENT, LINEAGE, Member, TrainerSide

pytestmark = pytest.mark.timeout(240)
CALM = Patience(first_pause_s=0.01, longest_pause_s=0.1, give_up_after_s=30.0)


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    with azure_server(tmp_path_factory.mktemp("azure")) as running:
        yield running


@pytest.fixture
def blobs(azure: AzureServer, prefix: str) -> Objects:
    return open_store(azure.url, prefix, azure.credentials)


def test_conditions_are_kept_and_proved(blobs: Objects) -> None:
    prove_conditions(blobs, "1-0123456789abcdef", CALM)
    first = blobs.swap("latest", b"1", None)
    with pytest.raises(StoreConflictError):
        blobs.swap("latest", b"2", None)
    second = blobs.swap("latest", b"3", first)
    with pytest.raises(StoreConflictError):
        blobs.swap("latest", b"4", first)
    assert blobs.get_if_changed("latest", second, 100) is None  # a poll of what has not changed has no body
    found = blobs.get_if_changed("latest", first, 100)
    assert found is not None
    assert (bytes(found.data), found.tag) == (b"3", second)


def test_keys_are_listed_and_removed_also_where_one_is_not_there(blobs: Objects) -> None:
    blobs.put("places/a/one", b"1")
    blobs.put("places/a/two", b"2")
    assert sorted(blobs.list("places")) == ["places/a/one", "places/a/two"]
    blobs.remove(["places/a/one", "places/a/none", "places/a/two"])
    assert list(blobs.list("places")) == []


def test_versions_pass_with_all_their_bytes(
    azure: AzureServer, prefix: str, trainer: TrainerSide, tmp_path: Path
) -> None:
    key = secrets.token_bytes(32)
    member = Member.of(
        trainer, open_store(azure.url, prefix, azure.credentials), tmp_path / "member", key=key, patience=CALM
    )
    publisher = trainer.begun(open_store(azure.url, prefix, azure.credentials), key=key, keep=4, patience=CALM)
    try:
        for seq in range(1, 8):
            trainer.publish(publisher, seq)
            trainer.add_skips(publisher)
            publisher.retire()
            if seq != 5:  # once it is behind, and takes a merged delta
                assert member.follow()
        assert member.held == VersionRef(LINEAGE, 7)
        assert member.follow() == ()
        publisher.collect()
    finally:
        publisher.close()
        member.reader.close()
        member.spool.close()


def test_a_second_trainer_takes_over_and_the_first_is_fenced_off(
    azure: AzureServer, prefix: str, trainer: TrainerSide, tmp_path: Path
) -> None:
    first = trainer.begun(open_store(azure.url, prefix, azure.credentials), patience=CALM)
    other = TrainerSide.make(tmp_path, term=2, incarnation="ef" * 16, group=trainer.group)
    second = other.publisher(open_store(azure.url, prefix, azure.credentials), patience=CALM)
    try:
        second.open()
        with pytest.raises(OldTermError):
            trainer.publish(first, 1)
    finally:
        first.close()
        second.close()
        other.spool.close()


@pytest.mark.parametrize(("account", "key"), [("trainers", OTHER_KEY), ("nobody", OTHER_KEY)])
def test_wrong_credentials_are_told_and_right_ones_heeded_when_they_come(
    azure: AzureServer, prefix: str, tmp_path: Path, account: str, key: str
) -> None:
    folder = write_credentials(tmp_path / "secret", azure.port, account=account, key=key)
    store = open_store(azure.url, prefix, folder)
    with pytest.raises(StoreDeniedError, match=r"the store does not (let us at|know our account)"):
        store.swap("latest", b"1", None)
    write_credentials(folder, azure.port)
    assert store.swap("latest", b"1", None)


def test_a_container_that_does_not_exist_is_told_as_such(azure: AzureServer, prefix: str) -> None:
    with pytest.raises(StoreError, match="the bucket does not exist"):
        open_store("az://no-such-container", prefix, azure.credentials).swap("latest", b"1", None)


def test_a_server_that_is_away_is_told_as_such(tmp_path: Path, trainer: TrainerSide) -> None:
    folder = write_credentials(tmp_path / "secret", 9)  # nobody listens there
    publisher = trainer.publisher(open_store("az://weights", "x", folder), patience=IMPATIENT)
    with pytest.raises(StoreError, match="away"):
        publisher.open()
    publisher.close()
