"""The ledger of work leases: which groups are queued, leased and done, and which result counts. Pure.

Decisions (`submit`, `judge`, `lease`, `give_back` …) return changes and alter nothing; `apply` alone does. So whoever
keeps the ledger writes a change down before it is true. Time is an argument; it decides expiry and nothing else. Knows
neither workers' speeds nor files.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sync_runtime.errors import WorkError, WorkFullError
from sync_runtime.work import model
from sync_runtime.work.model import (
    Begun,
    Change,
    Consumed,
    Done,
    Leased,
    Offer,
    Order,
    Ordered,
    Policy,
    Prompts,
    Returned,
    Submitted,
    Verdict,
    WorkVersion,
)

MAX_ENDED = 4096
"""Ended leases of which it is remembered how they ended."""
_ID = re.compile(f"[!-~]{{1,{model.MAX_ID_CHARACTERS}}}")
_ENDS = {
    model.EXPIRED: "the work lease expired",
    model.WORKER_LOST: "its worker was away too long",
    model.RELEASED: "its worker gave it back",
    model.NEW_LINEAGE: "the trainer went on from another state",
    model.ROLLED_BACK: "the trainer went back to an older checkpoint",
}


@dataclass(slots=True)
class Group:
    """A group that is not consumed."""

    number: int
    id: str
    samples: int
    payload: bytes
    attempts: int = 0
    lease: str | None = None
    done: Done | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """A group in a worker's hands."""

    id: str
    number: int
    worker: str
    version: WorkVersion
    began_s: float


class Ledger:
    """All groups that are not consumed."""

    def __init__(self, term: int, policy: Policy | None = None) -> None:
        self.term = term
        self.policy = policy or Policy()
        self.epoch = 0
        self.order: Order = "throughput"
        self.prompt_bytes = self.result_bytes = 0
        self._groups: dict[int, Group] = {}
        """By number, ascending."""
        self._numbers: dict[str, int] = {}
        self._queue: list[int] = []
        """A heap of numbers; those of groups that are not queued any more are skipped."""
        self._queued = 0
        self._leases: dict[str, Lease] = {}
        self._done: dict[int, Done] = {}
        """In the order in which they were done."""
        self._ended: dict[str, str] = {}
        self._next_number = 0
        self._next_lease = 0

    # --- what others want to know ------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Groups that wait for a worker."""
        return self._queued

    @property
    def pending(self) -> int:
        """Groups that are not consumed."""
        return len(self._groups)

    @property
    def done(self) -> int:
        """Results that are not consumed."""
        return len(self._done)

    @property
    def next_number(self) -> int:
        """What the next group is called here."""
        return self._next_number

    @property
    def leases(self) -> Sequence[Lease]:
        """The live ones, oldest first."""
        return tuple(self._leases.values())

    def held(self) -> dict[str, int]:
        """How many leases each worker has."""
        found: dict[str, int] = {}
        for lease in self._leases.values():
            found[lease.worker] = found.get(lease.worker, 0) + 1
        return found

    def find(self, lease: str) -> Lease | None:
        """A live lease by its name."""
        return self._leases.get(lease)

    def group(self, number: int) -> Group:
        """A group that is not consumed."""
        return self._groups[number]

    def deliverable(self) -> Done | None:
        """The result that the trainer gets next; in fixed order that of the oldest group, once it is there."""
        number = next(iter(self._groups if self.order == "fixed" else self._done), None)
        return None if number is None else self._done.get(number)

    # --- the trainer's side ------------------------------------------------------------------------------------------

    def begin(self) -> list[Change]:
        """A new epoch: leases from now on have names that none had before."""
        return [Begun(self.epoch + 1, self._next_number, self.order)]

    def set_order(self, order: Order) -> list[Change]:
        """What the trainer asks for."""
        return [] if order == self.order else [Ordered(order)]

    def submit(self, groups: Iterable[Prompts]) -> list[Change]:
        """Groups whose id is not held yet, queued in this order; raises WorkError and takes none, or all."""
        found: dict[str, Change] = {}
        size_bytes = 0
        for one in groups:
            self._check(one)
            if one.id in self._numbers or one.id in found:
                continue
            size_bytes += len(one.payload)
            found[one.id] = Submitted(self._next_number + len(found), one.id, one.samples, 0, one.payload)
        if len(self._groups) + len(found) > model.MAX_GROUPS:
            raise WorkFullError(f"at most {model.MAX_GROUPS} groups may be open: consume results first")
        if found and self.prompt_bytes + size_bytes > model.MAX_PROMPT_BYTES:
            raise WorkFullError(
                f"open prompts may have {model.MAX_PROMPT_BYTES} bytes together: consume results first, or send less"
            )
        return list(found.values())

    def consume(self, number: int) -> list[Change]:
        """The trainer has made use of a result; one that is gone already changes nothing."""
        return [Consumed(number)] if number in self._done else []

    # --- the workers' side -------------------------------------------------------------------------------------------

    def next_group(self) -> Group | None:
        """The group that is leased next."""
        while self._queue:
            group = self._groups.get(self._queue[0])
            if group is not None and group.lease is None and group.done is None:
                return group
            heapq.heappop(self._queue)
        return None

    def fits(self, version: WorkVersion, head: WorkVersion) -> bool:
        """Whether work may be done under a version."""
        most = 0 if self.order == "fixed" else self.policy.max_staleness
        return version.lineage == head.lineage and 0 <= head.seq - version.seq <= most

    def lease(self, group: Group, worker: str, version: WorkVersion) -> Leased:
        """Hands the next group out."""
        return Leased(f"{self.term}-{self.epoch}-{self._next_lease}", group.number, worker, version)

    def judge(self, offer: Offer, head: WorkVersion | None) -> Verdict:
        """Whether a result counts (PROTOCOL.md, section 11.1)."""
        lease = self._leases.get(offer.lease)
        if lease is None:
            return self._not_live(offer.lease)
        if lease.worker != offer.worker:
            return Verdict(model.WRONG_WORKER, f"the work lease is held by {lease.worker}")
        if not lease.version.is_same(offer.version):
            message = f"the work lease is for version {lease.version.seq} of {lease.version.lineage}"
            return Verdict(model.WRONG_VERSION, message, changes=self.give_back(lease, model.WRONG_VERSION))
        if head is None:
            return Verdict(model.NOT_READY, "the trainer has not opened yet", retry=True)
        if lease.version.lineage != head.lineage:
            back = self.give_back(lease, model.NEW_LINEAGE, counts=False)
            return Verdict(model.NEW_LINEAGE, _ENDS[model.NEW_LINEAGE], changes=back)
        if not offer.scrubbed:
            back = self.give_back(lease, model.NOT_SCRUBBED, counts=False)
            return Verdict(model.NOT_SCRUBBED, "no scrub of that version has passed in the member", changes=back)
        if len(offer.payload) > self.policy.max_payload_bytes:
            message = f"a result has at most {self.policy.max_payload_bytes} bytes, this one has {len(offer.payload)}"
            return Verdict(model.NO_ROOM, message, changes=self.give_back(lease, message))
        if not self._has_room(lease.number, len(offer.payload)):
            return Verdict(model.NO_ROOM, "the trainer has to consume results first", retry=True)
        done = Done(lease.number, lease.id, lease.worker, lease.version, offer.tokens, None, offer.payload)
        return Verdict(model.COUNTED, "", changes=(done,))

    def give_back(self, lease: Lease, reason: str, *, counts: bool = True) -> tuple[Change, ...]:
        """Ends a lease without a result; the last attempt of a group ends that, too."""
        back = Returned(lease.id, reason, counts)
        group = self._groups[lease.number]
        if not counts or group.attempts + 1 < self.policy.max_attempts:
            return (back,)
        failed = f"{reason}, as the last of {self.policy.max_attempts} attempts"[: model.MAX_REASON_CHARACTERS]
        return (back, Done(group.number, None, lease.worker, None, 0, failed, b""))

    def release(self, lease: str, worker: str, reason: str, *, counts: bool) -> list[Change]:
        """A worker gives a lease back; one that it does not hold changes nothing."""
        found = self._leases.get(lease)
        return [] if found is None or found.worker != worker else list(self.give_back(found, reason, counts=counts))

    def release_others(self, worker: str, keeps: Iterable[str]) -> list[Change]:
        """A worker says what it has: its other leases end. It was restarted, or never heard of them."""
        kept = set(keeps)
        mine = [one for one in self._leases.values() if one.worker == worker and one.id not in kept]
        return [change for one in mine for change in self.give_back(one, model.WORKER_LOST)]

    def expired(self, now_s: float) -> list[Change]:
        """Leases that are too old."""
        end_s = now_s - self.policy.lease_s
        old = [one for one in self._leases.values() if one.began_s <= end_s]
        return [change for one in old for change in self.give_back(one, model.EXPIRED)]

    def foreign(self, lineage: str) -> list[Change]:
        """Leases of other lineages than the newest: the trainer went on without them."""
        dead = [one for one in self._leases.values() if one.version.lineage != lineage]
        return [change for one in dead for change in self.give_back(one, model.NEW_LINEAGE, counts=False)]

    # --- changes -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[Change]:
        """Changes that make this ledger out of an empty one."""
        yield Begun(self.epoch, self._next_number, self.order)
        for group in self._groups.values():
            yield Submitted(group.number, group.id, group.samples, group.attempts, group.payload)
        for lease in self._leases.values():
            yield Leased(lease.id, lease.number, lease.worker, lease.version)
        yield from self._done.values()

    def successor(self) -> Ledger:
        """An empty ledger in place of this one: what was leased or counted here is of an abandoned future there."""
        made = Ledger(self.term, self.policy)
        made.epoch = self.epoch
        made._ended = dict.fromkeys((*self._ended, *self._leases), model.ROLLED_BACK)
        return made

    def apply(self, change: Change, now_s: float) -> None:
        """Makes a change true; raises WorkError where it cannot follow what was before."""
        match change:
            case Begun(epoch=epoch, next_number=next_number, order=order):
                if epoch < self.epoch:
                    raise WorkError(f"epoch {epoch} after epoch {self.epoch}: the ledger's records are out of order")
                self.epoch, self.order, self._next_lease = epoch, order, 0
                self._next_number = max(self._next_number, next_number)
            case Ordered(order=order):
                self.order = order
            case Submitted():
                self._add(change)
            case Leased():
                self._lend(change, now_s)
            case Returned():
                self._take_back(change)
            case Done():
                self._finish(change)
            case Consumed(number=number):
                self._forget(number)

    def _add(self, change: Submitted) -> None:
        if change.number <= next(reversed(self._groups), -1) or change.id in self._numbers:
            raise WorkError(f"group {change.id} is there already, or its number {change.number} was given before")
        group = Group(change.number, change.id, change.samples, change.payload, change.attempts)
        self._groups[group.number] = group
        self._numbers[group.id] = group.number
        self._next_number = max(self._next_number, group.number + 1)
        self.prompt_bytes += len(group.payload)
        self._queued += 1
        heapq.heappush(self._queue, group.number)

    def _lend(self, change: Leased, now_s: float) -> None:
        group = self._known(change.number)
        if group.lease is not None or group.done is not None:
            raise WorkError(f"group {group.id} is not queued")
        group.lease = change.lease
        self._leases[change.lease] = Lease(change.lease, group.number, change.worker, change.version, now_s)
        self._queued -= 1
        self._next_lease += 1

    def _take_back(self, change: Returned) -> None:
        group = self._end_lease(change.lease, change.reason)
        group.attempts += change.counts
        self._queued += 1
        heapq.heappush(self._queue, group.number)

    def _finish(self, change: Done) -> None:
        group = self._known(change.number)
        if group.done is not None:
            raise WorkError(f"group {group.id} is done already")
        if group.lease is None:
            self._queued -= 1  # given up, or read back from a snapshot
            self._end(change.lease)
        elif group.lease != change.lease:
            raise WorkError(f"group {group.id} is leased as {group.lease}")
        else:
            self._end_lease(group.lease, model.COUNTED)
        group.done = self._done[group.number] = change
        self.result_bytes += len(change.payload)

    def _forget(self, number: int) -> None:
        group = self._known(number)
        if group.done is None:
            raise WorkError(f"group {group.id} has no result that could be consumed")
        del self._groups[number], self._numbers[group.id], self._done[number]
        self.prompt_bytes -= len(group.payload)
        self.result_bytes -= len(group.done.payload)

    def _known(self, number: int) -> Group:
        if number not in self._groups:
            raise WorkError(f"there is no group with the number {number}")
        return self._groups[number]

    def _end_lease(self, lease: str, reason: str) -> Group:
        found = self._leases.pop(lease, None)
        if found is None:
            raise WorkError(f"there is no work lease {lease}")
        self._end(lease, reason)
        group = self._groups[found.number]
        group.lease = None
        return group

    def _end(self, lease: str | None, reason: str = model.COUNTED) -> None:
        if lease is not None:
            self._ended[lease] = reason
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _not_live(self, lease: str) -> Verdict:
        reason = self._ended.get(lease)
        if reason == model.COUNTED:
            return Verdict(model.ALREADY_COUNTED, "this result was counted before")
        if reason is None:
            return Verdict(model.NOT_LIVE, "no such work lease is live: it ended long ago, or was of another trainer")
        return Verdict(model.NOT_LIVE, f"{reason}: {_ENDS.get(reason, 'the work lease ended')}")

    def _has_room(self, number: int, size_bytes: int) -> bool:
        if self.result_bytes + size_bytes <= model.MAX_RESULT_BYTES:
            return True
        waited_for = self.order == "throughput" or number == next(iter(self._groups))
        return self.deliverable() is None and waited_for

    def _check(self, one: Prompts) -> None:
        if not _ID.fullmatch(one.id):
            raise WorkError(
                f"a group's id has 1 to {model.MAX_ID_CHARACTERS} printable ASCII characters, not {one.id!r:.60}"
            )
        if not 0 < one.samples <= model.MAX_SAMPLES:
            raise WorkError(f"group {one.id} asks for {one.samples} samples; 1 to {model.MAX_SAMPLES} are possible")
        if len(one.payload) > self.policy.max_payload_bytes:
            raise WorkError(
                f"group {one.id} has {len(one.payload)} bytes; `work.maxPayloadBytes` allows "
                f"{self.policy.max_payload_bytes}"
            )
