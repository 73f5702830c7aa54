"""Conditions of a SyncGroup, in words that kstatus and people read alike. Pure.

`Ready` is there from the first visit on; `Reconciling` is true while something is under way, `Stalled` only where a
retry cannot help. A condition's transition time moves when its status does, and with nothing else.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sync_runtime.contract.status import PPM, Condition, ConditionStatus
from syncgroup_operator import reasons
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.census import Census, camel, clipped
from syncgroup_operator.planning.problems import Failure, TemplateProblem
from syncgroup_operator.planning.stores import addresses, is_proved, store_trouble

LOSSY_PPM = PPM // 20
EXPIRING_SOON = datetime.timedelta(hours=2)
"""A member renews its certificate long before this."""
AUTHORITY_EXPIRING_SOON = datetime.timedelta(days=7)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition before it knows its times."""

    status: ConditionStatus
    reason: str
    message: str


def conditions_of(
    census: Census,
    problems: Sequence[TemplateProblem],
    failures: Sequence[Failure],
    authority_expiry: datetime.datetime | None,
) -> list[Condition]:
    """All conditions, `Ready` first."""
    stalled = _stalled(census, problems, failures)
    trainer, rollouts = _trainer(census), _rollouts(census)
    found = {
        reasons.READY: _ready(census, stalled, failures, (trainer, rollouts)),
        reasons.RECONCILING: _reconciling(census, stalled, failures, (trainer, rollouts)),
        reasons.STALLED: stalled,
        reasons.TRAINER_READY: trainer,
        reasons.ROLLOUTS_READY: rollouts,
        reasons.LINKS_HEALTHY: _links(census),
        reasons.CLUSTERS_REACHABLE: _clusters(census),
        reasons.IDENTITY_VALID: _identity(census, authority_expiry),
        reasons.SUSPENDED: _suspended(census),
    }
    before = census.observation.group.status
    known = before.conditions if before is not None else ()
    return stamped(found.items(), known, census.observation.generation, census.observation.now)


def stamped(
    verdicts: Iterable[tuple[str, Verdict]], before: Iterable[Condition], generation: int, now: datetime.datetime
) -> list[Condition]:
    """Conditions with their times: a status that did not change keeps its moment."""
    known = {condition.type: condition for condition in before}
    stamped: list[Condition] = []
    for kind, verdict in verdicts:
        old = known.get(kind)
        same = old is not None and old.status == verdict.status
        stamped.append(
            Condition(
                type=kind,
                status=verdict.status,
                observed_generation=generation,
                last_transition_time=old.last_transition_time if same and old is not None else clock.written(now),
                reason=verdict.reason,
                message=clipped(verdict.message),
            )
        )
    return stamped


def _ready(census: Census, stalled: Verdict, failures: Sequence[Failure], parts: tuple[Verdict, Verdict]) -> Verdict:
    if census.observation.deleting:
        return Verdict("False", reasons.DELETING, "the group is being deleted")
    if stalled.status == "True":
        return Verdict("False", stalled.reason, stalled.message)
    unready = next((verdict for verdict in parts if verdict.status != "True"), None)
    why = next((failure for failure in failures if failure.reason), None)
    store = _store(census)
    if unready is not None and why is not None:  # "not there yet" would hide that somebody refuses it
        return Verdict("False", camel(why.reason, unready.reason), f"{_told(why)}; {unready.message}")
    if store is not None and store.reason != reasons.STORE_UNPROVED:  # members wait for what it does not give
        return Verdict("False", store.reason, store.message + (f"; {unready.message}" if unready else ""))
    if unready is not None:
        return unready
    if store is not None:
        return store
    return Verdict("True", reasons.ALL_READY, f"the trainer and {len(census.ready)} members serve")


def _stalled(census: Census, problems: Sequence[TemplateProblem], failures: Sequence[Failure]) -> Verdict:
    if problems:
        told = "; ".join(f"{problem.field}: {problem.message}" for problem in problems[:_SHOWN])
        return Verdict("True", problems[0].reason, told + _and_more(len(problems)))
    for name, cluster in sorted(census.observation.clusters.items()):
        if cluster.problem is not None and cluster.problem.permanent and not census.observation.deleting:
            reason = camel(cluster.problem.reason, reasons.UNREACHABLE)
            return Verdict("True", reason, f"{_named_by(census, name)}cluster {name}: {cluster.problem.message}")
    refused = [failure for failure in failures if not failure.retry]
    if refused:
        told = "; ".join(_told(failure) for failure in refused[:_SHOWN])
        return Verdict("True", camel(refused[0].reason, reasons.TEMPLATE_REFUSED), told + _and_more(len(refused)))
    return Verdict("False", reasons.NOTHING_TO_DO, "nothing needs a change of the spec or the clusters")


def _named_by(census: Census, cluster: str) -> str:
    """The first field of the spec that names a cluster; nothing where only leftovers are there."""
    spec = census.observation.group.spec
    if spec.trainer.cluster == cluster:
        return "spec.trainer.cluster: "
    for rollout in spec.rollouts:
        if rollout.cluster == cluster:
            return f"spec.rollouts[{rollout.name}].cluster: "
        for index, place in enumerate(rollout.placement.fallback):
            if place.cluster == cluster:
                return f"spec.rollouts[{rollout.name}].placement.fallback[{index}].cluster: "
    return ""


def _reconciling(
    census: Census, stalled: Verdict, failures: Sequence[Failure], parts: tuple[Verdict, Verdict]
) -> Verdict:
    observation, decision = census.observation, census.decision
    if observation.deleting:
        left = ", ".join(decision.state.clusters) or "the hub"
        return Verdict("True", reasons.DELETING, f"something of the group is left in: {left}")
    if stalled.status == "True":
        return Verdict("False", stalled.reason, "nothing is tried until the problem is mended")
    if failures:
        told = "; ".join(_told(failure) for failure in failures[:_SHOWN])
        reason = camel(failures[0].reason, reasons.PROGRESSING)
        return Verdict("True", reason, f"{told}{_and_more(len(failures))}; it is tried again")
    under_way = sum(slot.replacing_since_time is not None for slot in decision.state.slots)
    if decision.replacements or under_way or decision.damped:
        return Verdict("True", reasons.REPLACING, f"{under_way} members are being replaced, {decision.damped} wait")
    if census.outdated and not observation.group.spec.suspend:
        return Verdict("True", reasons.ROLLING_OUT, f"{census.outdated} pods have an older template")
    if census.strays or (observation.group.spec.suspend and _pods(census)):
        return Verdict("True", reasons.SCALING, "pods that are no longer wanted end")
    store = _store(census)
    if store is not None and all(part.status == "True" for part in parts):
        return Verdict("True", store.reason, f"{store.message}; its sidecar tries again")
    if observation.group.spec.suspend or all(part.status == "True" for part in parts):
        return Verdict("False", reasons.NOTHING_TO_DO, "what is wanted is there")
    if all(part.status == "True" or part.reason in (reasons.UNREACHABLE, reasons.DONE) for part in parts):
        return Verdict("False", reasons.NOTHING_TO_DO, "what can be reached is as it is wanted")
    return Verdict("True", reasons.STARTING, "pods are starting")


def _trainer(census: Census) -> Verdict:
    row = census.trainer
    if census.observation.group.spec.suspend:
        return Verdict("False", reasons.SUSPENDED, "the group is suspended: spec.suspend")
    if row is None or (row.pod is None and row.reachable):
        damped = row is not None and census.decision.damped and not row.seat.create
        return Verdict("False", reasons.DAMPED if damped else reasons.STARTING, "the trainer's pod is not there yet")
    if not row.reachable:
        return Verdict("Unknown", reasons.UNREACHABLE, f"cluster {row.seat.place.cluster} cannot be reached")
    if row.pod is not None and row.pod.phase == "Succeeded":
        return Verdict("False", reasons.DONE, "the trainer has ended by itself and is not started again")
    if row.ready:
        return Verdict("True", reasons.SERVING, f"{row.member} serves")
    _, reason, message = row.trouble()
    return Verdict("False", reasons.TRAINER_DOWN if reason == reasons.LEASE_EXPIRED else reason, message)


def _rollouts(census: Census) -> Verdict:
    if census.observation.group.spec.suspend:
        return Verdict("False", reasons.SUSPENDED, "the group is suspended: spec.suspend")
    wanted, ready = len(census.rollouts), len(census.ready)
    count = f"{ready} of {wanted} members serve"
    if ready == wanted:
        return Verdict("True", reasons.ALL_READY, count)
    # The worst first; among equals the first seat, so that the message does not jump.
    troubles = ((row.trouble(), row.seat.slot) for row in census.rollouts if not row.ready)
    (_, reason, message), _ = min(troubles, key=lambda one: (one[0][0], one[1]))
    waiting = f"; {census.decision.damped} wait to be replaced" if census.decision.damped else ""
    return Verdict("False", reason, f"{count}; {message}{waiting}")


def _store(census: Census) -> Verdict | None:
    """What is wrong with the object store, or not known of it yet; None: nothing, or there is none."""
    stores = addresses(census)
    if not stores or census.observation.group.spec.suspend:
        return None
    trouble = store_trouble(census)
    if trouble is not None:
        return Verdict("False", trouble.reason, trouble.message)
    if is_proved(census):
        return None
    return Verdict("False", reasons.STORE_UNPROVED, f"the trainer has not opened {', '.join(stores)} yet")


def _links(census: Census) -> Verdict:
    stale = census.observation.group.spec.sync.max_staleness
    store = _store(census)
    if store is not None:
        return Verdict("Unknown", store.reason, store.message) if store.reason == reasons.STORE_UNPROVED else store
    dialling = {place: plan for place, plan in census.decision.plans.items() if plan.transport == "Streams"}
    blind = sorted({place.cluster for place, plan in dialling.items() if plan.trainer is None and plan.members})
    if blind:
        message = f"clusters {', '.join(blind)} do not know the trainer's address yet: its Service has none, or set "
        return Verdict("False", reasons.TRAINER_UNREACHED, message + "spec.trainer.exposure.host")
    behind = [row for row in census.ready if (census.lag(row) or 0) > stale]
    if behind:
        names = ", ".join(row.member for row in behind[:_SHOWN])
        return Verdict("False", reasons.REGIONS_STALE, f"more than maxStaleness ({stale}) versions behind: {names}")
    links = [link for life in census.lives.values() if life.report and not life.lost for link in life.report.links]
    lossy = sorted(f"{link.from_region} to {link.to_region}" for link in links if (link.loss_ppm or 0) > LOSSY_PPM)
    if lossy:
        return Verdict("False", reasons.MEASURED, f"more than 5 % of the bytes are sent again: {', '.join(lossy[:3])}")
    reports = [life.report for life in census.lives.values() if life.report and not life.lost]
    if any(link.payloads for link in links) or any(one.store is not None and one.store.objects for one in reports):
        return Verdict("True", reasons.MEASURED, "links carry what they should")
    return Verdict("Unknown", reasons.NOT_MEASURED, "no payload was sent yet")


def _clusters(census: Census) -> Verdict:
    away = [(name, one) for name, one in sorted(census.observation.clusters.items()) if not one.reachable]
    if not away:
        return Verdict("True", reasons.CONNECTED_REASON, f"all {len(census.observation.clusters)} clusters are reached")
    name, cluster = away[0]
    problem = cluster.problem
    reason = camel(problem.reason, reasons.UNREACHABLE) if problem else reasons.PROGRESSING
    told = problem.message if problem else "its watches are being set up"
    status: ConditionStatus = "False" if problem else "Unknown"
    return Verdict(status, reason, f"cluster {name}: {told}{_and_more(len(away), 1)}")


def _identity(census: Census, authority_expiry: datetime.datetime | None) -> Verdict:
    now = census.observation.now
    if authority_expiry is not None and authority_expiry - now < AUTHORITY_EXPIRING_SOON:
        gone = authority_expiry <= now
        reason = reasons.AUTHORITY_EXPIRED if gone else reasons.AUTHORITY_EXPIRING
        message = (
            f"the group's certificate authority {'ended' if gone else 'ends'} at {clock.written(authority_expiry)}"
        )
        return Verdict("False", reason, message)
    soonest: tuple[datetime.datetime, str] | None = None
    for row in (*census.rollouts, *([census.trainer] if census.trainer else ())):
        if row.report is not None and row.report.certificate_expiry_time is not None and not row.life.lost:
            ends = (clock.read(row.report.certificate_expiry_time), row.member)
            soonest = min(soonest or ends, ends)
    if soonest is None:
        return Verdict("Unknown", reasons.PROGRESSING, "no member has shown a certificate yet")
    if soonest[0] - now < EXPIRING_SOON:
        message = f"the certificate of {soonest[1]} ends at {clock.written(soonest[0])} and was not renewed"
        return Verdict("False", reasons.CERTIFICATE_EXPIRING, message)
    return Verdict("True", reasons.VALID, "certificates are valid")


def _suspended(census: Census) -> Verdict:
    if census.observation.group.spec.suspend:
        return Verdict("True", reasons.SUSPENDED, "spec.suspend is true")
    return Verdict("False", reasons.NOTHING_TO_DO, "spec.suspend is false")


def _pods(census: Census) -> int:
    return sum(len(cluster.pods) for cluster in census.observation.clusters.values() if cluster.reachable)


def _told(failure: Failure) -> str:
    return f"{failure.cluster}: {failure.what}: {failure.message}"


def _and_more(count: int, shown: int = _SHOWN) -> str:
    return f" and {count - shown} more" if count > shown else ""
