"""The time that a version took, from the wire to the member's lease, which is where an operator reads it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.contract.names import ANNOTATION_REPORT
from sync_runtime.contract.reports import MemberReport
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(60)
RELAY, LEAF = Member("eu-0", "eu", ("trainer-0",), relay=True), Member("eu-1", "eu", ("eu-0",))


def lease_of(group: InsideGroup, name: str) -> Path:
    return group.folder / "state" / "leases" / f"{name}.json"


def leased(group: InsideGroup, name: str) -> MemberReport:
    """What a member's lease says of it."""
    document = json.loads(lease_of(group, name).read_text())
    return MemberReport.from_json(document["metadata"]["annotations"][ANNOTATION_REPORT])


def test_every_member_reports_how_long_a_version_took_and_nothing_before_one_came(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20) as group:
        group.start_all()
        trained, near, far = small_model(), small_model(), small_model()
        with (
            Publisher(trained, socket=group.socket("trainer-0")) as publisher,
            Subscriber(near, socket=group.socket("eu-0")) as first,
            Subscriber(far, socket=group.socket("eu-1")) as second,
        ):
            members = {"eu-0": first, "eu-1": second}
            for name in members:
                wait_for(lambda name=name: lease_of(group, name).exists(), what="its lease")
                wait_for(lambda name=name: leased(group, name).version is not None, what="a version in the lease")
                assert leased(group, name).sync_millis is None, "it opened with the trainer's weights: nothing came"
            nudge(trained, 0)
            began_s = time.monotonic()
            seq = publisher.publish().seq
            for name, subscriber in members.items():
                follow(subscriber, seq)
                most_millis = (time.monotonic() - began_s) * 1000
                found = wait_for(lambda name=name: _serving(leased(group, name), seq), what="the version in the lease")
                assert found.sync_millis is not None
                assert 0 < found.sync_millis <= most_millis
            assert leased(group, "trainer-0").sync_millis is None


def _serving(report: MemberReport, seq: int) -> MemberReport | None:
    return report if report.version is not None and report.version.seq == seq else None
