"""What a member's session makes of its parent's messages, and what it asks for."""

from __future__ import annotations

import asyncio
import time

import pytest

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key, repair_key
from sync_runtime.errors import FormatError, SpoolFullError
from sync_runtime.session.catch_up.stalls import PATIENCE_S, SILENT_S
from sync_runtime.transport.messages import Abort, Drop, Follow, Want
from tests.unit.session.receivers import A, Parent, Scene, begin, head, index


def test_a_bucket_that_overtakes_the_head_before_it_stays(scene: Scene) -> None:
    key = delta_key(A, 0, 1)
    scene.session.connected(scene.parent)
    scene.keep(key)  # in a stream's thread, while HEAD and BEGIN still wait for the loop
    scene.hear(index(0), head(0), begin(1, key))
    assert scene.spool.receive(key).have() == [(0, 1)]


def test_what_a_dead_trainer_left_half_sent_is_void_when_its_successor_does_not_have_it(scene: Scene) -> None:
    key = delta_key(A, 3, 4)
    scene.keep(key)
    scene.session.connected(scene.parent)
    scene.hear(index(3), head(3))
    assert scene.spool.partial() == ()


def test_the_rest_of_a_partial_object_is_asked_for(scene: Scene) -> None:
    key = delta_key(A, 0, 1)
    scene.keep(key)
    scene.session.connected(scene.parent)
    scene.hear(index(1), head(1))
    assert scene.parent.heard(Want) == [Want(key=key.text, have=[[0, 1]], blocks=None)]


def test_what_was_asked_of_a_parent_that_is_gone_does_not_count_as_coming(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.session.request(delta_key(A, 0, 5), None)
    scene.session.gone(scene.parent)
    scene.parent = Parent()
    scene.session.connected(scene.parent)
    scene.hear(index(5), head(5))
    follow = scene.parent.heard(Follow)[-1]
    assert isinstance(follow, Follow)
    assert follow.seq == 0


def test_an_object_that_is_offered_twice_has_one_receiver(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(index(1), head(1))
    told = len(scene.parent.heard(Follow))
    key = delta_key(A, 0, 1)
    scene.hear(begin(1, key), begin(2, key))  # offered twice: one object, one receiver
    assert len(scene.session.incoming) == 1
    assert len(scene.parent.heard(Follow)) == told


def test_an_object_that_nobody_can_make_is_told_to_the_engine(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    key = delta_key(A, 0, 5)
    scene.hear(index(5), head(5), begin(1, key), Abort(transfer=1, reason="NotFound"))
    assert scene.engine.lost == [key]
    assert scene.session.incoming == ()


def test_offers_of_an_old_term_end_the_link(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(scene.term(2), head(5, term=2), head(6, term=1))
    assert scene.parent.closed == ["OldTerm"]
    assert scene.session.refusals["OldTerm"] == 1
    assert scene.versions.head == VersionRef(A, 5)


def test_a_joiner_whose_lineage_ends_asks_for_whole_weights_of_the_next(scene: Scene) -> None:
    scene.engine.version = None
    scene.session.connected(scene.parent)
    scene.hear(index(5), head(5), begin(1, ObjectKey(A, None, None, 5, "anchor")))
    told = len(scene.parent.heard(Follow))
    scene.hear(head(5).model_copy(update={"lineage": "b" * 32}))
    (follow,) = scene.parent.heard(Follow)[told:]
    assert isinstance(follow, Follow)
    assert follow.want_anchor


def test_a_relay_whose_engine_moved_asks_for_what_it_needs_now(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(index(5), head(5))
    scene.session.request(delta_key(A, 0, 5), None)  # the engine's own, or a child's
    scene.session.follow()
    scene.engine.version = VersionRef(A, 3)  # it came there by other objects meanwhile
    scene.distributor.positions = lambda: [VersionRef(A, 5)]  # type: ignore[method-assign]
    scene.session.moved()
    assert scene.parent.heard(Want)[-1] == Want(key=delta_key(A, 3, 5).text, have=[], blocks=None)


def test_a_bucket_that_contradicts_its_manifest_is_the_parents_lie(scene: Scene) -> None:
    key = delta_key(A, 0, 1)
    scene.session.connected(scene.parent)
    scene.hear(index(1), head(1), begin(1, key))
    scene.session.bucket_failed(scene.parent, 1, FormatError("bucket 0 is not the one that the manifest names"))
    assert scene.parent.closed == ["BadParent"]


def test_a_full_spool_is_nobodys_lie_and_is_tried_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.session.receive.RETRY_S", 0.0)
    key = delta_key(A, 0, 1)

    async def run() -> int:
        scene.session.connected(scene.parent)
        scene.hear(index(1), head(1), begin(1, key))
        told = len(scene.parent.heard(Follow))
        scene.session.bucket_failed(scene.parent, 1, SpoolFullError("no room"))
        await asyncio.sleep(0.01)
        return len(scene.parent.heard(Follow)) - told

    assert asyncio.run(run()) == 1
    assert scene.parent.closed == []
    assert not scene.parent.heard(Drop)


def test_blocks_that_mend_live_weights_are_asked_for_once_per_link(scene: Scene) -> None:
    ranges = [[2, 3], [5, 7]]
    key = repair_key(VersionRef(A, 0), ranges)
    for _ in range(2):
        scene.parent = Parent()
        scene.session.connected(scene.parent)
        scene.hear(index(0), head(0))
        scene.engine.mending = {key: ranges}
        for _ in range(3):
            scene.session.follow()
        assert scene.parent.heard(Want) == [Want(key=key.text, have=[], blocks=ranges)]
        scene.session.gone(scene.parent)


def test_a_repair_that_is_partly_here_is_gone_on_with_though_its_version_is_live(scene: Scene) -> None:
    key = repair_key(VersionRef(A, 0), [[2, 3]])
    scene.keep(key)
    scene.session.connected(scene.parent)
    scene.hear(index(0), head(0))
    assert scene.parent.heard(Want) == [Want(key=key.text, have=[[0, 1]], blocks=None)]


def test_a_member_that_threw_away_what_a_dead_trainer_began_says_what_it_holds(scene: Scene) -> None:
    key = delta_key(A, 3, 4)
    scene.engine.version = VersionRef(A, 3)
    scene.keep(key)
    scene.session.connected(scene.parent)
    scene.hear(index(4), head(4), begin(1, key))  # its trainer says that it is durable, and the rest is on its way
    told = len(scene.parent.heard(Follow))
    scene.hear(
        scene.term(2), head(3, term=2)
    )  # a successor that does not have it, told by a parent that stays connected
    assert scene.parent.heard(Drop)[-1] == Drop(transfer=1, reason="Void")
    follow = scene.parent.heard(Follow)[told:]
    assert [(one.lineage, one.seq) for one in follow if isinstance(one, Follow)] == [(A, 3)]


def test_a_request_that_was_lost_is_made_again_and_never_while_it_is_on_its_way(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(index(5), head(5))
    told, now_s = len(scene.parent.heard(Follow)), time.monotonic()
    scene.session.look_after(now_s)
    assert len(scene.parent.heard(Follow)) == told
    scene.session.look_after(now_s + PATIENCE_S)
    assert len(scene.parent.heard(Follow)) == told + 1
    assert scene.session.asked_again == 1
    scene.hear(begin(1, delta_key(A, 0, 5)))
    for later_s in range(4, 25, 4):
        scene.session.look_after(now_s + later_s)
    assert len(scene.parent.heard(Follow)) == told + 1


def test_what_was_asked_for_and_never_began_does_not_count_as_coming(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(index(5), head(5))
    scene.session.request(delta_key(A, 0, 5), None)  # lost
    now_s = time.monotonic()
    scene.session.look_after(now_s)
    scene.session.look_after(now_s + PATIENCE_S)
    follow = scene.parent.heard(Follow)[-1]
    assert isinstance(follow, Follow)
    assert follow.seq == 0


def test_a_transfer_of_which_nothing_came_for_long_is_dropped_and_asked_for_anew(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    key = delta_key(A, 0, 5)
    scene.hear(index(5), head(5), begin(1, key))
    now_s = time.monotonic() + SILENT_S + 1
    scene.session.look_after(now_s)
    scene.session.look_after(now_s + PATIENCE_S)
    assert scene.parent.heard(Drop) == [Drop(transfer=1, reason="Stalled")]
    assert scene.parent.heard(Want)[-1] == Want(key=key.text, have=[], blocks=None)


def test_a_transfer_whose_source_is_gone_is_dropped_so_that_the_parent_begins_anew(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(index(5), head(5), begin(1, delta_key(A, 0, 5)))
    told = len(scene.parent.heard(Follow))
    scene.hear(Abort(transfer=1, reason="Gone"))
    assert scene.parent.heard(Drop) == [Drop(transfer=1, reason="Gone")]
    assert len(scene.parent.heard(Follow)) == told + 1


def test_nothing_is_asked_for_before_the_parent_said_what_is_newest(scene: Scene) -> None:
    scene.keep(delta_key(A, 0, 1))
    scene.session.connected(scene.parent)
    scene.session.request(delta_key(A, 0, 5), None)
    assert scene.parent.said == []


def test_a_bucket_that_cannot_be_kept_ends_its_object_and_whatever_else_brings_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sync_runtime.session.receive.RETRY_S", 0.0)
    key = delta_key(A, 0, 1)

    async def run() -> None:
        scene.session.connected(scene.parent)
        scene.hear(index(1), head(1), begin(1, key), begin(2, key))
        scene.session.bucket_failed(scene.parent, 1, SpoolFullError("no room"))
        assert scene.session.incoming == ()
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert scene.parent.heard(Drop) == [Drop(transfer=2, reason="NotKept")]  # transport dropped the first one
    follow = scene.parent.heard(Follow)[-1]
    assert isinstance(follow, Follow)
    assert follow.seq == 0


@pytest.mark.parametrize("over", ["the transfer", "the link"])
def test_a_bucket_that_failed_in_what_is_over_disturbs_nothing(scene: Scene, over: str) -> None:
    key, before = delta_key(A, 0, 1), scene.parent
    scene.session.connected(scene.parent)
    scene.hear(index(1), head(1), begin(1, key))
    if over == "the link":
        scene.session.gone(scene.parent)
        scene.parent = Parent()
        scene.session.connected(scene.parent)
        scene.hear(index(1), head(1), begin(1, key))
        scene.session.bucket_failed(before, 1, FormatError("of another link"))
    else:
        scene.session.bucket_failed(scene.parent, 7, FormatError("of another transfer"))
    assert [one.key for one in scene.session.incoming] == [key]
    assert scene.parent.closed == []
