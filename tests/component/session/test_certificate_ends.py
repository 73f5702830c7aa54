"""A certificate that ends while its member works: its link ends with a counted reason, and is back after a renewal."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.identity.ca import load_ca, make_request, sign_request
from sync_runtime.identity.files import CERTIFICATE_FILE, KEY_FILE, KEY_MODE, PUBLIC_MODE, read_folder, write_file
from sync_runtime.identity.keys import key_pem, make_key, read_key
from sync_runtime.sidecar.fences import FILE
from sync_runtime.sidecar.rollout import Rollout
from sync_runtime.transport.listener import Listener
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0",))
SHORT = datetime.timedelta(seconds=4)
DAY = datetime.timedelta(days=1)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 22) as made:
        yield made


def renew(group: InsideGroup, name: str, lifetime: datetime.timedelta, *, new_key: bool = False) -> datetime.datetime:
    """A new certificate for the member's own key, or for a new one; when it ends."""
    certs = group.folder / "certs"
    authority = load_ca((certs / "ca.crt").read_bytes(), (certs / "ca.key").read_bytes())
    identity, key = read_folder(certs / name).identity, read_key((certs / name / KEY_FILE).read_bytes())
    if new_key:
        key = make_key()
        write_file(certs / name / KEY_FILE, key_pem(key), mode=KEY_MODE, replace=True)
    now = datetime.datetime.now(datetime.UTC)
    certificate = sign_request(authority, make_request(identity, key), identity, now=now, lifetime=lifetime)
    write_file(certs / name / CERTIFICATE_FILE, certificate, mode=PUBLIC_MODE, replace=True)
    return now + lifetime


def shorten(group: InsideGroup, name: str, child: str) -> None:
    """The link above a child stands on a certificate of this member that ends in a moment.

    Certificates count from the next handshake on. On a busy machine one may have ended before that: then once more.
    """
    role = group.sidecars[child].role
    assert isinstance(role, Rollout)
    while True:
        before, ends = role._dialler.link, renew(group, name, SHORT)
        if name != child:
            renew(group, child, DAY)  # whoever has a new certificate dials anew
        while datetime.datetime.now(datetime.UTC) < ends:
            if role._dialler.link not in (None, before):
                return
            time.sleep(0.02)


@pytest.mark.parametrize(("name", "judge"), [("eu-0", "trainer-0"), ("trainer-0", "trainer-0"), ("eu-1", "eu-0")])
def test_a_link_whose_certificate_ended_is_refused_and_comes_back_with_a_new_one(
    group: InsideGroup, name: str, judge: str
) -> None:
    group.start_all()
    trained, one, other = small_model(), small_model(), small_model()
    cut = "eu-1" if name == "eu-1" else "eu-0"
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(one, socket=group.socket("eu-0")) as relay,
        Subscriber(other, socket=group.socket("eu-1")) as leaf,
    ):
        nudge(trained, 0)
        first = publisher.publish()
        for subscriber in (relay, leaf):
            follow(subscriber, first.seq)
        shorten(group, name, cut)
        wait_for(lambda: group.ask(judge, "/v1/refusals").get("Expired"), what="a counted refusal")
        wait_for(lambda: group.ask(cut, "/v1/status")["report"].get("parent") is None, what="the end of the link")
        nudge(trained, 1)
        publisher.publish()
        nudge(trained, 2)
        last = publisher.publish()
        refused = {"DialRefusedByPeer", "DialExpired"}
        wait_for(lambda: refused & group.ask(cut, "/v1/refusals").keys(), what="a dial in vain")
        renew(group, name, DAY)
        for subscriber, model in ((relay, one), (leaf, other)):
            follow(subscriber, last.seq)
            assert same_bits(model, trained)


def test_a_child_ends_the_link_to_a_parent_that_goes_on_with_a_certificate_that_ended(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listener, "end_expired", lambda _self, _now: None)
    group.start_all()
    wait_for(lambda: group.ask("eu-1", "/v1/status")["report"].get("parent") == "eu-0", what="a link")
    shorten(group, "eu-0", "eu-1")
    wait_for(lambda: group.ask("eu-1", "/v1/refusals").get("Expired"), what="a counted refusal")
    wait_for(lambda: group.ask("eu-1", "/v1/status")["report"].get("parent") is None, what="the end of the link")
    renew(group, "eu-0", DAY)
    wait_for(lambda: group.ask("eu-1", "/v1/status")["report"].get("parent") == "eu-0", what="a new link")


def test_a_trainer_with_a_new_key_proves_its_term_anew_to_everyone_below(group: InsideGroup) -> None:
    group.start_all()
    fences = {name: group.sidecars[name].versions.fence for name in ("trainer-0", "eu-0", "eu-1")}
    before = fences["trainer-0"].proof
    assert before is not None
    wait_for(lambda: {fence.proof for fence in fences.values()} == {before}, what="the proof everywhere")
    renew(group, "trainer-0", DAY, new_key=True)
    wait_for(lambda: fences["trainer-0"].proof != before, what="a new proof")
    wait_for(lambda: len({fence.proof for fence in fences.values()}) == 1, what="the new proof everywhere")
    assert {fence.term for fence in fences.values()} == {before.term}
    kept = fences["eu-1"].proof
    assert kept is not None
    wait_for(lambda: kept.signature in (group.sidecars["eu-1"].spool.path / FILE).read_text(), what="it on disk")
