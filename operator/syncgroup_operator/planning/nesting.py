"""The trees of all places of a group together: which place dials the trainer, and which is another one's guest. Pure.

The trainer serves as many as any other parent. One relay of every place dials it while there is room; where a group has
more places, some of a cluster receive from another place of the same cluster, level by level. Only there: a member is
dialled by a name that its own cluster alone knows. So every cluster keeps one place that dials the trainer, and a group
over more clusters than the trainer may serve gives it more children than that; nobody else could serve them.

Places that have a member to serve others come before those that have none. A place is the guest of an earlier one, so
that no failure of anybody can close a circle.

A place that an object store stands before is on its own: its relay follows the store, the others dial the relay, and
nobody there dials or is dialled from elsewhere, not even by the trainer's neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sync_runtime.contract.plan import MAX_FAN_OUT
from syncgroup_operator.planning.observation import Place
from syncgroup_operator.planning.routes import LOST, Candidate, Routes, route, trainer_roots

GUESTS_PER_PLACE = MAX_FAN_OUT
"""So many a place serves even if it has one member."""


@dataclass(frozen=True, slots=True)
class Trees:
    """The routes of every place."""

    routes: Mapping[Place, Routes]
    hosts: Mapping[Place, Place]
    """Whose guest a place is; those that dial the trainer are nobody's."""


def route_all(
    members: Mapping[Place, Sequence[Candidate]],
    heads: Mapping[Place, Sequence[str]],
    *,
    home: Place,
    trainer: str,
    exposed: bool,
    held: Collection[Place] = (),
    stored: Collection[Place] = (),
) -> Trees:
    """The trees. `heads`: those until now; `home`: the trainer's own place; `exposed`: whether other clusters know its
    address; `held`: places of which nothing can be seen; `stored`: places that follow an object store."""
    dialling = {place: those for place, those in members.items() if place not in stored}
    hosts = hosts_of(dialling, home, held)
    direct = sum(bool(members[place]) for place, host in hosts.items() if host is None and place != home)
    waiting = Counter(host for host in hosts.values() if host is not None)
    seated: Counter[Place] = Counter()
    routes: dict[Place, Routes] = {}
    for place, host in hosts.items():
        above: Sequence[str] = ()
        if host is not None:
            above = routes[host].guests[seated[host]]
            seated[host] += 1
        routes[place] = route(
            members[place],
            heads.get(place, ()),
            trainer=trainer if exposed or place.cluster == home.cluster else None,
            roots=trainer_roots(len(members[place]), direct) if place == home else 1,
            local=place == home,
            held=place in held,
            guests=waiting[place],
            above=above,
        )
    for place in sorted(set(members) - set(dialling)):
        known = heads.get(place, ())
        routes[place] = route(members[place], known, trainer=None, roots=1, held=place in held)
    return Trees(routes, {place: host for place, host in hosts.items() if host is not None})


def hosts_of(
    members: Mapping[Place, Sequence[Candidate]], home: Place, held: Collection[Place] = ()
) -> dict[Place, Place | None]:
    """Every place with its host, None where it dials the trainer; hosts come before their guests."""
    clusters: dict[str, list[Place]] = {}
    for place in sorted(members):
        if place != home:
            clusters.setdefault(place.cluster, []).append(place)
    for places in clusters.values():
        places.sort(key=lambda place: (not _serves(members[place], held=place in held), place))
    room = MAX_FAN_OUT - bool(members.get(home))
    shares = _shares({cluster: len(places) for cluster, places in clusters.items()}, room)
    found: dict[Place, Place | None] = {home: None} if home in members else {}
    for cluster, places in clusters.items():
        share = shares[cluster]
        for number, place in enumerate(places):
            found[place] = None if number < share else places[(number - share) // GUESTS_PER_PLACE]
    return found


def _serves(members: Sequence[Candidate], *, held: bool) -> bool:
    return bool(members) and (held or any(member.rank < LOST for member in members))


def _shares(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """How many places of each cluster dial the trainer: one of each, and then in turns while there is room."""
    shares = dict.fromkeys(wanted, 1)
    while sum(shares.values()) < room:
        short = [cluster for cluster in shares if shares[cluster] < wanted[cluster]]
        if not short:
            break
        for cluster in short[: room - sum(shares.values())]:
            shares[cluster] += 1
    return shares
