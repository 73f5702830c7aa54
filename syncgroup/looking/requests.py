"""Requests as a person makes them: which member is meant, what is written into the spec, how far it is. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sync_runtime.contract.names import TRAINER_ROLE, member_name
from sync_runtime.contract.requests import MAX_REQUESTS, Request, RequestStatus
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup.errors import CommandError

_OPEN = ("Waiting", "Running")


class Asked(NamedTuple):
    """What is to be written."""

    requests: Sequence[Mapping[str, Any]]
    id: str
    """Of the request that says what is wanted: the new one, or one that says so already."""
    again: bool = False
    """Somebody asked for the same before, and it is not over."""


def asked(group: SyncGroup, wanted: Request, *, own_id: bool = False) -> Asked:
    """The spec's requests with this one among them; what is over makes room.

    Nothing is asked for twice while it is under way, unless the person gave it an id of its own.
    """
    states = {one.id: one.state for one in (group.status.requests if group.status is not None else ())}
    kept = [one for one in group.spec.requests if states.get(one.id, "Waiting") in _OPEN]
    same = next((one for one in group.spec.requests if one.id == wanted.id), None)
    if same is not None and (same.type, same.member) != (wanted.type, wanted.member):
        raise CommandError(f"the id {wanted.id} is taken by another request: give another --id")
    if same is None and not own_id:
        same = next((one for one in kept if (one.type, one.member) == (wanted.type, wanted.member)), None)
    if same is not None:
        return Asked([one.to_document() for one in group.spec.requests], same.id, again=True)
    if len(kept) >= MAX_REQUESTS:
        raise CommandError(f"{MAX_REQUESTS} requests wait already: see `kubectl syncgroup why {group.key.name}`")
    return Asked([one.to_document() for one in (*kept, wanted)], wanted.id)


def progress(group: SyncGroup, request_id: str) -> RequestStatus | None:
    """How far a request is; None: the operator has not seen it yet."""
    found = group.status.requests if group.status is not None else ()
    return next((one for one in found if one.id == request_id), None)


def members_of(group: SyncGroup) -> dict[str, tuple[str, int]]:
    """Every member's name, with its role and index."""
    roles = [(TRAINER_ROLE, 1), *((one.name, one.replicas) for one in group.spec.rollouts)]
    return {member_name(group.key, role, index): (role, index) for role, size in roles for index in range(size)}


def find_member(groups: Iterable[SyncGroup], wanted: str) -> tuple[SyncGroup, str]:
    """The group that a member belongs to, and its whole name. `ROLE-INDEX` will do where one group alone has it."""
    known: dict[str, SyncGroup] = {}
    short: dict[str, list[str]] = {}
    for group in groups:
        for name, (role, index) in members_of(group).items():
            known[name] = group
            short.setdefault(f"{role}-{index}", []).append(name)
    if wanted in known:
        return known[wanted], wanted
    candidates = short.get(wanted, [])
    if len(candidates) == 1:
        return known[candidates[0]], candidates[0]
    if candidates:
        raise CommandError(f"{wanted} is in several groups: {', '.join(sorted(candidates)[:5])}; give one of these.")
    close = difflib.get_close_matches(wanted, [*known, *short], n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(close)}?" if close else ": see `kubectl syncgroup top NAME`."
    raise CommandError(f"no SyncGroup here has a member {wanted}{hint}")
