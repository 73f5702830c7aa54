"""Whatever happens in whatever order, rollbacks and restarts included: nothing is lost, nothing counts twice.

The model beside the ledger is a few sets: what was submitted in this timeline, what was consumed in it, and which
leases belong to it. A checkpoint is the ledger's document with copies of these sets.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sync_runtime.work import model
from sync_runtime.work.ledger import Lease, Ledger
from sync_runtime.work.model import Policy
from sync_runtime.work.records import MAGIC, pack, parse
from sync_runtime.work.state import from_json, to_json
from tests.unit.work.ledgers import LINEAGE, OTHER_LINEAGE, Kept, version

WORKERS = ("fast", "slow", "far")
picks = st.integers(0, 1 << 16)


def contents(ledger: Ledger) -> list[model.Change]:
    return list(ledger.snapshot())


class AnyOrder(RuleBasedStateMachine):
    """One trainer, three workers, a clock and a disk."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept(Policy(lease_s=10, max_attempts=3))
        self.now_s = 0.0
        self.head = version(0)
        self.next_id = 0
        self.submitted: set[str] = set()
        self.consumed: list[str] = []
        self.issued: list[Lease] = []
        """Every lease that any timeline ever gave out."""
        self.counted: set[str] = set()
        """Leases whose result this timeline counted."""
        self.dead: set[str] = set()
        """Leases that must never count: ended, or of an abandoned future."""
        self.names: set[str] = set()
        self.checkpoints: list[dict[str, Any]] = []

    @property
    def ledger(self) -> Ledger:
        return self.kept.ledger

    def do(self, changes: Any) -> None:
        found = list(changes)
        self.dead |= {one.lease for one in found if isinstance(one, model.Returned)}
        self.kept.do(found, self.now_s)

    @rule(count=st.integers(1, 4))
    def submit(self, count: int) -> None:
        ids = [f"g{self.next_id + at}" for at in range(count)]
        self.next_id += count
        assert self.kept.submit(*ids) == count
        self.submitted |= set(ids)

    @precondition(lambda self: self.submitted - set(self.consumed))
    @rule(pick=picks)
    def submit_again(self, pick: int) -> None:
        held = sorted(self.submitted - set(self.consumed))
        assert self.kept.submit(held[pick % len(held)]) == 0

    @precondition(lambda self: self.ledger.queued)
    @rule(worker=st.sampled_from(WORKERS))
    def lease(self, worker: str) -> None:
        lease = self.kept.lease(worker, self.head, self.now_s)
        assert lease.id not in self.names, "a name was given twice"
        self.names.add(lease.id)
        self.issued.append(lease)

    @precondition(lambda self: self.issued)
    @rule(pick=picks, good=st.booleans())
    def offer(self, pick: int, good: bool) -> None:
        lease = self.issued[pick % len(self.issued)]
        before = self.ledger.done
        verdict = self.kept.offer(lease, self.head, **({} if good else {"version": version(99)}))
        self.dead |= {one.lease for one in verdict.changes if isinstance(one, model.Returned)}
        if verdict.reason == model.COUNTED:
            assert good
            assert lease.id not in self.dead
            assert lease.id not in self.counted
            assert lease.version.lineage == self.head.lineage
            self.counted.add(lease.id)
            assert self.ledger.done == before + 1
        elif verdict.reason == model.ALREADY_COUNTED:
            assert lease.id in self.counted
            assert self.ledger.done == before

    @rule()
    def consume(self) -> None:
        found = self.kept.consume()
        if found is not None:
            assert found not in self.consumed, "delivered after it was consumed"
            self.consumed.append(found)

    @rule(by_s=st.floats(0, 15))
    def wait(self, by_s: float) -> None:
        self.now_s += by_s
        self.do(self.ledger.expired(self.now_s))

    @rule(worker=st.sampled_from(WORKERS), keeps=st.booleans())
    def lose_worker(self, worker: str, keeps: bool) -> None:
        mine = [one.id for one in self.ledger.leases if one.worker == worker]
        self.do(self.ledger.release_others(worker, mine[:1] if keeps else []))

    @rule()
    def publish(self) -> None:
        self.head = version(self.head.seq + 1, self.head.lineage)

    @rule()
    def change_lineage(self) -> None:
        other = OTHER_LINEAGE if self.head.lineage == LINEAGE else LINEAGE
        self.head = version(self.head.seq, other)
        self.do(self.ledger.foreign(other))

    @rule(order=st.sampled_from(model.ORDERS))
    def reorder(self, order: model.Order) -> None:
        self.do(self.ledger.set_order(order))

    @rule()
    def checkpoint(self) -> None:
        self.checkpoints.append(
            {
                "state": to_json(self.ledger),
                "submitted": set(self.submitted),
                "consumed": list(self.consumed),
                "done": {one.lease for one in contents(self.ledger) if isinstance(one, model.Done)},
            }
        )

    @precondition(lambda self: self.checkpoints)
    @rule(pick=picks)
    def roll_back(self, pick: int) -> None:
        at = pick % len(self.checkpoints)
        self.checkpoints = self.checkpoints[: at + 1]
        there = self.checkpoints[at]
        epoch = self.ledger.epoch
        self.kept = Kept(ledger=from_json(there["state"], self.ledger, self.now_s))
        self.kept.written = contents(self.ledger)
        assert self.ledger.epoch > epoch
        self.submitted, self.consumed = set(there["submitted"]), list(there["consumed"])
        self.counted = there["done"] - {None}
        self.dead = {one.id for one in self.issued} - self.counted

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        """The sidecar dies and reads its journal."""
        before = contents(self.ledger)
        written = before if compacted else self.kept.written
        data = memoryview(MAGIC + b"".join(pack(change) for change in written))
        again = Ledger(self.ledger.term, self.ledger.policy)
        for change, _ in parse(data):
            again.apply(change, self.now_s)
        assert contents(again) == before
        self.kept.ledger, self.kept.written = again, list(written)
        self.kept.do(again.begin())

    @invariant()
    def every_group_is_in_one_place(self) -> None:
        snapshot = contents(self.ledger)
        held = [one.id for one in snapshot if isinstance(one, model.Submitted)]
        assert len(held) == len(set(held))
        assert len(self.consumed) == len(set(self.consumed)), "consumed twice"
        assert set(held) | set(self.consumed) == self.submitted, "lost or invented"
        assert not set(held) & set(self.consumed)
        leased, done = len(self.ledger.leases), self.ledger.done
        assert self.ledger.queued + leased + done == len(held)

    @invariant()
    def work_is_never_stuck(self) -> None:
        assert (self.ledger.next_group() is not None) == (self.ledger.queued > 0)
        if self.ledger.pending and not self.ledger.queued and not self.ledger.leases:
            assert self.ledger.deliverable() is not None


AnyOrder.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_in_any_order = AnyOrder.TestCase
