"""`kubectl syncgroup top` as lines and as values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.status import LinkStatus, RegionStatus, Version
from syncgroup.looking.facts import GroupFacts, MemberFact
from syncgroup.terminal import NOTHING, Cell, Tone, age, clean, micros, millis, painted, rate, share, size, table
from syncgroup_operator import reasons

_HEADS = ("REGION", "MEMBERS", "VERSION", "LAG", "LINK", "RATE", "STREAMS", "BUCKET", "LEASE")
_WIDE_HEADS = (*_HEADS, "RTT", "LOSS", "UTIL", "CODEC", "RELAY")
_MEMBER_HEADS = ("MEMBER", "REGION", "STATE", "VERSION", "LAG", "PARENT", "LEASE")
_WIDE_MEMBER_HEADS = (*_MEMBER_HEADS, "SYNC", "PAUSE", "TOKENS/S", "SCRUB", "NODE", "POD")
_STATE_TONES: dict[str, Tone] = {"Serving": "good", "Poisoned": "bad", "CatchingUp": "warn", "Joining": "warn"}
SHOWN_MEMBERS = 40
"""Of one group; the rest is counted. `-o wide` shows all."""


def groups_lines(groups: Sequence[GroupFacts], *, wide: bool = False, colour: bool = False) -> list[str]:
    """One table of all groups, a row per region."""
    heads = ("GROUP", "READY", *(_WIDE_HEADS if wide else _HEADS))
    rows = []
    for facts in groups:
        for number, region in enumerate(facts.status.regions or [None]):
            title = (Cell(facts.name, "strong"), _ready(facts)) if number == 0 else (Cell(" "), Cell(" "))
            cells = [NOTHING] * (len(heads) - 2) if region is None else _region(facts, region, wide=wide)
            rows.append([*title, *cells])
    return table(heads, rows, colour=colour)


def group_lines(facts: GroupFacts, *, wide: bool = False, colour: bool = False) -> list[str]:
    """One group: a head, its regions, its members."""
    regions = [_region(facts, region, wide=wide) for region in facts.status.regions]
    lines = [*_head(facts, colour=colour), ""]
    lines += table(_WIDE_HEADS if wide else _HEADS, regions, colour=colour) if regions else ["no region yet"]
    shown = facts.members if wide else facts.members[:SHOWN_MEMBERS]
    rows = [_member(facts, one, wide=wide) for one in shown]
    lines += ["", *table(_WIDE_MEMBER_HEADS if wide else _MEMBER_HEADS, rows, colour=colour)]
    if len(shown) < len(facts.members):
        lines.append(painted(f"and {len(facts.members) - len(shown)} more: -o wide", "dim", colour=colour))
    lines += [painted(f"note: {clean(one)}", "dim", colour=colour) for one in (*_hidden(facts), *facts.unseen)]
    return lines


def group_document(facts: GroupFacts) -> dict[str, Any]:
    """The same for programs: the status as the contract has it, and the members."""
    return {
        "namespace": facts.group.key.namespace,
        "name": facts.group.key.name,
        "status": facts.status.to_document(),
        "members": [_member_document(one) for one in facts.members],
        "unseen": list(facts.unseen),
    }


def lag_of(facts: GroupFacts, version: Version | None) -> int | None:
    """Versions behind the trainer; None where they cannot be compared."""
    newest = facts.status.version
    if newest is None or version is None or newest.lineage != version.lineage:
        return None
    return max(newest.seq - version.seq, 0)


def _hidden(facts: GroupFacts) -> Iterator[str]:
    """Members of other clusters are not on this API server."""
    blind = {one.cluster for one in facts.members if one.pod is None and one.report is None} - {names.LOCAL_CLUSTER}
    for cluster in sorted(blind):
        yield f"members in {cluster} are seen with --remote {cluster}=CONTEXT, a context of yours for that cluster"


def _head(facts: GroupFacts, *, colour: bool) -> Iterator[str]:
    status, ready = facts.status, facts.condition(reasons.READY)
    cell = _ready(facts)
    version = NOTHING if status.version is None else str(status.version.seq)
    step = f" (step {status.version.step})" if status.version is not None and status.version.step is not None else ""
    parts = [
        f"version {version}{step}",
        f"lag {_count(status.lag_versions)}",
        f"sync {millis(status.sync_millis)}",
        f"rollouts {status.rollouts_ready or NOTHING}",
        f"term {_count(status.term)}",
        f"plan {_count(status.plan_revision)}",
        f"replaced {_count(status.replacements_total)}",
    ]
    name = painted(facts.name, "strong", colour=colour)
    yield f"{name}  {painted(cell.text, cell.tone, colour=colour)}  {' · '.join(parts)}"
    if ready is not None and ready.status != "True":
        yield f"  {clean(ready.message)}"
        yield painted(
            f"  kubectl syncgroup why -n {facts.group.key.namespace} {facts.group.key.name}", "dim", colour=colour
        )
    for request in status.requests:
        if request.state in ("Waiting", "Running"):
            yield f"  request {request.id}: {request.type} {request.member or ''} is {request.state}: {request.message}"


def _ready(facts: GroupFacts) -> Cell:
    if facts.deleting:
        return Cell(reasons.DELETING, "warn")
    ready = facts.condition(reasons.READY)
    if ready is None:
        return Cell("Unseen", "warn")
    if ready.status == "True":
        return Cell(reasons.READY, "good")
    stalled = facts.condition(reasons.STALLED)
    return Cell(ready.reason, "bad" if stalled is not None and stalled.status == "True" else "warn")


def _region(facts: GroupFacts, region: RegionStatus, *, wide: bool) -> list[Cell | str]:
    link = region.link or LinkStatus(from_region=region.region)
    known = region.link is not None
    members = facts.members_at(region)
    stale = facts.group.spec.sync.max_staleness
    cells: list[Cell | str] = [
        f"{region.cluster}/{region.region}",
        Cell(f"{region.ready}/{region.desired}", "good" if region.ready == region.desired else "warn"),
        NOTHING if region.version is None else str(region.version.seq),
        _lag(region.lag_versions, stale),
        (f"from {link.from_region}" if link.store is None else "from the store") if known else NOTHING,
        rate(link.rate_bits_per_second),
        _count(link.streams),
        size(link.bucket_bytes),
        _lease(members),
    ]
    if wide:
        util = NOTHING if link.utilisation_percent is None else f"{link.utilisation_percent} %"
        cells += [micros(link.rtt_micros), share(link.loss_ppm), util, link.codec or NOTHING, region.relay or NOTHING]
    return cells


def _lease(members: Sequence[MemberFact]) -> Cell | str:
    """The oldest lease of a place."""
    known = [one for one in members if one.lease_age_s is not None]
    oldest = max(known, key=lambda one: one.lease_age_s or 0.0, default=None)
    return NOTHING if oldest is None else _lease_cell(oldest)


def _lease_cell(member: MemberFact) -> Cell | str:
    if member.lease_age_s is None:
        return NOTHING
    old = member.lease_duration_s is not None and member.lease_age_s > member.lease_duration_s
    return Cell(age(member.lease_age_s), "bad" if old else "plain")


def _lag(lag: int | None, stale: int) -> Cell | str:
    return NOTHING if lag is None else Cell(str(lag), "warn" if lag > stale else "plain")


def _member(facts: GroupFacts, member: MemberFact, *, wide: bool) -> list[Cell | str]:
    report, pod = member.report, member.pod
    version = None if report is None else report.version
    lag = _count(lag_of(facts, version))
    cells: list[Cell | str] = [
        Cell(member.name, "strong" if member.role == names.TRAINER_ROLE else "plain"),
        f"{member.cluster}/{member.region}",
        _state(facts, member),
        NOTHING if version is None else str(version.seq),
        lag,
        (report.parent if report is not None else None) or NOTHING,
        _lease_cell(member),
    ]
    if wide:
        pause = millis(None if report is None else report.pause_millis)
        tokens = _count(None if report is None else report.tokens_per_second)
        scrub = (report.scrub if report is not None else None) or NOTHING
        where = pod.node if pod is not None else ""
        phase = _phase(member)
        cells += [millis(None if report is None else report.sync_millis), pause, tokens, scrub, where or NOTHING, phase]
    return cells


def _state(facts: GroupFacts, member: MemberFact) -> Cell:
    pod, report = member.pod, member.report
    if pod is not None and pod.deleting:
        return Cell("Leaving", "warn")
    if pod is not None and pod.trouble is not None:
        return Cell(pod.trouble.reason, "bad")
    if report is not None:
        return Cell(report.state, _STATE_TONES.get(report.state, "warn"))
    if pod is None:
        seen = member.cluster == names.LOCAL_CLUSTER and not facts.unseen
        return Cell("NoPod" if seen else "Unseen", "warn" if seen else "dim")
    return Cell(_phase(member), "warn")


def _phase(member: MemberFact) -> str:
    if member.pod is None:
        return NOTHING
    return "Ready" if member.pod.ready else member.pod.phase


def _count(value: int | None) -> str:
    return NOTHING if value is None else str(value)


def _member_document(member: MemberFact) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": member.name,
        "role": member.role,
        "index": member.index,
        "cluster": member.cluster,
        "region": member.region,
        "leaseAgeSeconds": None if member.lease_age_s is None else round(member.lease_age_s, 1),
        "report": None if member.report is None else member.report.to_document(),
    }
    if member.pod is not None:
        trouble = member.pod.trouble
        found["pod"] = {
            "phase": member.pod.phase,
            "ready": member.pod.ready,
            "deleting": member.pod.deleting,
            "node": member.pod.node or None,
            "trouble": None if trouble is None else {"reason": trouble.reason, "message": trouble.message},
        }
    return found
