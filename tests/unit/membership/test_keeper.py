"""The keeper renews, waits, backs off, and never stops anything."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sync_runtime.contract.reports import MemberReport
from sync_runtime.membership import keeper as module
from sync_runtime.membership.documents import LeaseTimes, read_lease
from sync_runtime.membership.errors import MembershipError
from sync_runtime.membership.file import FileLease
from sync_runtime.membership.keeper import LeaseKeeper, next_pause_s
from tests.unit.membership.reports import NAME, report


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_PAUSE_S", 0.01)


class Unreliable(FileLease):
    """A file lease whose folder is away at times."""

    away = False
    closed = False
    hangs = False

    async def renew(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> None:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.away:
            raise MembershipError("the folder is away")
        await super().renew(report, duration_s, now)

    async def close(self) -> None:
        self.closed = True


@contextlib.asynccontextmanager
async def running(keeper: LeaseKeeper) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 what is waited for is a figure, not an event
            await asyncio.sleep(0.005)


def keeper_problem(keeper: LeaseKeeper) -> str | None:
    return keeper.problem


def keeper_of(lease: FileLease, interval_s: int = 1, timeout_s: float = 1.0) -> LeaseKeeper:
    return LeaseKeeper(lease, report, lambda: LeaseTimes(15, interval_s), timeout_s=timeout_s)


def test_the_lease_is_renewed_again_and_again(tmp_path: Path) -> None:
    lease = Unreliable(tmp_path, NAME)

    async def scenario() -> None:
        keeper = keeper_of(lease, interval_s=0)
        assert keeper.age_s() is None
        async with running(keeper):
            await until(lambda: keeper.renewals >= 3)
        age_s = keeper.age_s()
        assert age_s is not None
        assert age_s < 10
        assert keeper.problem is None

    asyncio.run(scenario())
    assert lease.closed
    assert read_lease(lease.path.read_bytes()).duration_s == 15


def test_an_outage_is_survived_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lease = Unreliable(tmp_path, NAME)
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        lease.away = True
        keeper = keeper_of(lease)
        async with running(keeper):
            await until(lambda: keeper.failures >= 3)
            assert keeper_problem(keeper) == "the folder is away"
            assert keeper.renewals == 0
            lease.away = False
            await until(lambda: keeper.renewals >= 1)
        assert keeper.failures == 0
        assert keeper_problem(keeper) is None

    asyncio.run(scenario())
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert len([record for record in caplog.records if "again" in record.message]) == 1


def test_a_report_that_breaks_the_contract_is_a_failed_renewal(tmp_path: Path) -> None:
    children = -1

    async def scenario() -> None:
        nonlocal children
        keeper = LeaseKeeper(FileLease(tmp_path, NAME), lambda: report(children=children), lambda: LeaseTimes(15, 1))
        async with running(keeper):
            await until(lambda: keeper.failures >= 1)
            assert "children" in str(keeper.problem)
            children = 1
            await until(lambda: keeper.renewals >= 1)

    asyncio.run(scenario())


def test_a_server_that_never_answers_is_given_up_each_time(tmp_path: Path) -> None:
    lease = Unreliable(tmp_path, NAME)

    async def scenario() -> None:
        lease.hangs = True
        keeper = keeper_of(lease, timeout_s=0.02)
        async with running(keeper):
            await until(lambda: keeper.failures >= 2)
            assert keeper.problem == "no answer within 0.02 s"

    asyncio.run(scenario())


def test_waking_it_renews_before_the_interval_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        keeper = keeper_of(Unreliable(tmp_path, NAME), interval_s=3600)
        async with running(keeper):
            await until(lambda: keeper.renewals == 1)
            await asyncio.sleep(0.05)
            assert keeper.renewals == 1
            keeper.wake()
            await until(lambda: keeper.renewals == 2)
            keeper.wake()
            keeper.wake()
            await until(lambda: keeper.renewals == 3)
            await asyncio.sleep(0.05)
            assert keeper.renewals == 3

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(0, 10.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (1000, 10.0)]
)
def test_pauses_after_failures_double_up_to_the_interval(
    failures: int, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_PAUSE_S", 1.0)
    assert next_pause_s(10, failures, 0.5) == pytest.approx(pause_s)
    assert next_pause_s(10, failures, 0.0) == pytest.approx(0.9 * pause_s)
    assert next_pause_s(10, failures, 1.0) == pytest.approx(1.1 * pause_s)
