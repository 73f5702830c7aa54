"""A relay that makes a term up fences nobody off: nothing of it lasts, and the member follows the true trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.keys import delta_key
from sync_runtime.identity.signing import TERM_PREFIX
from sync_runtime.session.shelf import offer
from sync_runtime.session.terms import term_document
from sync_runtime.sidecar.fences import FILE
from sync_runtime.transport.body import JsonMessage
from sync_runtime.transport.messages import Head, Index, Signer, Term
from tests.support.following import activated
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.hostile_relay import HostileRelay
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(60)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))
HUGE = 10**12
MADE_UP = "e" * 32
NAMES = {"term": HUGE, "incarnation": MADE_UP}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20) as made:
        made.start("trainer-0")
        yield made


def chain(relay: HostileRelay) -> str:
    """The trainer's own."""
    return (relay.identity.parent / "trainer-0/tls.crt").read_text()


def send(relay: HostileRelay, message: JsonMessage) -> None:
    """After all that an honest relay says first."""
    relay.link.send(Signer(certificates=chain(relay)))
    relay.prove()
    relay.link.send(message)


def in_index(relay: HostileRelay) -> None:
    head = relay.versions.head
    assert head is not None
    send(relay, Index.model_validate({**NAMES, "lineage": head.lineage, "start": None, "versions": []}))


def in_head(relay: HostileRelay) -> None:
    head = relay.versions.head
    assert head is not None
    names = {**NAMES, "lineage": head.lineage, "seq": head.seq, "digest": relay.versions.digest(head)}
    send(relay, Head.model_validate({**names, "step": None, "published_unix_ns": 0, "trace": ""}))


def in_begin(relay: HostileRelay) -> None:
    head = relay.versions.head
    assert head is not None
    key = delta_key(head.lineage, head.seq - 1, head.seq)
    send(relay, offer(key, None, relay.versions).model_copy(update=NAMES))


def in_a_term_of_its_own(relay: HostileRelay) -> None:
    signature = relay.own_signature(term_document(relay.group_uid, HUGE, MADE_UP), TERM_PREFIX)
    send(relay, Term.model_validate({**NAMES, "signature": signature.hex()}))


def in_a_forged_term(relay: HostileRelay) -> None:
    proof = relay.versions.fence.proof
    assert proof is not None
    send(relay, Term.model_validate({**NAMES, "signature": proof.signature}))


def as_a_signer_of_its_own(relay: HostileRelay) -> None:
    relay.link.send(Signer(certificates=relay.own_chain()))


LIES: dict[Callable[[HostileRelay], None], str] = {
    in_index: "UnprovedTerm",
    in_head: "UnprovedTerm",
    in_begin: "UnprovedTerm",
    in_a_term_of_its_own: "BadParent",
    in_a_forged_term: "BadParent",
    as_a_signer_of_its_own: "BadParent",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_term_that_a_relay_made_up_keeps_nobody_from_the_true_trainer(
    group: InsideGroup, lie: Callable[[HostileRelay], None]
) -> None:
    trained, weights = small_model(), small_model()
    versions = group.sidecars["trainer-0"].versions
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        nudge(trained, 0)
        first = publisher.publish()
        with HostileRelay(group.folder / "certs/eu-0", group.ports["eu-0"], versions, lie) as relay:
            group.start("eu-1")
            with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
                wait_for(lambda: activated(subscriber) == first, 30, what="the trainer's version")
                assert same_bits(weights, trained)
                wait_for(lambda: relay.ends == [LIES[lie]], what="the end that the relay sees")
                assert group.ask("eu-1", "/v1/refusals")[LIES[lie]] == 1
        proof = versions.fence.proof
        assert proof is not None
        kept = (group.sidecars["eu-1"].spool.path / FILE).read_text()
        assert kept == f"{proof.term} {proof.incarnation} {proof.signature}\n"
        group.stop("eu-1")
        group.start("eu-1")  # what it kept lets it follow the true trainer
        with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
            nudge(trained, 1)
            second = publisher.publish()
            wait_for(lambda: activated(subscriber) == second, 30, what="the trainer's next version")
            assert same_bits(weights, trained)


def test_the_term_in_a_welcome_moves_nothing(group: InsideGroup) -> None:
    trained, weights = small_model(), small_model()
    versions = group.sidecars["trainer-0"].versions
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        nudge(trained, 0)
        first = publisher.publish()
        identity, port = group.folder / "certs/eu-0", group.ports["eu-0"]
        with HostileRelay(identity, port, versions, lambda relay: None) as relay:
            relay.welcomes_with = HUGE
            group.start("eu-1")
            wait_for(lambda: relay.attacks == 1, what="the child")
            assert group.ask("eu-1", "/v1/status")["report"]["term"] == 0
        with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
            wait_for(lambda: activated(subscriber) == first, 30, what="the trainer's version")
            assert same_bits(weights, trained)


def test_a_relay_that_restarts_has_the_proof_for_its_children(group: InsideGroup) -> None:
    trained = small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        nudge(trained, 0)
        publisher.publish()
        group.start("eu-0")
        proof = group.sidecars["trainer-0"].versions.fence.proof
        wait_for(lambda: group.sidecars["eu-0"].versions.fence.proof == proof, what="the proof at the relay")
        group.stop("eu-0")
    group.stop("trainer-0")
    group.start("eu-0", "eu-1")  # nobody above tells it any more
    wait_for(lambda: group.sidecars["eu-1"].versions.fence.proof == proof, what="the proof at the child")
