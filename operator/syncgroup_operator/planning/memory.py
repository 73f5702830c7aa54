"""Seats as one pass remembers them, read from the group's state and written back to it. Pure.

Everything in the state may have been written by a clock that was ahead of ours; it is put right here, once.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sync_runtime.contract import patterns
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.damping import back_off_s
from syncgroup_operator.planning.observation import Place, Slot
from syncgroup_operator.planning.state import MAX_AVOIDED_NODES, GroupState, RoleSeats, SlotState

MAX_AVOIDED_CHARACTERS = 200_000
"""Of all seats together: node names are the only part of the state that others choose the length of."""
MAX_NODE_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class SlotMemory:
    """What is remembered of one seat."""

    place: Place
    avoid_nodes: tuple[str, ...] = ()
    attempts: int = 0
    not_before: datetime.datetime | None = None
    replacing_since: datetime.datetime | None = None
    removed_uid: str | None = None

    def is_plain(self, home: Place) -> bool:
        """Whether forgetting it changes nothing."""
        return self == SlotMemory(home)


def read_slots(state: GroupState, now: datetime.datetime) -> dict[Slot, SlotMemory]:
    """Every seat that the state lists."""
    return {Slot(entry.role, entry.index): _read_slot(entry, now) for entry in state.slots}


def write_slots(memories: Mapping[Slot, SlotMemory], homes: Mapping[Slot, Place]) -> list[SlotState]:
    """For the state: seats that exist and are worth a line."""
    kept = {
        slot: memory for slot, memory in sorted(memories.items()) if slot in homes and not memory.is_plain(homes[slot])
    }
    spelled = sum(len(node) for memory in kept.values() for node in memory.avoid_nodes)
    nodes = MAX_AVOIDED_NODES if spelled <= MAX_AVOIDED_CHARACTERS else 0
    return [_write_slot(slot, memory, nodes) for slot, memory in kept.items()]


def read_seen(state: GroupState) -> dict[str, int]:
    """Bits per role: seats whose pod was seen."""
    return {entry.role: int(entry.seen or "0", 16) for entry in state.seen}


def write_seen(seen: Mapping[str, int], sizes: Mapping[str, int]) -> list[RoleSeats]:
    """For the state: roles that exist, bits of seats that exist."""
    kept = {role: seen.get(role, 0) & ((1 << size) - 1) for role, size in sorted(sizes.items())}
    return [RoleSeats(role=role, seen=f"{bits:x}") for role, bits in kept.items() if bits]


def avoided(node: str | None, before: Iterable[str]) -> tuple[str, ...]:
    """The nodes to avoid after one more lost a member, newest first."""
    fits = node is not None and len(node) <= MAX_NODE_NAME_LENGTH and re.fullmatch(patterns.DNS_SUBDOMAIN, node)
    newest = (node,) if fits and node is not None else ()
    return tuple(dict.fromkeys((*newest, *before)))[:MAX_AVOIDED_NODES]


def _read_slot(entry: SlotState, now: datetime.datetime) -> SlotMemory:
    not_before = None if entry.not_before_time is None else clock.read(entry.not_before_time)
    if not_before is not None:
        not_before = min(not_before, now + datetime.timedelta(seconds=back_off_s(entry.attempts)))
    return SlotMemory(
        place=Place(entry.cluster, entry.region),
        avoid_nodes=tuple(entry.avoid_nodes),
        attempts=entry.attempts,
        not_before=not_before,
        replacing_since=clock.past(entry.replacing_since_time, now),
        removed_uid=entry.removed_uid,
    )


def _write_slot(slot: Slot, memory: SlotMemory, nodes: int) -> SlotState:
    return SlotState(
        role=slot.role,
        index=slot.index,
        cluster=memory.place.cluster,
        region=memory.place.region,
        avoid_nodes=list(memory.avoid_nodes[:nodes]),
        attempts=memory.attempts,
        not_before_time=None if memory.not_before is None else clock.written(memory.not_before),
        replacing_since_time=None if memory.replacing_since is None else clock.written(memory.replacing_since),
        removed_uid=memory.removed_uid,
    )
