"""A worker that is written by hand, with a true certificate: what it may do, and what it cannot."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sync_runtime import Publisher, Work
from sync_runtime.errors import RefusedError
from sync_runtime.identity.watch import CertificateWatch
from sync_runtime.library.version import Version
from sync_runtime.transport.handshake import dial
from sync_runtime.transport.messages import Hello
from sync_runtime.transport.work_messages import (
    Holding,
    Result,
    ResultHead,
    Return,
    Revoke,
    Take,
    Task,
    Verdict,
)
from tests.component.transport.raw import Raw
from tests.component.work.crew import ASIA, EU, groups
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import small_model

pytestmark = pytest.mark.timeout(60)
RELAY = Member("eu-1", "eu", ("trainer-0",), relay=True)


@contextmanager
def leasing(folder: Path, lease_s: int) -> Iterator[InsideGroup]:
    """A trainer whose leases last so long."""
    work = {"mode": "Leased", "leaseSeconds": lease_s, "maxAttempts": 50}
    with InsideGroup(folder, [TRAINER, EU, ASIA, RELAY], ringBytes=1 << 20, work=work) as made:
        made.start("trainer-0")
        yield made


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[InsideGroup]:
    """No lease ends by itself here, however busy the machine."""
    with leasing(tmp_path, 600) as made:
        yield made


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[InsideGroup]:
    with leasing(tmp_path, 2) as made:
        yield made


def connect(group: InsideGroup, name: str, to: str = "trainer-0", kind: str = "work") -> ssl.SSLSocket:
    settings = group.sidecars["trainer-0"].settings
    plan = group.sidecars["trainer-0"].plans.plan
    assert plan.trainer is not None
    endpoint = plan.trainer.model_copy(update={"member": to, "port": group.ports[to]})
    hello = Hello(
        protocols=[1], kind=kind, group=settings.group_uid, member=name, cluster=settings.cluster,  # type: ignore[arg-type]
        region=group.members[name].region, role="rollout", term=0,
    )  # fmt: skip
    identity = CertificateWatch(group.folder / "certs" / name)
    return dial(endpoint, identity.client_context(), hello)[0]


@contextmanager
def worker(group: InsideGroup, name: str, *held: str) -> Iterator[Raw]:
    raw = Raw(connect(group, name))
    raw.send(Holding(leases=list(held)))
    try:
        yield raw
    finally:
        raw.close()


def take(raw: Raw, version: Version, want: int = 1, digest: str | None = None) -> None:
    raw.send(Take(lineage=version.lineage, seq=version.seq, digest=digest or version.digest, want=want))


def heard(raw: Raw, kind: type) -> Task | Verdict | Revoke:
    while not isinstance(message := raw.read(10), kind):
        pass
    assert isinstance(message, Task | Verdict | Revoke)
    return message


def leased(raw: Raw, version: Version) -> Task:
    take(raw, version)
    task = heard(raw, Task)
    assert isinstance(task, Task)
    return task


def result(task: Task, **changed: object) -> Result:
    head = task.head
    fields: dict[str, object] = {
        "lease": head.lease, "lineage": head.lineage, "seq": head.seq, "digest": head.digest, "scrubbed": True,
        "tokens": 3, "busy_ms": 10,
    }  # fmt: skip
    return Result(ResultHead.model_validate({**fields, **changed}), b"answer")


def verdict(raw: Raw, message: Result) -> str:
    raw.send(message)
    found = heard(raw, Verdict)
    assert isinstance(found, Verdict)
    return found.reason


@contextmanager
def trainer(group: InsideGroup, *ids: str) -> Iterator[tuple[Work, Version]]:
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")) as publisher,
        Work(socket=group.socket("trainer-0")) as work,
    ):
        assert publisher.version is not None
        work.submit(groups(*ids))
        yield work, publisher.version


def test_a_repeated_result_counts_once(desk: InsideGroup) -> None:
    with trainer(desk, "a") as (work, version), worker(desk, "eu-0") as raw:
        task = leased(raw, version)
        assert verdict(raw, result(task)) == "Counted"
        assert verdict(raw, result(task)) == "AlreadyCounted"
        assert len(list(work.results(timeout=5))) == 1
        assert verdict(raw, result(task)) == "AlreadyCounted"
        with worker(desk, "asia-0") as other:
            assert verdict(other, result(task)) == "AlreadyCounted"
        assert work.pending == 0


def test_a_late_result_does_not_count_and_the_next_lease_does(hasty: InsideGroup) -> None:
    with trainer(hasty, "a") as (work, version), worker(hasty, "eu-0") as raw:
        late = leased(raw, version)
        assert heard(raw, Revoke) is not None  # after two seconds
        assert verdict(raw, result(late)) == "NotLive"
        task = leased(raw, version)
        assert task.head.lease != late.head.lease
        assert verdict(raw, result(task)) == "Counted"
        assert [one.tokens for one in work.results(timeout=5)] == [3]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"digest": "0" * 32}, "WrongVersion"), ({"seq": 5}, "WrongVersion"), ({"lineage": "0" * 32}, "WrongVersion"),
        ({"scrubbed": False}, "NotScrubbed"), ({"lease": "9-9-9"}, "NotLive"),
    ],
)  # fmt: skip
def test_a_result_that_is_not_what_the_lease_names_does_not_count(
    desk: InsideGroup, changed: dict[str, object], reason: str
) -> None:
    with trainer(desk, "a") as (work, version), worker(desk, "eu-0") as raw:
        task = leased(raw, version)
        assert verdict(raw, result(task, **changed)) == reason
        assert work.pending == 1
        assert desk.ask("trainer-0", "/v1/status")["work"]["done"] == 0


def test_nobody_completes_or_gives_back_what_another_holds(desk: InsideGroup) -> None:
    with trainer(desk, "a") as (work, version), worker(desk, "eu-0") as mine, worker(desk, "asia-0") as thief:
        task = leased(mine, version)
        assert verdict(thief, result(task)) == "WrongWorker"
        thief.send(Return(lease=task.head.lease, reason="mine", failed=True))
        assert verdict(thief, result(task)) == "WrongWorker"
        assert verdict(mine, result(task)) == "Counted"
        assert len(list(work.results(timeout=5))) == 1


def test_a_version_that_the_trainer_does_not_know_gets_no_work(desk: InsideGroup) -> None:
    with trainer(desk, "a") as (_, version), worker(desk, "eu-0") as raw:
        take(raw, version, digest="0" * 32)
        take(raw, Version("0" * 32, 0, version.digest))
        with worker(desk, "asia-0") as good:
            assert leased(good, version).head.id == "a"


def test_a_worker_that_comes_back_with_its_work_completes_it(desk: InsideGroup) -> None:
    with trainer(desk, "a") as (_, version):
        with worker(desk, "eu-0") as raw:
            task = leased(raw, version)
        with worker(desk, "eu-0", task.head.lease) as raw:
            assert verdict(raw, result(task)) == "Counted"


def test_a_worker_that_comes_back_with_nothing_gives_its_work_up_at_once(desk: InsideGroup) -> None:
    with trainer(desk, "a") as (_, version):
        with worker(desk, "eu-0") as raw:
            task = leased(raw, version)
        with worker(desk, "eu-0") as raw:
            assert verdict(raw, result(task)) == "NotLive"
            assert leased(raw, version).head.id == "a"


def test_what_a_worker_claims_to_hold_and_does_not_is_revoked(desk: InsideGroup) -> None:
    with trainer(desk, "a"), worker(desk, "eu-0", "1-1-1") as raw:
        found = heard(raw, Revoke)
        assert isinstance(found, Revoke)
        assert found.lease == "1-1-1"


def test_a_relay_leases_no_work(desk: InsideGroup) -> None:
    desk.start("eu-1")
    with pytest.raises(RefusedError, match="only the trainer"):
        connect(desk, "eu-0", to="eu-1")


def test_a_frame_of_the_other_side_ends_the_connection(desk: InsideGroup) -> None:
    with trainer(desk, "a") as (_, version), worker(desk, "eu-0") as raw:
        task = leased(raw, version)
        raw.send(task)
        assert raw.refusal(5).reason == "BadFrame"
        wait_for(lambda: desk.ask("trainer-0", "/v1/refusals").get("BadFrame"), what="the count")
