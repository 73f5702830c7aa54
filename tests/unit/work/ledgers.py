"""A ledger that writes down every change before it makes it true, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from sync_runtime.work.ledger import Lease, Ledger
from sync_runtime.work.model import Change, Offer, Policy, Prompts, Verdict, WorkVersion

LINEAGE, OTHER_LINEAGE = "a" * 32, "b" * 32


def version(seq: int, lineage: str = LINEAGE) -> WorkVersion:
    """A version of the test's trainer."""
    return WorkVersion(lineage, seq, f"{seq:032x}", seq * 10)


class Kept:
    """A ledger and all changes that made it."""

    def __init__(self, policy: Policy | None = None, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger(3, policy)
        self.written: list[Change] = []
        if ledger is None:
            self.do(self.ledger.begin())

    def do(self, changes: Iterable[Change], now_s: float = 0.0) -> int:
        """Writes changes down and makes them true; how many there were."""
        found = list(changes)
        for change in found:
            self.written.append(change)
            self.ledger.apply(change, now_s)
        return len(found)

    def submit(self, *ids: str) -> int:
        """Groups with a payload of their own."""
        return self.do(self.ledger.submit([Prompts(one, 4, f"prompt {one}".encode()) for one in ids]))

    def lease(self, worker: str, at: WorkVersion, now_s: float = 0.0) -> Lease:
        """The next group."""
        group = self.ledger.next_group()
        assert group is not None
        self.do([self.ledger.lease(group, worker, at)], now_s)
        return self.ledger.leases[-1]

    def offer(self, lease: Lease, head: WorkVersion | None = None, /, **changed: object) -> Verdict:
        """A result of a lease, good but for what is given."""
        fields: dict[str, object] = {
            "lease": lease.id, "worker": lease.worker, "version": lease.version, "scrubbed": True, "tokens": 7,
            "payload": f"result of {lease.number} by {lease.id}".encode(),
        }  # fmt: skip
        verdict = self.ledger.judge(Offer(**{**fields, **changed}), head or lease.version)  # type: ignore[arg-type]
        self.do(verdict.changes)
        return verdict

    def consume(self) -> str | None:
        """The next result; the group's id."""
        done = self.ledger.deliverable()
        if done is None:
            return None
        group = self.ledger.group(done.number).id
        self.do(self.ledger.consume(done.number))
        return group

    def replayed(self) -> Ledger:
        """The ledger that the written changes make."""
        made = Ledger(self.ledger.term, self.ledger.policy)
        for change in self.written:
            made.apply(change, 0.0)
        return made
