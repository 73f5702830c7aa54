"""What the user sees: the whole status of a SyncGroup, and of a SyncCluster. Pure.

Figures move all the time; a status that moved with them would be written all the time. What is nearly the same as
before stays as it was written.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

from sync_runtime.contract.reports import LinkReport
from sync_runtime.contract.status import (
    MAX_KEPT_REPLACEMENTS,
    MAX_LOST_CLUSTERS,
    MAX_STATUS_REGIONS,
    LinkStatus,
    LostCluster,
    RegionStatus,
    SyncClusterStatus,
    SyncGroupStatus,
    Version,
)
from syncgroup_operator import reasons
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.census import Census, Row, camel, clipped, take_census
from syncgroup_operator.planning.conditions import Verdict, conditions_of, stamped
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.links import Pair, reported_links
from syncgroup_operator.planning.observation import ClusterProblem, Observation, Place
from syncgroup_operator.planning.problems import Failure, TemplateProblem
from syncgroup_operator.planning.requests import request_statuses
from syncgroup_operator.planning.state import PlaceState
from syncgroup_operator.planning.stores import address_at, follower, nearly, store_status
from syncgroup_operator.planning.trainers import trainer_place

_FIGURES: Final = ("rate_bits_per_second", "rtt_micros", "loss_ppm", "utilisation_percent")


def status_of(
    observation: Observation,
    decision: Decision,
    problems: Sequence[TemplateProblem] = (),
    failures: Sequence[Failure] = (),
    *,
    authority_expiry: datetime.datetime | None = None,
) -> SyncGroupStatus:
    """The status after one pass. `authority_expiry`: when the group's certificate authority ends."""
    census = take_census(observation, decision)
    before = observation.group.status or SyncGroupStatus()
    lags = [lag for lag in (census.lag(row) for row in census.ready) if lag is not None]
    host, port = _trainer_address(census)
    return SyncGroupStatus(
        conditions=conditions_of(census, problems, failures, authority_expiry),
        observed_generation=observation.generation,
        version=census.version,
        term=decision.state.term,
        plan_revision=decision.state.revision,
        rollouts_ready=f"{len(census.ready)}/{len(census.rollouts)}",
        lag_versions=max(lags, default=None),
        sync_millis=_sync_millis(census, before.sync_millis),
        trainer_host=host,
        trainer_port=port,
        regions=_regions(census, before),
        store=store_status(census, before.store),
        replacements_total=decision.state.replacements_total,
        replacements=[*reversed(decision.replacements), *before.replacements][:MAX_KEPT_REPLACEMENTS],
        lost_clusters=_lost_clusters(observation, before),
        requests=request_statuses(observation, decision),
    )


def synccluster_status(
    previous: SyncClusterStatus | None,
    *,
    generation: int,
    now: datetime.datetime,
    connected: bool,
    problem: ClusterProblem | None = None,
    kubernetes_version: str | None = None,
    lost_time: datetime.datetime | None = None,
) -> SyncClusterStatus:
    """The status of a SyncCluster. The moment it was lost is kept until it is connected again, whoever looks.

    `lost_time`: that moment, where the caller knows it better than by the time of its verdict.
    """
    before = previous or SyncClusterStatus()
    lost = lost_time or clock.past(before.lost_time, now)
    if connected:
        verdict, lost = Verdict("True", reasons.CONNECTED_REASON, "its API server answers"), None
    elif problem is not None:
        verdict = Verdict("False", camel(problem.reason, reasons.UNREACHABLE), problem.message)
        lost = lost or now
    else:  # not tried yet: no news, but what was lost stays lost
        verdict = Verdict("Unknown", reasons.PROGRESSING, "its watches are being set up")
    return SyncClusterStatus(
        conditions=stamped([(reasons.CONNECTED, verdict)], before.conditions, generation, now),
        observed_generation=generation,
        kubernetes_version=(kubernetes_version or before.kubernetes_version or "")[:64] or None,
        lost_time=None if lost is None else clock.written(lost),
    )


def _trainer_address(census: Census) -> tuple[str | None, int | None]:
    state = census.decision.state
    if state.trainer_host is not None:
        return state.trainer_host, state.trainer_port
    plan = census.decision.plans.get(trainer_place(census.observation))
    if plan is None or plan.trainer is None:
        return None, None
    return plan.trainer.host, plan.trainer.port


def _sync_millis(census: Census, before: int | None) -> int | None:
    """The slowest member's, each of the version that it serves: while versions move, reports are never all of one."""
    reports = [row.report for row in census.ready if row.report is not None]
    slowest = max((report.sync_millis for report in reports if report.sync_millis is not None), default=before)
    return before if nearly(before, slowest) else slowest


def _regions(census: Census, before: SyncGroupStatus) -> list[RegionStatus]:
    old = {Place(region.cluster, region.region): region for region in before.regions}
    places = sorted({row.seat.place for row in census.rollouts})
    home = trainer_place(census.observation)
    relays = {Place(one.cluster, one.region): _relay(one, census) for one in census.decision.state.places}
    links = reported_links(census.lives.values(), {home, *places}, set(relays.values()))
    rows_at: dict[Place, list[Row]] = {}
    for row in census.rollouts:
        rows_at.setdefault(row.seat.place, []).append(row)
    found = []
    for place in places[:MAX_STATUS_REGIONS]:
        rows = rows_at[place]
        ready = [row for row in rows if row.ready]
        lags = [lag for lag in (census.lag(row) for row in ready) if lag is not None]
        was = old[place].link if place in old else None
        was = None if was is not None and (was.store or "") != address_at(census, place) else was
        link = links.get(Pair(home, place))
        shown = was if link is None else _link(link, was, census.observation.now)
        found.append(
            RegionStatus(
                cluster=place.cluster,
                region=place.region,
                desired=len(rows),
                ready=len(ready),
                version=_oldest(ready),
                lag_versions=max(lags, default=None),
                relay=relays.get(place) or None,
                link=_store_link(census, place, rows, was) or shown,
            )
        )
    return found


def _relay(entry: PlaceState, census: Census) -> str:
    """Who receives for a place; empty where everybody dials the trainer."""
    plan = census.decision.plans.get(Place(entry.cluster, entry.region))
    relays = {member.name for member in plan.members if member.relay} if plan is not None else set(entry.heads)
    return next((name for name in entry.heads if name in relays), "")


def _oldest(ready: Sequence[Row]) -> Version | None:
    versions = [row.report.version for row in ready if row.report is not None and row.report.version is not None]
    return min(versions, key=lambda version: (version.seq, version.lineage), default=None)


def _link(link: LinkReport, before: LinkStatus | None, now: datetime.datetime) -> LinkStatus:
    fresh = LinkStatus(
        from_region=link.from_region,
        codec=link.codec,
        streams=link.streams,
        bucket_bytes=link.bucket_bytes,
        message=link.message,
        **_figures(link, before, now),
    )
    if before is None:
        return fresh
    settings = ("from_region", "codec", "streams", "bucket_bytes")
    same = all(getattr(before, one) == getattr(fresh, one) for one in settings)
    return before if same and all(nearly(getattr(before, one), getattr(fresh, one)) for one in _FIGURES) else fresh


def _store_link(census: Census, place: Place, rows: Sequence[Row], before: LinkStatus | None) -> LinkStatus | None:
    """The store as the link into a place, by whoever fetches there; None where weights come over streams."""
    address = address_at(census, place)
    if not address:
        return None
    was = before
    report = follower(rows)
    rate = report.rate_bits_per_second if report is not None else None
    same = rate is None or (was is not None and nearly(was.rate_bits_per_second, rate))
    trouble = None if report is None else report.trouble
    return LinkStatus(
        from_region=trainer_place(census.observation).region,
        codec="Fast",
        rate_bits_per_second=(was.rate_bits_per_second if was is not None else None) if same else rate,
        store=address,
        measured_time=(was.measured_time if was is not None else None)
        if same
        else clock.written(census.observation.now),
        message=None if trouble is None else trouble.message,
    )


def _figures(link: LinkReport, before: LinkStatus | None, now: datetime.datetime) -> dict[str, Any]:
    """What was measured and when. A sender that has sent nothing yet knows nothing: the last figures stand, if any."""
    if link.payloads:
        return {**{one: getattr(link, one) for one in _FIGURES}, "measured_time": clock.written(now)}
    if before is None or before.from_region != link.from_region:
        return {}
    return {one: getattr(before, one) for one in (*_FIGURES, "measured_time")}


def _lost_clusters(observation: Observation, before: SyncGroupStatus) -> list[LostCluster]:
    known = {entry.name: entry for entry in before.lost_clusters}
    found = []
    for name, cluster in sorted(observation.clusters.items()):
        if cluster.reachable or (cluster.problem is None and cluster.lost_time is None):
            continue
        earlier = clock.past(known[name].lost_time, observation.now) if name in known else None
        lost = cluster.lost_time or earlier or observation.now
        problem = cluster.problem
        found.append(
            LostCluster(
                name=name,
                lost_time=clock.written(min(lost, observation.now)),
                reason=camel(problem.reason, reasons.UNREACHABLE) if problem else reasons.UNREACHABLE,
                message=clipped(problem.message) if problem else None,
            )
        )
    return found[:MAX_LOST_CLUSTERS]
