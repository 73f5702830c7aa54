"""A relay that lies changes no member's weights: it is left for the next parent, and that is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.bucket.manifest import open_envelope, pack_envelope
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.session.shelf import offer
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.hostile_relay import HostileRelay, Liar
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(60)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))


class Scene:
    """A trainer with one version, and all that a relay may know of it."""

    def __init__(self, group: InsideGroup, publisher: Publisher, model: torch.nn.Module) -> None:
        self.group, self.publisher, self.model = group, publisher, model
        version = publisher.version
        assert version is not None
        self.sidecar = group.sidecars["trainer-0"]
        self.key = delta_key(version.lineage, 0, 1)
        stored = self.sidecar.spool.stored(self.key)
        assert stored is not None
        self.stored: StoredObject = stored
        self.lineage = version.lineage

    @property
    def chain(self) -> str:
        return (self.group.folder / "certs/trainer-0/tls.crt").read_text()

    @property
    def layout(self) -> bytes:
        found = self.sidecar.spool.layout(self.stored.facts.layout_hash)
        assert found is not None
        return found

    def rows(self) -> list[tuple[int, str]]:
        lineage = self.sidecar.versions.lineages[self.lineage]
        return sorted(lineage.digests.items())

    def greet(self, relay: HostileRelay) -> None:
        relay.greet(self.chain, self.layout, self.rows(), 1)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20) as group:
        group.start("trainer-0")
        model = small_model()
        with Publisher(model, socket=group.socket("trainer-0")) as publisher:
            nudge(model, 0)
            publisher.publish(step=1)
            yield Scene(group, publisher, model)


def flip(data: bytes) -> bytes:
    """One bit."""
    return bytes([data[0] ^ 1]) + data[1:]


def unsigned(scene: Scene, relay: HostileRelay) -> None:
    scene.greet(relay)
    document, _ = open_envelope(scene.stored.envelope)
    relay.push(scene.key, scene.stored, scene.stored, pack_envelope(document))


def signed_by_a_rollout(scene: Scene, relay: HostileRelay) -> None:
    scene.greet(relay)
    document, _ = open_envelope(scene.stored.envelope)
    relay.push(scene.key, scene.stored, scene.stored, pack_envelope(document, relay.own_signature(document)))


def rollout_as_signer(scene: Scene, relay: HostileRelay) -> None:
    relay.greet(relay.own_chain(), scene.layout, scene.rows(), 1)
    document, _ = open_envelope(scene.stored.envelope)
    relay.push(scene.key, scene.stored, scene.stored, pack_envelope(document, relay.own_signature(document)))


def altered_manifest(scene: Scene, relay: HostileRelay) -> None:
    scene.greet(relay)
    document, signature = open_envelope(scene.stored.envelope)
    changed = document.replace(b'"changed":', b'"changed": ', 1)
    relay.push(scene.key, scene.stored, scene.stored, pack_envelope(changed, signature))


def manifest_of_another_object(scene: Scene, relay: HostileRelay) -> None:
    scene.greet(relay)
    relay.push(delta_key(scene.lineage, 0, 2), scene.stored, scene.stored, scene.stored.envelope)


def altered_buckets(scene: Scene, relay: HostileRelay) -> None:
    scene.greet(relay)
    relay.push(scene.key, scene.stored, Liar(scene.stored, flip, claims_truth=False), scene.stored.envelope)


def damaged_buckets(scene: Scene, relay: HostileRelay) -> None:
    scene.greet(relay)
    relay.push(scene.key, scene.stored, Liar(scene.stored, flip, claims_truth=True), scene.stored.envelope)


def another_layout(scene: Scene, relay: HostileRelay) -> None:
    scene.greet(relay)
    begin = offer(scene.key, scene.stored, relay.versions).model_copy(update={"layout": "f" * 64})
    transfer = relay.link.begin(begin, scene.stored)
    relay.link.add_bucket(transfer, 0)
    relay.link.complete(transfer, scene.stored.envelope)


ATTACKS: dict[str, Callable[[Scene, HostileRelay], None]] = {
    "a manifest without a signature": unsigned,
    "a manifest signed by a rollout": signed_by_a_rollout,
    "a rollout that calls itself the trainer": rollout_as_signer,
    "a manifest that was altered": altered_manifest,
    "a manifest of another object": manifest_of_another_object,
    "buckets that the manifest does not name": altered_buckets,
    "an offer of another layout": another_layout,
    "buckets that were damaged behind TLS": damaged_buckets,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_lie_is_refused_and_the_version_comes_from_the_next_parent(scene: Scene, attack: str) -> None:
    group, weights = scene.group, small_model()
    identity, port = group.folder / "certs/eu-0", group.ports["eu-0"]
    with HostileRelay(identity, port, scene.sidecar.versions, lambda relay: ATTACKS[attack](scene, relay)) as relay:
        group.start("eu-1")
        with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
            wait_for(lambda: subscriber.wait(timeout=0.2), 20, what="a staged version")
            assert same_bits(weights, small_model())
            assert subscriber.activate() == scene.publisher.version
            assert same_bits(weights, scene.model)
            assert subscriber.scrub()
            assert relay.attacks == 1
            wait_for(lambda: relay.ends == ["BadParent"], what="the end that the relay sees")
            assert group.ask("eu-1", "/v1/refusals")["BadParent"] == 1
            assert group.ask("eu-1", "/v1/status")["report"]["parent"] == "trainer-0"


def test_a_lie_about_which_version_a_digest_is_ends_with_the_first_signed_word(scene: Scene) -> None:
    """HEAD and INDEX carry no signature: a relay may claim that old weights are the newest version, for a while."""
    group, weights = scene.group, small_model()

    def attack(relay: HostileRelay) -> None:
        rows = [(7, scene.rows()[0][1])]  # the weights that all began with, under another number
        relay.greet(scene.chain, scene.layout, rows, 7)

    with HostileRelay(group.folder / "certs/eu-0", group.ports["eu-0"], scene.sidecar.versions, attack):
        group.start("eu-1")
        with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
            wait_for(lambda: subscriber.version is not None, what="the lie")
    with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
        wait_for(lambda: subscriber.wait(timeout=0.2), 30, what="a staged version")
        assert subscriber.activate() == scene.publisher.version
        assert same_bits(weights, scene.model)
        assert group.sidecars["eu-1"].versions.head == VersionRef(scene.lineage, 1)
