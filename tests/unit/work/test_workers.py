"""Who gets the next group: by measured speed, to whoever is there and fresh enough."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.work.model import WorkVersion
from sync_runtime.work.workers import RETURNED, Workers, shares
from tests.unit.work.ledgers import version


def everything(_: WorkVersion) -> bool:
    return True


def crew(**rates: float | None) -> Workers:
    made = Workers()
    for name, rate in rates.items():
        made.connected(name, 0.0)
        made.took(name, version(1), 100)
        if rate is not None:
            made.brought(name, int(rate * 1000), 1000.0, 0.0)
    return made


def split(workers: Workers, queued: int, most: int = 1000) -> Counter[str]:
    """Hands out all groups at once."""
    held: Counter[str] = Counter()
    for left in range(queued, 0, -1):
        chosen = workers.next_for(left, held, everything, most, 0.0)
        if chosen is None:
            break
        workers.leased(chosen.name, 0.0, had=held[chosen.name])
        held[chosen.name] += 1
    return held


@given(total=st.integers(0, 500), rates=st.dictionaries(st.text(max_size=3), st.floats(1e-3, 1e6), max_size=8))
def test_shares_add_up_and_no_other_split_would_be_done_earlier(total: int, rates: dict[str, float]) -> None:
    found = shares(total, rates)
    assert sum(found.values()) == (total if rates else 0)
    end_s = max((count / rates[name] for name, count in found.items()), default=0.0)
    earlier = sum(int(end_s * rate * (1 - 1e-9)) for rate in rates.values())  # all that is done before
    assert earlier < total or not total


def test_a_batch_is_split_by_speed() -> None:
    assert split(crew(fast=200, slow=100), 30) == {"fast": 20, "slow": 10}


def test_the_last_group_goes_to_the_faster_one() -> None:
    assert split(crew(fast=1000, slow=100), 1) == {"fast": 1}


def test_nobody_holds_more_than_the_plan_allows() -> None:
    assert split(crew(fast=200, slow=100), 30, most=4) == {"fast": 4, "slow": 4}


def test_a_worker_that_nobody_knows_gets_a_modest_share() -> None:
    assert split(crew(old=100, new=None), 30) == {"old": 20, "new": 10}
    assert split(crew(a=None, b=None), 10) == {"a": 5, "b": 5}


def test_the_rate_follows_what_is_measured() -> None:
    workers = crew(w=100)
    for _ in range(20):
        workers.brought("w", 50, 1.0, 1.0)
    rate = workers.all[0].rate
    assert rate is not None
    assert rate == pytest.approx(50, rel=0.01)
    workers.brought("w", 0, 1.0, 1.0)  # a result without tokens says nothing of speed
    assert workers.all[0].rate == rate


def test_a_worker_that_was_lost_comes_back_with_less() -> None:
    workers = crew(w=100, v=100)
    workers.gone("w", lost_at_s=5.0)
    assert workers.lost(4.9) == []
    workers.connected("w", 4.95)
    assert workers.lost(6.0) == []  # it came back in time
    workers.gone("w", lost_at_s=7.0)
    assert workers.lost(7.0) == ["w"]
    workers.connected("w", 8.0)
    assert {one.name: one.rate for one in workers.all} == {"w": 100 * RETURNED, "v": 100}


def test_a_worker_without_a_connection_or_a_version_gets_nothing() -> None:
    workers = crew(gone=100, none=100, stale=100, good=1)
    workers.gone("gone", 10.0)
    workers.took("none", None, 5)
    workers.took("stale", version(0), 5)
    held: Counter[str] = Counter()
    chosen = workers.next_for(5, held, lambda one: one.seq == 1, 10, 0.0)
    assert chosen is not None
    assert chosen.name == "good"


def test_a_worker_that_hangs_does_not_keep_work_from_others() -> None:
    workers = crew(hung=1000, slow=100)
    held = Counter({"hung": 1})
    workers.took("hung", version(1), 0)
    assert workers.next_for(1, held, everything, 8, 0.1) is None  # it will be done with both first
    chosen = workers.next_for(1, held, everything, 8, 6000.0)
    assert chosen is not None
    assert chosen.name == "slow"


def test_what_a_worker_wants_is_used_up() -> None:
    workers = crew(w=None)
    workers.took("w", version(1), 2)
    assert split(workers, 5) == {"w": 2}
