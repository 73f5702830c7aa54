"""One pass over the seats of a group: what is seen and remembered of each, and what was decided so far.

Pure, but not frozen: `Work` is the notebook of one pass and never leaves it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sync_runtime.contract import names
from sync_runtime.contract.status import Replacement
from syncgroup_operator import reasons
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.damping import MAX_ATTEMPTS, Budget, under_way
from syncgroup_operator.planning.decision import EventType, Note, Removal, Seat
from syncgroup_operator.planning.leases import UNSEEN, Life
from syncgroup_operator.planning.memory import SlotMemory, avoided
from syncgroup_operator.planning.observation import ClusterView, Observation, Place, PodView, Slot

WAKE_SLACK_S = 0.05
"""A verdict is due only after its moment."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """One seat: where it may be, where it is, and the pods that claim it."""

    slot: Slot
    options: tuple[Place, ...]
    place: Place
    pod: PodView | None
    """The pod in its place."""
    namesake: PodView | None
    """A pod of the same name in the same cluster but for another region: it must be gone first."""

    @property
    def home(self) -> Place:
        """Where it belongs."""
        return self.options[0]


@dataclass(slots=True)
class Work:
    """The notebook of one pass."""

    observation: Observation
    lives: Mapping[str, Life]
    memories: dict[Slot, SlotMemory]
    seen: dict[str, int]
    budget: Budget
    asked: Mapping[Slot, str] = field(default_factory=dict)
    """Seats whose member somebody wants replaced, with the request's id."""
    polite: frozenset[str] = frozenset()
    """Uids of pods that went because somebody asked for it: they end in their own time."""
    seats: list[Seat] = field(default_factory=list)
    removals: dict[str, Removal] = field(default_factory=dict)
    """By the pod's uid."""
    replacements: list[Replacement] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    wakes_s: list[float] = field(default_factory=list)
    """Seconds from now."""
    silences_s: list[float] = field(default_factory=list)
    """Seconds from now until a lease that is not renewed meanwhile must be judged."""
    waiting: dict[Slot, str] = field(default_factory=dict)
    """Seats that should be replaced and must wait, with the reason of their loss."""

    @property
    def now(self) -> datetime.datetime:
        """Wall time."""
        return self.observation.now

    def life(self, pod: PodView) -> Life:
        """What is known of its life."""
        return self.lives.get(pod.uid, UNSEEN)

    def cluster(self, place: Place) -> ClusterView | None:
        """The cluster, if it can be acted upon."""
        cluster = self.observation.clusters.get(place.cluster)
        return cluster if cluster is not None and cluster.reachable else None

    def was_seen(self, slot: Slot) -> bool:
        """Whether a pod of this seat was there."""
        return bool(self.seen.get(slot.role, 0) >> slot.index & 1)

    def note_seen(self, slot: Slot, *, seen: bool) -> None:
        """Remember it, or that its absence is our own doing."""
        bit = 1 << slot.index
        bits = self.seen.get(slot.role, 0)
        self.seen[slot.role] = bits | bit if seen else bits & ~bit

    def member(self, slot: Slot) -> str:
        """The member's name."""
        return names.member_name(self.observation.key, slot.role, slot.index)

    def remove(self, pod: PodView, reason: str, message: str, *, force: bool = False) -> None:
        """The pod goes. A polite request is made once; who was asked already is only asked harder."""
        if not pod.deleting or force:
            self.removals[pod.uid] = Removal(pod, reason, message, force)

    def wake_at(self, moment: datetime.datetime) -> None:
        """Something is due then, by wall time."""
        self.wakes_s.append(max((moment - self.now).total_seconds(), 0.0) + WAKE_SLACK_S)

    def wake_at_s(self, due_s: float) -> None:
        """Something is due then, by monotonic time."""
        self.wakes_s.append(max(due_s - self.observation.now_s, 0.0) + WAKE_SLACK_S)

    def watch_until_s(self, due_s: float) -> None:
        """A lease must be judged then, by monotonic time, unless it is renewed."""
        self.silences_s.append(max(due_s - self.observation.now_s, 0.0) + WAKE_SLACK_S)

    def replaced(self, sitting: Sitting, target: Place, reason: str, message: str, *, backs_off_s: float) -> None:
        """The seat's member is given up: remember, remove, tell."""
        slot, memory, pod = sitting.slot, self.memories.get(sitting.slot, SlotMemory(sitting.home)), sitting.pod
        since = memory.replacing_since
        near = target.cluster == sitting.place.cluster
        self.memories[slot] = replace(
            memory,
            place=target,
            avoid_nodes=avoided(pod.node if pod else None, memory.avoid_nodes) if near else (),
            attempts=min(memory.attempts + 1, MAX_ATTEMPTS),
            not_before=self.now + datetime.timedelta(seconds=backs_off_s),
            replacing_since=since if under_way(since, self.now) else self.now,
            removed_uid=pod.uid if pod else None,
        )
        self.note_seen(slot, seen=False)
        if pod is not None and self.cluster(sitting.place) is not None:
            self.remove(pod, reason, message, force=reason != reasons.REQUESTED)
        self._tell(sitting, target, reason, message)

    def _tell(self, sitting: Sitting, target: Place, reason: str, message: str) -> None:
        pod, member = sitting.pod, self.member(sitting.slot)
        node = next(iter(avoided(pod.node if pod else None, ())), None)
        self.replacements.append(
            Replacement(
                member=member,
                reason=reason,
                message=message,
                from_cluster=sitting.place.cluster,
                from_region=sitting.place.region,
                from_node=node,
                to_cluster=target.cluster,
                to_region=target.region,
                replaced_time=clock.written(self.now),
            )
        )
        where = f"again in {spelled(target)}" if target == sitting.place else f"in {spelled(target)} from now on"
        kind: EventType = "Normal" if reason == reasons.REQUESTED else "Warning"
        self.notes.append(Note(kind, reason, f"{member} in {spelled(sitting.place)}: {message}; {where}"))


def spelled(place: Place) -> str:
    """A place in a sentence."""
    return f"{place.cluster}/{place.region}"


def pods_by_slot(observation: Observation) -> dict[Slot, list[PodView]]:
    """Every pod, by the seat that it claims; the order of the views does not matter."""
    found: dict[Slot, list[PodView]] = {}
    for pod in sorted(observation.pods(), key=lambda pod: (pod.place, pod.uid)):
        found.setdefault(pod.slot, []).append(pod)
    return found


def sit(slot: Slot, options: tuple[Place, ...], place: Place, pods: Iterable[PodView]) -> Sitting:
    """The seat with the pods that claim it."""
    here = [pod for pod in pods if pod.place.cluster == place.cluster]
    pod = next((one for one in here if one.place == place), None)
    return Sitting(slot, options, place, pod, next((one for one in here if one.place != place), None))
