"""A term counts once its trainer has signed it; a parent's word for one moves nothing."""

from __future__ import annotations

import pytest

from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.keys import make_key
from sync_runtime.identity.signing import SIGNED_PREFIX, TERM_PREFIX, Signer
from sync_runtime.session.terms import term_document
from sync_runtime.session.versions import Fence
from sync_runtime.transport.body import JsonMessage
from sync_runtime.transport.messages import Message, Term
from tests.support.identities import DAY, GROUP_UID, Group, now
from tests.unit.session.receivers import ME, A, Parent, Scene, begin, head, index, term
from tests.unit.session.relays import House

HUGE = 10**12
OTHER = "e" * 32
LIES: dict[str, Message] = {
    "INDEX": index(5, HUGE),
    "HEAD": head(5, HUGE),
    "BEGIN": begin(1, delta_key(A, 0, 1), HUGE),
}


def standing(scene: Scene) -> tuple[int, str | None]:
    return scene.versions.fence.term, scene.versions.fence.incarnation


@pytest.mark.parametrize("frame", LIES)
def test_a_term_that_a_parent_only_names_moves_nothing_and_costs_it_the_child(scene: Scene, frame: str) -> None:
    scene.session.connected(scene.parent)
    scene.hear(index(1), head(1), LIES[frame])
    assert standing(scene) == (1, ME)
    assert scene.parent.closed == ["UnprovedTerm"]
    assert scene.session.refusals["UnprovedTerm"] == 1
    assert scene.session.incoming == ()
    assert scene.versions.head == VersionRef(A, 1)


def test_a_parent_that_was_turned_away_is_not_heard_any_more(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(head(5, HUGE), head(5, HUGE), scene.term(7))
    assert scene.parent.closed == ["UnprovedTerm"]
    assert standing(scene) == (1, ME)
    scene.session.connected(scene.parent)
    scene.hear(scene.term(7))
    assert standing(scene) == (7, ME)


def test_the_trainers_own_word_moves_the_fence_before_anything_is_published(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(scene.term(2, OTHER), head(1))
    assert standing(scene) == (2, OTHER)
    assert scene.parent.closed == ["OldTerm"]


def forged_by_another_key(scene: Scene, pki: Group) -> Term:
    return scene.term(HUGE).model_copy(update={"signature": make_key().sign(b"").hex()})


def signed_by_a_rollout(scene: Scene, pki: Group) -> Term:
    files, document = read_folder(pki.member("eu-0")), term_document(GROUP_UID, HUGE, ME)
    return scene.term(HUGE).model_copy(
        update={"signature": Signer(files.key, files.certificate_pem).sign(document, TERM_PREFIX).hex()}
    )


def of_another_term(scene: Scene, pki: Group) -> Term:
    return scene.term(2).model_copy(update={"term": HUGE})


def of_another_incarnation(scene: Scene, pki: Group) -> Term:
    return scene.term(2).model_copy(update={"incarnation": OTHER})


def signed_as_a_manifest(scene: Scene, pki: Group) -> Term:
    signature = Signer.of(read_folder(scene.trainer)).sign(term_document(GROUP_UID, HUGE, ME), SIGNED_PREFIX)
    return scene.term(HUGE).model_copy(update={"signature": signature.hex()})


FORGERIES = [forged_by_another_key, signed_by_a_rollout, of_another_term, of_another_incarnation, signed_as_a_manifest]


@pytest.mark.parametrize("forged", FORGERIES, ids=lambda one: one.__name__)
def test_a_forged_proof_is_a_lie(scene: Scene, pki: Group, forged: object) -> None:
    assert callable(forged)
    scene.session.connected(scene.parent)
    scene.hear(forged(scene, pki))
    assert scene.parent.closed == ["BadParent"]
    assert standing(scene) == (1, ME)


def test_the_proof_of_another_group_proves_nothing_here(scene: Scene) -> None:
    signer = Signer.of(read_folder(scene.trainer))
    foreign = signer.sign(term_document("another-group", 2, ME), TERM_PREFIX).hex()
    scene.session.connected(scene.parent)
    scene.hear(scene.term(2).model_copy(update={"signature": foreign}))
    assert scene.parent.closed == ["BadParent"]


def test_two_trainers_that_both_prove_one_term_are_a_conflict(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(scene.term(1, OTHER))
    assert scene.parent.closed == ["TermConflict"]
    assert standing(scene) == (1, ME)


def test_a_plans_term_waits_for_the_trainer_that_proves_it(scene: Scene) -> None:
    scene.versions.fence.appoint(9)
    scene.session.connected(scene.parent)
    scene.hear(head(1, 9))
    assert scene.parent.closed == ["UnprovedTerm"]
    assert standing(scene) == (9, None)
    scene.parent = Parent()
    scene.session.connected(scene.parent)
    scene.hear(scene.term(9), head(1, 9))
    assert scene.parent.closed == []
    assert standing(scene) == (9, ME)


def test_what_was_proved_stays_so_when_its_certificate_has_ended(scene: Scene, pki: Group) -> None:
    ended = pki.trainer("trainer-1", at=now() - 3 * DAY, lifetime=DAY)
    scene.signers.add((ended / "tls.crt").read_bytes())
    scene.session.connected(scene.parent)
    scene.hear(term(ended, 1), head(1))
    assert scene.parent.closed == []
    scene.hear(term(ended, 2))
    assert scene.parent.closed == ["Expired"]
    assert scene.session.refusals["Expired"] == 1
    assert standing(scene) == (1, ME)


def test_a_proof_is_passed_on_as_it_came_and_before_what_it_proves(scene: Scene) -> None:
    child = House().child(None)
    scene.distributor.connected(child, "eu-1")
    scene.session.connected(scene.parent)
    proof = scene.term(2)
    scene.hear(proof, proof, index(1, 2), head(1, 2))
    told = [one for one in child.said if isinstance(one, JsonMessage)]
    assert told[-3:] == [proof, index(1, 2), head(1, 2)]
    assert told.count(proof) == 1
    late = House().child(None)
    late.said.clear()
    scene.distributor.connected(late, "eu-2")
    assert late.said == [proof, index(1, 2), head(1, 2)]


def test_a_newcomer_is_told_the_newest_version_under_the_term_that_was_proved_since(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(index(1), head(1), scene.term(2))
    child = House().child(None)
    child.said.clear()
    scene.distributor.connected(child, "eu-1")
    assert child.said == [scene.term(2), index(1, 2), head(1, 2)]


def test_nothing_is_offered_under_a_term_that_nobody_proved() -> None:
    house = House()
    house.versions.fence = Fence(9)
    child = house.child(3)
    house.shelve(delta_key(A, 3, 4), buckets=1, done=True)
    house.publish(4)
    assert child.heard("begin") == []
    house.versions.fence.admit(9, ME)
    house.distributor.look_after(100.0)
    house.distributor.look_after(200.0)
    assert [key for _, _, key in child.heard("begin")] == [delta_key(A, 3, 4).text]


def test_a_fence_that_is_checked_does_not_move() -> None:
    fence = Fence(3, ME)
    fence.check(3, ME)
    assert fence == Fence(3, ME)
    fence.appoint(2)
    assert fence == Fence(3, ME)


def test_the_document_binds_group_term_and_incarnation() -> None:
    documents = {term_document("g", 1, ME), term_document("h", 1, ME), term_document("g", 2, ME)}
    assert len(documents | {term_document("g", 1, OTHER)}) == 4


def test_a_relay_keeps_its_children_and_is_silent_until_the_plans_trainer_is_heard(scene: Scene) -> None:
    scene.session.connected(scene.parent)
    scene.hear(scene.term(2), index(1, 2), head(1, 2))
    scene.versions.fence.appoint(9)
    child = House().child(None)
    child.said.clear()
    scene.distributor.connected(child, "eu-1")
    assert child.said == []
    scene.hear(scene.term(9))
    assert child.said == [scene.term(9)]
