"""A trainer's spool of real deltas and a store: whatever happened before, one call brings the store level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key
from sync_runtime.bucket.manifest import pack_envelope
from sync_runtime.bucket.spool import Spool
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.signing import Signer
from sync_runtime.offline import Delta, apply
from sync_runtime.session.catch_up import Maker, MakerSettings
from sync_runtime.session.store_feed import StoreFeed, Witness
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.transport.messages import Head
from sync_runtime.transport.object_store.errors import StoreAheadError
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.publisher import StorePublisher
from sync_runtime.transport.object_store.route import find_route
from sync_runtime.transport.object_store.telling import news_of, offer_of
from tests.support.identities import Group
from tests.support.stores import Member, TrainerSide
from tests.unit.session.chains import BUCKET_BYTES, LINEAGE, OTHER, Trainer, make_trainer


class Rig:
    """A trainer with real states, whose manifests are really signed, and its store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        group = Group(folder / "identities")
        self.signer = Signer.of(read_folder(group.trainer("trainer-1")))
        self.trainer: Trainer = make_trainer(folder / "spool", 0)
        self.side = TrainerSide(group, self.trainer.spool, self.signer)
        self.store = FolderStore(folder / "store")
        self.publishers: list[StorePublisher] = []

    def publish(self, lineage: str, count: int) -> None:
        """Versions as the trainer's sidecar commits them."""
        for _ in range(count):
            newest = max(ref.seq for ref in self.trainer.states if ref.lineage == lineage)
            self.trainer.publish(lineage, 1)
            self._sign(self.trainer.spool, delta_key(lineage, newest, newest + 1))

    def _sign(self, spool: Spool, key: ObjectKey) -> None:
        stored = spool.stored(key)
        assert stored is not None
        manifest, data = stored.manifest, bytes(stored.view())
        spool.remove(stored.key)
        writer = spool.create(stored.key, manifest.layout_hash, BUCKET_BYTES)
        writer.write(data)
        writer.finish()
        document = replace(manifest, buckets=writer.buckets).to_json()
        writer.commit(pack_envelope(document, self.signer.sign(document)))

    def feed(self, keep: int = 32, witness: Witness | None = None) -> StoreFeed:
        """As after a start of the sidecar."""
        publisher = self.side.publisher(self.store, keep=keep)
        self.publishers.append(publisher)
        publisher.open()
        maker = Maker(self.trainer.spool, MakerSettings(self.signer.sign, lambda: BUCKET_BYTES, lambda: 2, threads=1))
        return StoreFeed(self.trainer.spool, maker, publisher, witness)

    def follow(self, held: VersionRef) -> tuple[str, ...]:
        """What a member that holds a version fetches, after all of it was applied to its real weights."""
        member = Member.of(self.side, self.store, self.folder / f"member-{held.lineage[:2]}-{held.seq}")
        pointer = member.reader.poll()
        assert pointer is not None
        route = find_route(pointer, held)
        assert route is not None
        state = {
            name: BitTensor(one.dtype, one.shape, one.matrix.copy()) for name, one in self.trainer.states[held].items()
        }
        for row in route.steps:
            stored = member.reader.fetch(pointer, row, member.spool)
            apply(state, Delta(self.trainer.layout, stored.manifest, stored.view()), threads=1)
        assert pointer.head is not None
        for name, wanted in self.trainer.states[pointer.head].items():
            assert state[name].matrix.tobytes() == wanted.matrix.tobytes()
        member.reader.close()
        member.spool.close()
        return tuple(row.key.text.partition("/")[2] for row in route.steps)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    for publisher in made.publishers:
        publisher.close()
    made.trainer.spool.close()


def test_versions_reach_the_store_in_order_and_are_exact(rig: Rig) -> None:
    feed = rig.feed()
    assert feed.level() == VersionRef(LINEAGE, 0)
    for seq in range(1, 10):
        rig.publish(LINEAGE, 1)
        assert feed.level() == VersionRef(LINEAGE, seq)
    assert feed.level() == VersionRef(LINEAGE, 9)  # nothing to do
    assert rig.follow(VersionRef(LINEAGE, 8)) == ("8-9.fast",)
    assert rig.follow(VersionRef(LINEAGE, 0)) == ("0-8.fast", "8-9.fast")
    assert len(rig.follow(VersionRef(LINEAGE, 3))) <= 4


def test_what_waited_while_the_store_was_away_goes_at_once_also_after_a_restart(rig: Rig) -> None:
    rig.feed().level()
    rig.publish(LINEAGE, 3)
    restarted = rig.feed()
    assert restarted.level() == VersionRef(LINEAGE, 3)
    assert rig.follow(VersionRef(LINEAGE, 0))[-1] == "2-3.fast"


def test_a_new_lineage_is_reached_by_a_real_way_back(rig: Rig) -> None:
    feed = rig.feed()
    rig.publish(LINEAGE, 4)
    feed.level()
    origin = VersionRef(LINEAGE, 2)
    rig.trainer.begin(OTHER, rig.trainer.states[origin], seq=2, origin=origin, term=2)
    rig.publish(OTHER, 1)
    assert feed.level() == VersionRef(OTHER, 3)
    assert rig.follow(VersionRef(LINEAGE, 4)) == (f"{LINEAGE}:4-2.fast", "2-3.fast")
    assert rig.follow(VersionRef(LINEAGE, 3))[-1] == "2-3.fast"


def test_a_spool_that_forgot_what_the_store_lacks_begins_anew(rig: Rig) -> None:
    feed = rig.feed()
    rig.publish(LINEAGE, 1)
    feed.level()
    rig.publish(LINEAGE, 5)
    for seq in (1, 2, 3):
        rig.trainer.spool.remove(delta_key(LINEAGE, seq - 1, seq))
    assert feed.level() == VersionRef(LINEAGE, 6)
    assert rig.follow(VersionRef(LINEAGE, 3))[-1] == "5-6.fast"


def test_an_old_copy_of_a_spool_never_replaces_what_the_store_has(rig: Rig) -> None:
    rig.publish(LINEAGE, 4)
    rig.feed().level()
    for stored in rig.trainer.spool.objects():
        if stored.key.target_seq > 2:
            rig.trainer.spool.remove(stored.key)
    with pytest.raises(StoreAheadError):
        rig.feed().level()


def test_what_goes_into_the_store_is_told_of_and_carries_the_trace_of_its_newest_version(rig: Rig) -> None:
    told: list[tuple[VersionRef, int, int]] = []
    line = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    witness = Witness(
        lambda version: line if version.seq == 3 else "",
        lambda version, size_bytes, objects, spent_s: told.append((version, size_bytes, objects)),
    )
    rig.publish(LINEAGE, 3)
    rig.feed(witness=witness).level()
    sizes = [rig.trainer.spool.stored(delta_key(LINEAGE, seq - 1, seq)) for seq in (1, 2, 3)]
    assert told == [(VersionRef(LINEAGE, 3), sum(one.size_bytes for one in sizes if one is not None), 3)]
    reader = Member.of(rig.side, rig.store, rig.folder / "reader").reader
    pointer = reader.poll()
    assert pointer is not None
    (head,) = [message for message in news_of(pointer) if isinstance(message, Head)]
    assert head.trace == line
    last, first = pointer.lines[0].links[-1], pointer.lines[0].links[0]
    traces = [offer_of(pointer, row, reader.manifest(pointer, row)[1], 1).trace for row in (last, first)]
    assert traces == [line, ""]
    reader.close()
