"""What one pass over a SyncGroup decides. Plain values: `manifests` makes documents of them, `execute` acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sync_runtime.contract.plan import Plan
from sync_runtime.contract.status import Replacement
from syncgroup_operator.planning.observation import Place, PodView, Slot
from syncgroup_operator.planning.state import GroupState

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Seat:
    """A member that should exist, and where."""

    slot: Slot
    place: Place
    create: bool = True
    """False: the place is kept, but no pod is made now (suspended, back-off, an older pod still there)."""
    avoid_nodes: tuple[str, ...] = ()
    term: int | None = None
    """The trainer's: the term that its pod is created for."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A pod that must go."""

    pod: PodView
    reason: str
    message: str
    force: bool = False
    """Without grace: its node is gone or it lost its seat, so nobody would answer a polite request."""


@dataclass(frozen=True, slots=True)
class Note:
    """An event for the user: posted after the status is written."""

    type: EventType
    reason: str
    message: str


class Vigil(NamedTuple):
    """A lease of a member that is alive, and how long it may stay unchanged."""

    cluster: str
    namespace: str
    lease: str
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What one pass decides."""

    state: GroupState
    seats: tuple[Seat, ...] = ()
    removals: tuple[Removal, ...] = ()
    plans: Mapping[Place, Plan] = field(default_factory=dict)
    replacements: tuple[Replacement, ...] = ()
    """Decided in this pass; the status keeps the latest."""
    expired: tuple[str, ...] = ()
    """Uids of pods whose lease is judged expired, for figures: replaced now, later or never."""
    damped: int = 0
    """Members that should be replaced and must wait."""
    notes: tuple[Note, ...] = ()
    wake_after_s: float | None = None
    """When something will be due by itself: a lease to judge, a back-off that ends."""
    wake_besides_s: float | None = None
    """The same without the leases in `vigils`."""
    vigils: tuple[Vigil, ...] | None = None
    """While all of these are renewed, time alone changes nothing; None where a member is not known to be alive."""
