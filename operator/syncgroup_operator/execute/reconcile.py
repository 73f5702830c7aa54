"""One pass over a group: observe, plan, record, act, tell. Whatever woke it, the pass is the same.

Every write is idempotent and named deterministically, so that a pass may die at any point: the next one, of this
replica or of another, ends in the same state.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sync_runtime.contract import traces
from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.names import (
    FINALIZER,
    LOCAL_CLUSTER,
    MANAGED_BY_OPERATOR,
    GroupKey,
)
from sync_runtime.contract.status import SyncGroupStatus
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator import reasons
from syncgroup_operator.errors import ConflictError, DeniedError, NotFoundError
from syncgroup_operator.execute.act import Outcome, act, pressing
from syncgroup_operator.execute.authorities import Authorities
from syncgroup_operator.execute.clusters import Clusters
from syncgroup_operator.execute.expectations import LOOK_AGAIN_S, Expectations
from syncgroup_operator.execute.groups import Groups, SeenGroup
from syncgroup_operator.execute.news import News
from syncgroup_operator.execute.observe import clusters_of, observe, seen_state
from syncgroup_operator.execute.reactions import Reactions
from syncgroup_operator.execute.record import Record, Records
from syncgroup_operator.execute.refusals import Refusals
from syncgroup_operator.execute.resting import Resting
from syncgroup_operator.execute.store_secrets import StoreSecrets
from syncgroup_operator.execute.taken import without_taken
from syncgroup_operator.execute.tracing import PassLog, PassSink, decided, marked, replacements
from syncgroup_operator.execute.trust import bundle_delivered, bundle_seen
from syncgroup_operator.identity.authority import GroupAuthority
from syncgroup_operator.kube.events import Subject
from syncgroup_operator.kube.kinds import SECRET, SYNC_GROUP
from syncgroup_operator.manifests.children import children_of
from syncgroup_operator.manifests.inputs import Extras, LibraryFacts
from syncgroup_operator.manifests.metadata import owner_reference
from syncgroup_operator.manifests.problems import problems_of
from syncgroup_operator.planning.decide import decide, hold
from syncgroup_operator.planning.decision import Decision, Note, Vigil
from syncgroup_operator.planning.diff import diff
from syncgroup_operator.planning.observation import Observation
from syncgroup_operator.planning.problems import Failure, TemplateProblem
from syncgroup_operator.planning.status import status_of

_log = logging.getLogger(__name__)
RETRY_FAILED_S: Final = 2.0
HUB_AWAY_S: Final = 30.0
"""A net only: groups that wait for the hub are woken when its watches are live."""


@dataclass(slots=True)
class Figures:
    """What passes did, for metrics."""

    passes: int = 0
    actions: int = 0
    status_writes: int = 0
    replacements: dict[str, int] = field(default_factory=dict)
    lease_expiries: int = 0
    _expired: dict[GroupKey, frozenset[str]] = field(default_factory=dict)

    def expired(self, key: GroupKey, uids: Iterable[str]) -> None:
        """The leases of these pods are judged expired; each counts once, in however many passes it is seen."""
        before, now = self._expired.get(key, frozenset()), frozenset(uids)
        self.lease_expiries += len(now - before)
        self._expired[key] = now

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._expired.pop(key, None)


@dataclass(frozen=True)
class Surroundings:
    """What every pass shares."""

    groups: Groups
    clusters: Clusters
    records: Records
    authorities: Authorities
    news: News
    hub_id: str
    image: str
    library: LibraryFacts
    clock: Callable[[], float]
    wall_clock: Callable[[], datetime.datetime]
    reactions: Reactions
    store_secrets: StoreSecrets
    passes: PassSink | None = None
    """Where passes that did something are traced; None: nowhere."""


class Reconciler:
    """Passes over groups; the queue calls them one at a time per group."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._expected = Expectations()
        self._refusals = Refusals()
        self.figures = Figures()
        self.postponed: set[GroupKey] = set()
        """Groups whose pass waits until the hub's watches are live."""
        self.uses: dict[str, set[GroupKey]] = {}
        """Which groups use a cluster: they are woken when it is lost or comes back."""
        self.observed: set[GroupKey] = set()
        """Groups that a pass of this replica has seen in all their clusters."""
        self.resting = Resting(around.clusters.cache, around.clock)

    async def reconcile(self, key: GroupKey, acted: Callable[[], None] = lambda: None) -> float | None:
        """One pass; after how long the next is due by itself. Raises OperatorError where it must be tried again.

        `acted` is called when nothing is left but to tell.
        """
        seen = self._around.groups.get(key)
        if seen is None:
            self._forget(key)
            return None
        try:
            group = self._around.groups.parse(seen)
        except ContractError as error:
            _log.error("SyncGroup %s/%s cannot be read by this release: %s", *key, error)
            return None
        if group.spec.managed_by != MANAGED_BY_OPERATOR:
            return None
        self.figures.passes += 1
        self.resting.end(key)
        with PassLog(self._around.passes, _about(seen)) as log:
            return await self._look(seen, group, log, acted)

    async def _look(self, seen: SeenGroup, group: SyncGroup, log: PassLog, acted: Callable[[], None]) -> float | None:
        key = seen.key
        with log.step(traces.OBSERVE) as step:
            record = self._around.records.read(key, seen.uid, seen_state(self._around.clusters, seen))
            self._note_uses(key, clusters_of(group) | set(record.state.clusters))
            observation = await self._observe(seen, group, record)
            step.attributes[traces.ATTR_MEMBERS] = sum(len(one.pods) for one in observation.clusters.values())
        if not observation.clusters[LOCAL_CLUSTER].reachable:
            return self._postpone(key, observation)
        if not self._expected.met(key, observation):
            return LOOK_AGAIN_S
        if all(cluster.reachable for cluster in observation.clusters.values()):
            self.observed.add(key)
        if seen.deleting:
            return await self._tear_down(seen, observation, record, log)
        return await self._pass(seen, observation, record, log, acted)

    def waits(self, key: GroupKey) -> bool:
        """Whether the last pass over a group only waited for what an earlier one did to show."""
        return self._expected.pending(key)

    async def _pass(
        self, seen: SeenGroup, observation: Observation, record: Record, log: PassLog, acted: Callable[[], None]
    ) -> float | None:
        problems = problems_of(observation)
        if problems:
            await self._tell(seen, observation, hold(observation, record.state), Outcome(), log, problems=problems)
            self._around.store_secrets.look_soon(seen.key)
            return self._around.store_secrets.due_s(seen.key)
        with log.step(traces.PLAN) as step:
            authority, decision = await self._plan(seen, observation, record, log)
            step.attributes.update(decided(decision))
        extras = Extras(hub_id=self._around.hub_id, trust_bundle=authority.bundle, library=self._around.library)
        wanted = children_of(observation, decision, extras)
        outcome = await self._act(seen, observation, decision, wanted, log)
        acted()
        told = await self._tell(seen, observation, decision, outcome, log, ca_expires=authority.expires)
        if outcome.pause_s is not None:
            return min(outcome.pause_s, decision.wake_after_s or outcome.pause_s)
        if outcome.unfinished:
            return 0.0
        if outcome == Outcome() and not told and decision.state == record.state and decision.vigils is not None:
            self._rest(seen.key, observation, decision, decision.vigils)
        return decision.wake_after_s

    async def _plan(
        self, seen: SeenGroup, observation: Observation, record: Record, log: PassLog
    ) -> tuple[GroupAuthority, Decision]:
        """Decides, and writes down what must be known before anything is done."""
        authority = await self._around.authorities.of(
            seen.key, seen.uid, trusted=bundle_seen(observation), delivered=self._delivered(seen, observation)
        )
        decision = self._around.store_secrets.with_next_look(observation, decide(observation, record.state))
        self.figures.expired(seen.key, decision.expired)
        for replacement in decision.replacements:
            self._around.reactions.judged(seen.key, replacement.member)
        await self._guard(seen, decision)
        log.add(decided(decision))
        if decision.state != record.state:
            log.did()
            await self._around.records.write(seen.key, record, decision.state, owner_reference(observation))
        return authority, decision

    def _rest(self, key: GroupKey, observation: Observation, decision: Decision, vigils: tuple[Vigil, ...]) -> None:
        connections = {name: (view.namespace, view.connected_s) for name, view in observation.clusters.items()}
        besides_s = decision.wake_besides_s
        self.resting.begin(key, connections, vigils, None if besides_s is None else observation.now_s + besides_s)

    async def _tear_down(self, seen: SeenGroup, observation: Observation, record: Record, log: PassLog) -> float | None:
        """Delete everything that can be reached; what is out of reach is the collector's, once it is back."""
        decision = decide(observation, record.state)
        outcome = await self._act(seen, observation, decision, (), log)
        if outcome.failures:
            await self._tell(seen, observation, decision, outcome, log)
            return RETRY_FAILED_S
        if outcome.done or _anything_left(observation) or _is_being_opened(observation):
            return LOOK_AGAIN_S
        await self._around.authorities.remove(seen.key, seen.uid)
        if FINALIZER in seen.finalizers:
            left = [name for name in seen.finalizers if name != FINALIZER]
            await self._set_finalizers(seen, left)
        return None

    # --- the steps ----------------------------------------------------------------------------------------------------

    async def _observe(self, seen: SeenGroup, group: SyncGroup, record: Record) -> Observation:
        around = self._around
        observation = observe(
            around.clusters, seen, group, record.state, now_s=around.clock(), now=around.wall_clock(),
            image=around.image, library=around.library,
            refused=self._refusals.slots(seen.key, seen.generation),
        )  # fmt: skip
        if not observation.clusters[LOCAL_CLUSTER].reachable:
            return observation
        return await around.store_secrets.seen(observation, record.state.store_clusters)

    def _delivered(self, seen: SeenGroup, observation: Observation) -> bool:
        authority = self._around.authorities.known(seen.uid)
        return authority is not None and bundle_delivered(observation, authority.bundle)

    async def _guard(self, seen: SeenGroup, decision: Decision) -> None:
        """Before anything is written elsewhere, the group must not be able to vanish unseen."""
        remote = {seat.place.cluster for seat in decision.seats} | set(decision.state.clusters)
        if remote - {LOCAL_CLUSTER} and FINALIZER not in seen.finalizers:
            await self._set_finalizers(seen, [*seen.finalizers, FINALIZER])

    async def _set_finalizers(self, seen: SeenGroup, finalizers: list[str]) -> None:
        patch = {"metadata": {"finalizers": finalizers, "resourceVersion": seen.resource_version, "uid": seen.uid}}
        try:
            answer = await self._around.clusters.hub.merge_patch(SYNC_GROUP, *seen.key, patch)
        except NotFoundError:
            return
        if answer.get("metadata", {}).get("uid") == seen.uid and not seen.deleting:
            self._around.groups.keep(seen, answer)

    async def _act(
        self, seen: SeenGroup, observation: Observation, decision: Decision, wanted: Any, log: PassLog
    ) -> Outcome:
        planned = [
            action
            for action in diff(wanted, observation, decision)
            if self._around.clusters.client(action.cluster) is not None
        ]
        now, unfinished = pressing(planned)
        actions, taken = without_taken(now, self._around.clusters, seen.uid)
        if not actions and not taken:
            self._refusals.note(seen.key, seen.generation, (), ())
            return Outcome()
        self.figures.actions += len(actions)
        clients = {name: self._around.clusters.client(name) for name in {action.cluster for action in actions}}
        log.did()
        with log.step(traces.ACT) as step:
            outcome = await act(
                marked(actions, log.traceparent),
                {name: client for name, client in clients.items() if client is not None},
            )
            step.attributes |= {traces.ATTR_ACTIONS: len(actions), traces.ATTR_FAILURES: len(outcome.failures)}
            for failure in outcome.failures[:1]:
                step.failed(failure.reason, f"{failure.what} in cluster {failure.cluster}: {failure.message}")
        step.below += replacements(decision, step)
        if any(action.key.kind == SECRET.kind for action in actions):
            self._around.store_secrets.changed(seen.key)
        self._expected.expect(seen.key, outcome.done, self._around.clock())
        for replacement in decision.replacements:
            count = self.figures.replacements.get(replacement.reason, 0)
            self.figures.replacements[replacement.reason] = count + 1
        failures = outcome.failures + taken
        pause_s = self._refusals.note(seen.key, seen.generation, actions, failures)
        return replace(outcome, failures=failures, pause_s=pause_s, unfinished=unfinished)

    async def _tell(
        self,
        seen: SeenGroup,
        observation: Observation,
        decision: Decision,
        outcome: Outcome,
        log: PassLog,
        *,
        problems: tuple[TemplateProblem, ...] = (),
        ca_expires: datetime.datetime | None = None,
    ) -> bool:
        """The status, once, and only where it changed; then events. Whether there was, or may be, anything to tell."""
        if _is_being_opened(observation) and not (decision.notes or decision.replacements):
            return True  # within moments it is there or lost; its members have not gone anywhere meanwhile
        status = status_of(observation, decision, problems, outcome.failures, authority_expiry=ca_expires)
        changed = status != observation.group.status
        if changed:
            log.did()
            with log.step(traces.STATUS):
                await self._write_status(seen, observation, status)
        notes = (*decision.notes, *_notes(outcome.failures))
        for note in notes:
            self._around.news.say(Subject(SYNC_GROUP.api_version, SYNC_GROUP.kind, *seen.key, seen.uid), note)
        return changed or bool(notes)

    async def _write_status(self, seen: SeenGroup, observation: Observation, status: SyncGroupStatus) -> None:
        document = {
            "apiVersion": SYNC_GROUP.api_version,
            "kind": SYNC_GROUP.kind,
            "metadata": {"name": seen.key.name, "namespace": seen.key.namespace, "uid": seen.uid},
            "status": status.to_document(),
        }
        try:
            answer = await self._around.clusters.hub.patch_status(document)
        except (NotFoundError, ConflictError):
            return  # gone, or a namesake: the watch will show
        self.figures.status_writes += 1
        self._around.groups.wrote(seen, answer)

    def _postpone(self, key: GroupKey, observation: Observation) -> float:
        """Without the hub's watches nothing that is seen is the present."""
        problem = observation.clusters[LOCAL_CLUSTER].problem
        if problem is not None and problem.reason == reasons.DENIED:
            raise DeniedError(problem.message)
        self.postponed.add(key)
        return HUB_AWAY_S

    def _note_uses(self, key: GroupKey, clusters: set[str]) -> None:
        for name, users in self.uses.items():
            if name not in clusters:
                users.discard(key)
        for name in clusters:
            self.uses.setdefault(name, set()).add(key)

    def _forget(self, key: GroupKey) -> None:
        self._expected.forget(key)
        self.figures.forget(key)
        self._refusals.forget(key)
        self.postponed.discard(key)
        self._around.records.forget(key)
        self._around.reactions.forget(key)
        self._around.store_secrets.forget(key)
        self.resting.end(key)
        self.observed.discard(key)
        for users in self.uses.values():
            users.discard(key)


def _about(seen: SeenGroup) -> dict[str, str | int]:
    """What a pass's trace says of its group."""
    return {
        traces.ATTR_GROUP: seen.key.name,
        traces.ATTR_GROUP_NAMESPACE: seen.key.namespace,
        traces.ATTR_GROUP_UID: seen.uid,
        traces.ATTR_GENERATION: seen.generation,
    }


def _anything_left(observation: Observation) -> bool:
    """Whether a cluster that is seen still shows something of the group; the hub's own record goes with the group."""
    return any(
        cluster.pods or cluster.leases or cluster.children
        for cluster in observation.clusters.values()
        if cluster.reachable
    )


def _is_being_opened(observation: Observation) -> bool:
    """Whether a cluster may still show something: it becomes connected, or lost, within moments."""
    return any(cluster.problem is None and not cluster.reachable for cluster in observation.clusters.values())


def _notes(failures: tuple[Failure, ...]) -> tuple[Note, ...]:
    return tuple(
        Note("Warning", failure.reason, f"{failure.what} in cluster {failure.cluster}: {failure.message}")
        for failure in failures
        if failure.reason
    )
