"""Made objects are the ones that somebody with both states would have made, byte for byte; and they are made once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key, parse_key
from sync_runtime.bucket.manifest import open_envelope
from sync_runtime.bucket.spool import ObjectWriter
from sync_runtime.errors import ChainError, SpoolCorruptError
from sync_runtime.offline import apply
from sync_runtime.offline.anchors import read_anchor, write_block
from sync_runtime.session.catch_up import Watcher, key_between
from sync_runtime.tensors.bits import bind
from sync_runtime.tensors.blocks import BlockMap
from tests.support.states import compile_loops, copied, next_state, same_bits
from tests.unit.session.chains import LINEAGE, OTHER, Trainer, make_trainer, sign

compile_loops()


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    """Versions 0 to 4."""
    made = make_trainer(tmp_path / "spool")
    yield made
    made.spool.close()


@pytest.fixture
def forked(trainer: Trainer) -> Trainer:
    """A second lineage that starts from version 2 of the first and has versions 3 and 4 of its own."""
    fork = VersionRef(LINEAGE, 2)
    trainer.begin(OTHER, trainer.states[fork], seq=2, origin=fork, term=2)
    trainer.publish(OTHER, 2, seed=1000)
    return trainer


def check_made(trainer: Trainer, base: VersionRef, target: VersionRef) -> None:
    """What is made equals the direct delta in every byte, and leads where it says."""
    key = key_between(base, target)
    stored = trainer.maker.make(key)
    direct = trainer.direct(base, target)
    assert bytes(stored.view()) == bytes(direct.object)
    manifest = stored.manifest
    assert manifest.base == direct.manifest.base
    assert manifest.target == direct.manifest.target
    assert manifest.digest_changes == direct.manifest.digest_changes
    assert (manifest.lineage, manifest.codec) == (target.lineage, "fast")
    state = copied(trainer.states[base])
    apply(state, trainer.delta_of(key), threads=1)
    assert same_bits(state, trainer.states[target])


@pytest.mark.parametrize(("base", "target"), [(0, 4), (1, 3), (2, 4)])
def test_a_merged_span_is_the_direct_delta(base: int, target: int, trainer: Trainer) -> None:
    check_made(trainer, VersionRef(LINEAGE, base), VersionRef(LINEAGE, target))
    made = trainer.delta_of(delta_key(LINEAGE, base, target))
    assert made.manifest.label == f"step {target}"


@pytest.mark.timeout(20)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([0, 3, 60, 900]), st.booleans()), min_size=2, max_size=4))
def test_whatever_the_updates_merged_or_negated_they_are_the_direct_delta(
    tmp_path_factory: pytest.TempPathFactory, updates: list[tuple[int, bool]]
) -> None:
    """Updates of every density, some of which take the one before them back: there nothing is left to send."""
    trainer = make_trainer(tmp_path_factory.mktemp("spool"), versions=1)
    with trainer.spool:
        for seq, (per_mille, is_undone) in enumerate(updates, start=2):
            before = trainer.states[VersionRef(LINEAGE, seq - 1)]
            undone = copied(trainer.states[VersionRef(LINEAGE, seq - 2)])
            trainer.states[VersionRef(LINEAGE, seq)] = undone if is_undone else next_state(before, seq, per_mille)
            trainer.commit(trainer.direct(VersionRef(LINEAGE, seq - 1), VersionRef(LINEAGE, seq)))
        newest = len(updates) + 1
        check_made(trainer, VersionRef(LINEAGE, 0), VersionRef(LINEAGE, newest))
        check_made(trainer, VersionRef(LINEAGE, newest), VersionRef(LINEAGE, 0))


@pytest.mark.parametrize(("base", "target"), [(4, 0), (3, 2)])
def test_a_way_back_is_the_direct_delta(base: int, target: int, trainer: Trainer) -> None:
    check_made(trainer, VersionRef(LINEAGE, base), VersionRef(LINEAGE, target))


@pytest.mark.parametrize("held", [0, 1, 3, 4])
def test_a_way_into_a_new_lineage_is_the_direct_delta(held: int, forked: Trainer) -> None:
    for target in (2, 3, 4):
        check_made(forked, VersionRef(LINEAGE, held), VersionRef(OTHER, target))


def test_at_the_fork_the_way_is_an_empty_delta_that_is_signed_all_the_same(forked: Trainer) -> None:
    check_made(forked, VersionRef(LINEAGE, 2), VersionRef(OTHER, 2))
    stored = forked.spool.stored(parse_key(f"{OTHER}/{LINEAGE}:2-2.fast"))
    assert stored is not None
    assert stored.manifest.num_changed == 0


def test_a_made_object_is_signed_and_kept_under_its_key(trainer: Trainer) -> None:
    key = delta_key(LINEAGE, 1, 4)
    stored = trainer.maker.make(key)
    document, signature = open_envelope(stored.envelope)
    assert signature == sign(document)
    assert trainer.spool.stored(key) is stored
    assert trainer.maker.make(key) is stored
    assert sum(bucket.size_bytes for bucket in stored.manifest.buckets) == stored.size_bytes


def test_a_span_that_many_ask_for_at_once_is_made_once(trainer: Trainer) -> None:
    begun: list[ObjectKey] = []
    together = threading.Barrier(4)

    class Counting(Watcher):
        def begun(self, writer: ObjectWriter) -> None:
            begun.append(writer.key)

    found = []

    def ask() -> None:
        together.wait()
        found.append(trainer.maker.make(delta_key(LINEAGE, 0, 4), Counting()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 1
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_buckets_can_be_sent_while_the_object_is_made(trainer: Trainer) -> None:
    sent: list[tuple[int, bytes]] = []

    class Sending(Watcher):
        def begun(self, writer: ObjectWriter) -> None:
            self.writer = writer

        def kept(self, key: ObjectKey, index: int) -> None:
            sent.append((index, bytes(self.writer.read(index)[1])))

    stored = trainer.maker.make(delta_key(LINEAGE, 0, 4), Sending())
    assert b"".join(data for _, data in sent) == bytes(stored.view())
    assert [index for index, _ in sent] == list(range(stored.num_buckets))


def test_what_cannot_be_made_is_refused_and_leaves_nothing(trainer: Trainer) -> None:
    trainer.spool.remove(delta_key(LINEAGE, 1, 2))
    before = len(trainer.spool.objects())
    for text in (f"{LINEAGE}/0-4.fast", f"{LINEAGE}/4-0.fast", f"{LINEAGE}/0-9.fast", f"{LINEAGE}/{OTHER}:0-4.fast"):
        with pytest.raises(ChainError, match="cannot be made"):
            trainer.maker.make(parse_key(text))
    assert len(trainer.spool.objects()) == before
    assert trainer.maker.make(delta_key(LINEAGE, 2, 4)).size_bytes > 0


def test_a_link_that_the_disk_damaged_is_found_before_anything_is_made_of_it(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "spool", versions=2)
    trainer.spool.close()
    (data,) = (tmp_path / "spool" / "objects").glob("*_1-2.fast.data")
    raw = bytearray(data.read_bytes())
    raw[40] ^= 1
    data.write_bytes(raw)
    reopened = Trainer(type(trainer.spool).open(tmp_path / "spool", max_bytes=1 << 40, max_versions=9), trainer.layout)
    with reopened.spool, pytest.raises(SpoolCorruptError, match="damaged"):
        reopened.maker.make(delta_key(LINEAGE, 0, 2))
    assert len(list((tmp_path / "spool" / "objects").glob("*.manifest"))) == 2


def test_an_anchor_brings_a_stranger_to_the_version(trainer: Trainer) -> None:
    newest = VersionRef(LINEAGE, 4)
    version = trainer.direct(VersionRef(LINEAGE, 3), newest).target
    key = ObjectKey(LINEAGE, None, None, 4, "anchor")
    source = bind(trainer.layout, trainer.states[newest])
    stored = trainer.maker.make_anchor(key, source, version, trainer.layout)
    state = copied(trainer.states[VersionRef(LINEAGE, 0)])
    live = bind(trainer.layout, state, writable=True)
    for anchor in read_anchor(stored.view(), BlockMap(trainer.layout), threads=1):
        assert anchor.seq == 4
        write_block(anchor, live)
    assert same_bits(state, trainer.states[newest])
    assert stored.manifest.target == version


def test_an_anchor_of_some_blocks_is_an_object_of_its_own(trainer: Trainer) -> None:
    version = trainer.direct(VersionRef(LINEAGE, 3), VersionRef(LINEAGE, 4)).target
    source = bind(trainer.layout, trainer.states[VersionRef(LINEAGE, 4)])
    key = ObjectKey(LINEAGE, None, None, 4, "anchor", 7)
    stored = trainer.maker.make_anchor(key, source, version, trainer.layout, numbers=[1])
    found = [anchor.block.number for anchor in read_anchor(stored.view(), BlockMap(trainer.layout), threads=1)]
    assert found == [1]
    with pytest.raises(ChainError):
        trainer.maker.make_anchor(ObjectKey(LINEAGE, None, None, 3, "anchor"), source, version, trainer.layout)
