"""Who removes what, beside uploads and after being replaced; and a manifest that is not the one the pointer means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.manifest import open_envelope, pack_envelope, parse_manifest
from sync_runtime.errors import FormatError
from sync_runtime.tensors.digest import Digest
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.names import object_path
from tests.support.stores import LINEAGE, Member, TrainerSide


def test_a_collector_leaves_alone_what_its_own_process_is_putting(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    publisher._uploads.put(trainer.link(1))  # whole, and no pointer names it yet
    assert publisher.collect() == 0
    trainer.publish(publisher, 1)
    member = Member.of(trainer, store, tmp_path / "member")
    member.follow()
    assert member.held == VersionRef(LINEAGE, 1)
    publisher.close()


def test_a_process_that_was_replaced_removes_nothing_of_its_successor(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    replaced = trainer.begun(store)
    successor = trainer.publisher(store)  # the same trainer, started again: the same term
    successor.open()
    successor._uploads.put(trainer.link(1))
    assert replaced.collect() == 0
    trainer.publish(successor, 1)
    member = Member.of(trainer, store, tmp_path / "member")
    member.follow()
    assert member.held == VersionRef(LINEAGE, 1)
    replaced.close()
    successor.close()


def test_a_signed_manifest_of_another_state_than_the_pointer_names_is_refused(
    store: FolderStore, trainer: TrainerSide, tmp_path: Path
) -> None:
    publisher = trainer.begun(store)
    row = trainer.publish(publisher, 1, 2).lines[0].links[0]
    manifest = parse_manifest(open_envelope(trainer.link(1).envelope)[0])
    elsewhere = replace(manifest.target, digest=manifest.target.digest.plus(Digest(1, 1)))
    changes = (manifest.digest_changes[0].plus(Digest(1, 1)),)
    document = replace(manifest, target=elsewhere, digest_changes=changes).to_json()
    store.put(object_path(row.place, row.key), pack_envelope(document, trainer.signer.sign(document)))
    member = Member.of(trainer, store, tmp_path / "member")
    with pytest.raises(FormatError, match="another version"):
        member.follow()
    publisher.close()
