"""What an operator's plans and pods change for a running sidecar: who relays, and which term a trainer leads with."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.spool import Spool
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.brain import Sidecar
from sync_runtime.sidecar.trainer import Trainer
from sync_runtime.sidecar.view import View
from sync_runtime.standalone import load_group, settings_of
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(60)
FIRST, SECOND = Member("eu-0", "eu", ("trainer-0",), relay=True), Member("eu-1", "eu", ("trainer-0",))


def test_a_member_that_a_later_plan_makes_a_relay_begins_to_listen(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, FIRST, SECOND], ringBytes=1 << 20) as group:
        later = group.config.read_text()
        group.config.write_text(later.replace("relay = true", "relay = false"))
        group.start_all()
        assert group.sidecars["eu-0"].listener is None
        trained, relay, leaf = small_model(), small_model(), small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            with Subscriber(relay, socket=group.socket("eu-0")), Subscriber(leaf, socket=group.socket("eu-1")) as last:
                head, _, tail = later.rpartition('parents = ["trainer-0"]')
                group.config.write_text(f'{head}parents = ["eu-0"]{tail}')
                wait_for(lambda: group.ask("eu-1", "/v1/status")["report"].get("parent") == "eu-0", what="the relay")
                nudge(trained, 0)
                follow(last, publisher.publish().seq)
                assert same_bits(leaf, trained)


@pytest.fixture
def settings(tmp_path: Path) -> SidecarSettings:
    """A trainer's, as in a pod that was made for term 3."""
    group = Group(tmp_path, [TRAINER])
    found = settings_of(load_group(group.config), "trainer-0", group.config)
    return dataclasses.replace(found, lease_dir=None, term=3)


def started(settings: SidecarSettings) -> tuple[int, str | None, int, list[str]]:
    """Term and incarnation that a sidecar leads with, the term that it reports, and what keeps it from being ready."""

    async def run() -> tuple[int, str | None, int, list[str]]:
        sidecar = Sidecar(settings, {})
        assert isinstance(sidecar.role, Trainer)
        fence = sidecar.versions.fence
        found = fence.term, fence.incarnation, sidecar.role.report().term, list(View(sidecar).ready())
        await sidecar.close()
        return found

    return asyncio.run(run())


def test_a_trainer_leads_with_its_pods_term_at_every_start(settings: SidecarSettings) -> None:
    first, second = started(settings), started(settings)
    assert first == second
    assert (first[0], first[2], first[3]) == (3, 3, ["no publisher is open"])


def test_a_successors_pod_on_the_same_claim_leads_with_a_new_incarnation(settings: SidecarSettings) -> None:
    first, second = started(settings), started(dataclasses.replace(settings, term=4))
    assert (first[0], second[0]) == (3, 4)
    assert first[1] != second[1]


def test_a_trainer_whose_spool_knows_a_later_term_leads_nobody_and_says_so(settings: SidecarSettings) -> None:
    with Spool.open(settings.spool_dir, max_bytes=1 << 20, max_versions=4) as spool:
        theirs = spool.incarnation(7)
    term, incarnation, reported, reasons = started(settings)
    assert (term, reported, reasons) == (3, 7, ["another trainer was appointed"])
    assert incarnation != theirs
    with Spool.open(settings.spool_dir, max_bytes=1 << 20, max_versions=4) as spool:
        assert (spool.term, spool.incarnation(7)) == (7, theirs), "what the other trainer left is as it was"


def test_without_an_operator_every_start_has_a_term_of_its_own(settings: SidecarSettings, tmp_path: Path) -> None:
    standalone = dataclasses.replace(settings, lease_dir=tmp_path / "leases", term=0)
    assert [started(standalone)[0], started(standalone)[0]] == [1, 2]
