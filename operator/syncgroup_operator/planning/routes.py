"""Who dials whom: relays per cluster and region, and the ordered parents of every member. Pure.

The members of a place stand in one order: its *heads* (relays, or a relay and its standby), then the others by seat.
The first `roots` of them dial the trainer, everyone else the head that its number falls to. All parents of a member,
standbys too, stand before it in that order, so that no failure of anybody can close a circle.

Where the trainer has no room for all places, a place may have *guests*: the first members of other places, which follow
its own members in that order and dial its heads (`nesting` says which).

A head that lives stays. When the first one is lost, the second takes its place: the others have failed over to it by
then. Which member is lost changes nobody's parents unless it was a head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sync_runtime.contract.plan import MAX_FAN_OUT, MAX_PARENTS
from syncgroup_operator.planning.leases import Life
from syncgroup_operator.planning.observation import PodView, Slot
from syncgroup_operator.planning.state import MAX_HEADS

SERVING, LIVE, STARTING, ABSENT, LOST = range(5)
"""How good a head somebody makes; LOST makes none."""
HEAD_START_S = 60.0
"""How long a head may take to start before somebody who lives takes over."""
_SLOWEST = 2**53


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member of a place, as far as routes care."""

    name: str
    slot: Slot
    rank: int
    lag: int = 0
    """Versions behind the newest."""
    sync_millis: int = _SLOWEST
    young: bool = False
    """Starting, and not for long."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The tree of one place."""

    heads: tuple[str, ...]
    """For the next pass."""
    relays: tuple[str, ...]
    """Heads that have children; the first one receives for the place."""
    parents: Mapping[str, tuple[str, ...]]
    """Of every member, in its order; the trainer is named by `trainer`."""
    guests: tuple[tuple[str, ...], ...] = ()
    """Of every guest, the heads that it dials; none where too few members live to serve it."""


def candidate(
    name: str, slot: Slot, pod: PodView | None, life: Life, *, now_s: float, newest_seq: int | None
) -> Candidate:
    """How good a head this member makes."""
    report = life.report
    if pod is None:
        return Candidate(name, slot, ABSENT)
    if life.lost or pod.phase in ("Failed", "Succeeded") or (report is not None and report.state == "Poisoned"):
        return Candidate(name, slot, LOST)
    if pod.deleting:
        return Candidate(name, slot, ABSENT)
    seq = report.version.seq if report is not None and report.version is not None else None
    lag = max(newest_seq - seq, 0) if newest_seq is not None and seq is not None else _SLOWEST
    sync_millis = report.sync_millis if report is not None and report.sync_millis is not None else _SLOWEST
    if not life.taken:
        return Candidate(name, slot, STARTING, lag, sync_millis, young=now_s - pod.seen_s < HEAD_START_S)
    serves = report is not None and report.state == "Serving" and pod.ready
    return Candidate(name, slot, SERVING if serves else LIVE, lag, sync_millis)


def route(
    members: Sequence[Candidate],
    before: Sequence[str],
    *,
    trainer: str | None,
    roots: int,
    local: bool = False,
    held: bool = False,
    guests: int = 0,
    above: Sequence[str] = (),
) -> Routes:
    """The tree of one place. `before`: its heads until now; `roots`: how many may dial the trainer; `local`: it is
    the trainer's own, which needs no relay while all of it may.

    `held`: nothing can be seen of the place, so whoever was a head is one. `guests`: how many of other places it
    serves; `above`: whom its own roots dial as guests, and the trainer only after them.
    """
    ordered = sorted(members, key=lambda member: member.slot)
    relays = min(_relays_needed(len(ordered), roots, guests, local=local), MAX_HEADS - 1)
    wanted = 2 if relays == 1 else relays
    heads = _heads(ordered, before, wanted, held=held)
    relays = min(relays, len(heads))
    line = [*heads, *(member.name for member in ordered if member.name not in set(heads))]
    parents: dict[str, tuple[str, ...]] = {}
    direct = 0
    for number, name in enumerate(line):
        found = _parents(number, roots, relays, len(heads))
        named = list(above) if number < roots else [line[index] for index in found]
        dials_trainer = not named
        if trainer is not None and (not dials_trainer or direct < MAX_FAN_OUT):
            direct += dials_trainer
            named.append(trainer)
        parents[name] = tuple(named[:MAX_PARENTS])
    numbers = range(max(len(line), roots), max(len(line), roots) + guests)
    served = (_parents(number, roots, relays, len(heads)) for number in numbers)
    return Routes(
        tuple(heads), tuple(heads[:relays]), parents, tuple(tuple(line[index] for index in found) for found in served)
    )


def trainer_roots(local_members: int, remote_places: int) -> int:
    """How many of its own region may dial the trainer, beside one relay of every other place that does."""
    return max(1, min(local_members, MAX_FAN_OUT - remote_places))


def _relays_needed(members: int, roots: int, guests: int, *, local: bool) -> int:
    served = max(members - roots, 0) + guests
    if not served:
        return 0 if local else min(members, 1)
    return -(-served // MAX_FAN_OUT)


def _parents(number: int, roots: int, relays: int, heads: int) -> tuple[int, ...]:
    """The heads that a member dials, in order. All of them stand before it in the line."""
    if number < roots or relays == 0:
        return ()
    first = (number - roots) // MAX_FAN_OUT
    if first >= relays:
        return ()  # too few members live to serve them all
    if relays == 1:
        return (first, 1) if heads > 1 and number > 1 else (first,)
    if number >= relays:  # a leaf: spread over the other relays, so that one loss does not double one load
        return first, (first + 1 + number % (relays - 1)) % relays
    standby = first + 1 if first + 1 < number else first - 1
    return (first, standby) if standby >= 0 else (first,)


def _heads(ordered: Sequence[Candidate], before: Iterable[str], wanted: int, *, held: bool) -> list[str]:
    known = {member.name: member for member in ordered}
    someone_lives = any(member.rank <= LIVE for member in ordered)
    places: list[str | None] = [
        name if name in known and (held or _stays(known[name], someone_lives=someone_lives)) else None
        for name in before
    ][:wanted]
    places += [None] * (wanted - len(places))
    taken = {name for name in places if name is not None}
    fit = [member for member in ordered if member.name not in taken and (held or member.rank < LOST)]
    fresh = iter(sorted(fit, key=lambda member: (member.rank, member.lag, member.sync_millis, member.slot)))
    if len(places) > 1 and places[0] is None and places[1] is not None:
        places[0], places[1] = places[1], None
    filled = (name if name is not None else next((member.name for member in fresh), None) for name in places)
    return [name for name in filled if name is not None]


def _stays(member: Candidate, *, someone_lives: bool) -> bool:
    if member.rank <= LIVE:
        return True
    if member.rank == LOST:
        return False
    return member.young or not someone_lives
