"""Why a SyncGroup is not Ready, in sentences, with the next command: a pure function of what was read."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sync_runtime.contract.status import Condition
from syncgroup.looking.advice import Advice, advice_for
from syncgroup.looking.facts import GroupFacts, MemberFact
from syncgroup.terminal import Tone, age, clean, painted
from syncgroup_operator import reasons

Weight = Literal["cause", "sign", "note"]
_TONES: dict[Weight, Tone] = {"cause": "bad", "sign": "warn", "note": "dim"}
_PARTS = (
    reasons.TRAINER_READY,
    reasons.ROLLOUTS_READY,
    reasons.CLUSTERS_REACHABLE,
    reasons.IDENTITY_VALID,
    reasons.LINKS_HEALTHY,
)
_SHOWN_MEMBERS = 5
_SHOWN_EVENTS = 4
_SHOWN_COMMANDS = 4
_RECENT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    weight: Weight
    reason: str
    sentence: str
    meaning: str = ""
    """What that means to a person; empty where the sentence says it all."""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Why, in order: causes first."""

    healthy: bool
    headline: str
    findings: tuple[Finding, ...] = ()

    @property
    def next_commands(self) -> tuple[str, ...]:
        """What to type, the most useful first, none twice."""
        found = (command for finding in self.findings for command in finding.commands)
        return tuple(dict.fromkeys(found))[:_SHOWN_COMMANDS]


def why(facts: GroupFacts) -> Answer:
    """The answer."""
    ready = facts.condition(reasons.READY)
    seen = facts.status.observed_generation
    findings = [*_unseen_spec(facts), *_conditions(facts), *_members(facts), *_clusters(facts)]
    findings += [*_requests(facts), *_events(facts), *(Finding("note", "Unseen", one) for one in facts.unseen)]
    if facts.deleting:
        return Answer(False, f"{facts.name} is being deleted", _ordered(findings))
    if ready is None:
        return Answer(False, f"{facts.name} is not Ready: no operator has looked at it yet", _ordered(findings))
    if seen != facts.generation:
        headline = f"{facts.name}: the last change of its spec was not looked at yet"
        return Answer(False, headline, _ordered(findings))
    if ready.status != "True":
        return Answer(False, f"{facts.name} is not Ready: {ready.reason}", _ordered(findings))
    version = facts.status.version
    what = "no version yet" if version is None else f"version {version.seq}"
    lag = facts.status.lag_versions
    behind = "" if not lag else f", the slowest {lag} behind"
    return Answer(True, f"{facts.name} is healthy: {ready.message}; {what}{behind}", _ordered(findings))


def answer_lines(answer: Answer, *, colour: bool = False) -> list[str]:
    """For a person."""
    tone: Tone = "good" if answer.healthy else "bad"
    lines = [painted(clean(answer.headline), tone, colour=colour)]
    for one in answer.findings:
        lines.append(f"  {painted('•', _TONES[one.weight], colour=colour)} {clean(one.sentence)}")
        lines += [f"    → {one.meaning}"] if one.meaning else []
    commands = answer.next_commands
    if commands:
        lines += ["", "next:", *(f"  {painted(clean(one), 'strong', colour=colour)}" for one in commands)]
    return lines


def answer_document(facts: GroupFacts, answer: Answer) -> dict[str, Any]:
    """For programs."""
    return {
        "namespace": facts.group.key.namespace,
        "name": facts.group.key.name,
        "healthy": answer.healthy,
        "headline": answer.headline,
        "findings": [
            {
                "weight": one.weight,
                "reason": one.reason,
                "sentence": one.sentence,
                "meaning": one.meaning,
                "commands": list(one.commands),
            }
            for one in answer.findings
        ],
        "next": list(answer.next_commands),
    }


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    ranks: dict[Weight, int] = {"cause": 0, "sign": 1, "note": 2}
    unique = dict.fromkeys(findings)
    return tuple(sorted(unique, key=lambda one: ranks[one.weight]))


def _unseen_spec(facts: GroupFacts) -> Iterator[Finding]:
    if facts.condition(reasons.READY) is not None and facts.status.observed_generation == facts.generation:
        return
    words = {**_names(facts)}
    sentence = "the operator has not looked at this spec: it is not running, or watches other namespaces"
    commands = (
        "kubectl get pods -A -l app.kubernetes.io/name=syncgroup",
        "kubectl get lease -A | grep syncgroup-operator",
    )
    if facts.group.spec.managed_by != "syncgroup.dev/operator":
        yield _finding("cause", reasons.MANAGED_ELSEWHERE, f"spec.managedBy is {facts.group.spec.managed_by}", words)
    else:
        yield Finding("cause", "NotObserved", sentence, commands=commands)


def _conditions(facts: GroupFacts) -> Iterator[Finding]:
    """Every condition that says something is wrong; `Ready` repeats one of them and is left out where it does."""
    told: set[str] = set()
    stalled = facts.condition(reasons.STALLED)
    wrong = [one for one in (stalled,) if one is not None and one.status == "True"]
    parts = (facts.condition(kind) for kind in _PARTS)
    wrong += [one for one in parts if one is not None and one.status == "False"]
    ready, under_way = facts.condition(reasons.READY), facts.condition(reasons.RECONCILING)
    if ready is not None and ready.status != "True":
        wrong.append(ready)
    for condition in wrong:
        if condition.message not in told:
            told.add(condition.message)
            weight: Weight = "cause" if condition.type in (reasons.STALLED, *_PARTS[:2]) else "sign"
            yield _of_condition(facts, condition, weight)
    if under_way is not None and under_way.status == "True" and under_way.message not in told:
        yield _of_condition(facts, under_way, "note")


def _of_condition(facts: GroupFacts, condition: Condition, weight: Weight) -> Finding:
    member = _named(facts, condition.message)
    words = _names(facts, member) | _cluster_words(facts, condition.message)
    sentence = f"{condition.type} is {condition.status} ({condition.reason}): {condition.message}"
    return _finding(weight, condition.reason, sentence, words)


def _members(facts: GroupFacts) -> Iterator[Finding]:
    troubled = [one for one in facts.members if _is_troubled(one)]
    for member in troubled[:_SHOWN_MEMBERS]:
        words = _names(facts, member)
        pod, report = member.pod, member.report
        if pod is not None and pod.trouble is not None:
            container = f", container {pod.trouble.container}" if pod.trouble.container else ""
            sentence = f"pod {member.name}{container}: {pod.trouble.reason}: {pod.trouble.message}"
            yield _finding("cause", pod.trouble.reason, sentence, words)
        elif report is not None and report.trouble is not None:
            reason = reasons.MEMBER_POISONED if report.state == "Poisoned" else report.trouble.reason
            yield _finding("cause", reason, f"member {member.name} says: {report.trouble.message}", words)
        else:
            limit = f", and it lasts {member.lease_duration_s} s" if member.lease_duration_s else ""
            sentence = f"member {member.name} renewed its lease {age(member.lease_age_s)} ago{limit}"
            yield _finding("sign", reasons.LEASE_EXPIRED, sentence, words)
    if len(troubled) > _SHOWN_MEMBERS:
        yield Finding("note", "More", f"and {len(troubled) - _SHOWN_MEMBERS} more members have trouble")


def _is_troubled(member: MemberFact) -> bool:
    pod, report = member.pod, member.report
    if pod is not None and pod.deleting:
        return False
    if (pod is not None and pod.trouble is not None) or (report is not None and report.trouble is not None):
        return True
    limit_s, silent_s = member.lease_duration_s, member.lease_age_s
    return pod is not None and limit_s is not None and silent_s is not None and silent_s > limit_s


def _clusters(facts: GroupFacts) -> Iterator[Finding]:
    for cluster in facts.clusters:
        if cluster.connected != "True":
            since = f" since {age(cluster.lost_age_s)}" if cluster.lost_age_s is not None else ""
            sentence = f"cluster {cluster.name} is not connected{since}: {cluster.message}"
            yield _finding(
                "cause", cluster.reason or reasons.UNREACHABLE, sentence, _names(facts) | {"cluster": cluster.name}
            )
    known = {cluster.name for cluster in facts.clusters}
    for lost in facts.status.lost_clusters:
        if lost.name not in known:
            sentence = f"cluster {lost.name} was lost at {lost.lost_time}: {lost.message or lost.reason}"
            yield _finding("cause", lost.reason, sentence, _names(facts) | {"cluster": lost.name})


def _requests(facts: GroupFacts) -> Iterator[Finding]:
    for request in facts.status.requests:
        if request.state != "Done":
            whom = f" of {request.member}" if request.member else ""
            sentence = f"request {request.id} ({request.type}{whom}) is {request.state}: {request.message}"
            yield Finding("note", reasons.REQUESTED, sentence)


def _events(facts: GroupFacts) -> Iterator[Finding]:
    recent = [one for one in facts.events if one.type == "Warning" and (one.age_s or 0.0) < _RECENT_S]
    for event in recent[:_SHOWN_EVENTS]:
        often = f", {event.count} times" if event.count > 1 else ""
        yield Finding("note", event.reason, f"{age(event.age_s)} ago{often}: {event.reason}: {event.note}")


def _finding(weight: Weight, reason: str, sentence: str, words: Mapping[str, str]) -> Finding:
    advice = advice_for(reason)
    return Finding(weight, reason, sentence, advice.meaning, tuple(_filled(advice, words)))


def _filled(advice: Advice, words: Mapping[str, str]) -> Iterator[str]:
    """The commands of which everything is known."""
    for command in advice.commands:
        wanted = {field for _, field, _, _ in string.Formatter().parse(command) if field}
        if wanted <= words.keys():
            yield command.format(**words)


def _names(facts: GroupFacts, member: MemberFact | None = None) -> dict[str, str]:
    found = {"namespace": facts.group.key.namespace, "name": facts.group.key.name}
    if member is not None and member.pod is not None:
        found["pod"] = member.name
        found["namespace"] = member.pod.namespace or found["namespace"]
        if member.pod.node:
            found["node"] = member.pod.node
        trouble = member.pod.trouble
        found["container"] = trouble.container if trouble is not None and trouble.container else "sync-runtime"
    return found


def _named(facts: GroupFacts, message: str) -> MemberFact | None:
    """The member that a message is about."""
    return next((one for one in facts.members if one.name in message), None)


def _cluster_words(facts: GroupFacts, message: str) -> dict[str, str]:
    from_spec = {one.name for one in facts.clusters} | {one.name for one in facts.status.lost_clusters}
    from_spec |= {rollout.cluster for rollout in facts.group.spec.rollouts} | {facts.group.spec.trainer.cluster}
    found = next((name for name in sorted(from_spec) if f"cluster {name}" in message), None)
    return {} if found is None else {"cluster": found}
