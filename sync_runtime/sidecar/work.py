"""Work leases in a sidecar: the parts of a trainer's and of a rollout's, built from plan, engine and connections."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.contract.figures import runtime as figures
from sync_runtime.contract.plan import Endpoint
from sync_runtime.contract.traces import ATTR_GROUP_ID, ATTR_PEER, ATTR_REASON, ATTR_TOKENS, WORK
from sync_runtime.control.exposition import Reading
from sync_runtime.session.machine import ServiceState
from sync_runtime.session.work.counter import WorkCounter
from sync_runtime.session.work.desk import DeskContext, WorkDesk
from sync_runtime.session.work.worker import WorkerContext, WorkerLibraries, WorkerSession
from sync_runtime.telemetry.names import WORK_RESULTS, WORK_TOKENS
from sync_runtime.telemetry.surface import Attributes
from sync_runtime.transport.events import WorkEvent
from sync_runtime.transport.messages import Hello
from sync_runtime.transport.work_dialler import WorkDialler
from sync_runtime.work.model import Policy, WorkVersion

if TYPE_CHECKING:
    from sync_runtime.session.members import EngineSession
    from sync_runtime.session.publish import PublisherSession
    from sync_runtime.sidecar.brain import Sidecar

FOLDER = "work"
HTTP = "http"
"""Who owns what was taken over HTTP."""
_UNCERTAIN = WorkVersion("", 0, "")
"""The version of weights that are being switched."""


def policy_of(sidecar: Sidecar) -> Policy:
    """What the plan says of work."""
    plan = sidecar.plans.plan
    return Policy(
        lease_s=float(plan.work.lease_seconds),
        max_inflight=plan.work.max_inflight_per_worker,
        max_attempts=plan.work.max_attempts,
        max_payload_bytes=plan.work.max_payload_bytes,
        max_staleness=plan.max_staleness,
    )


def is_on(sidecar: Sidecar) -> bool:
    """Whether the plan wants work leases."""
    return sidecar.plans.plan.work.mode == "Leased"


class TrainerWork:
    """The desk of a trainer's sidecar."""

    def __init__(self, sidecar: Sidecar, engine: PublisherSession) -> None:
        self._sidecar, self._engine = sidecar, engine
        versions = sidecar.versions
        self.desk = WorkDesk(
            DeskContext(
                folder=sidecar.spool.path / FOLDER,
                term=lambda: versions.fence.term,
                head=self._head,
                digest=lambda lineage, seq: versions.digest(VersionRef(lineage, seq)),
                policy=lambda: policy_of(sidecar),
                is_on=lambda: is_on(sidecar),
                member_lease_s=lambda: float(sidecar.plans.plan.lease.duration_seconds),
                spawn=sidecar.spawn,
                counted=self._counted,
                judged=lambda reason: sidecar.tracing.telemetry.record(WORK_RESULTS, 1, {ATTR_REASON: reason}),
            )
        )
        self.libraries = WorkCounter(self.desk)

    def start(self) -> None:
        """Serves from now on."""
        self.desk.start()

    def close(self) -> None:
        """What is written stays."""
        self.desk.close()

    def on_event(self, event: WorkEvent) -> None:
        """Something about a worker's connection."""
        self.desk.on_event(event)

    async def keep_house(self) -> None:
        """Now and then."""
        await self.desk.tick()

    def published(self) -> None:
        """There is a newer version: who waits for it may be given work."""
        self._sidecar.spawn(self.desk.tick())

    def document(self) -> Mapping[str, object]:
        """For the control API."""
        ledger = self.desk.ledger
        if ledger is None:
            return {"mode": self._sidecar.plans.plan.work.mode, "problem": self.desk.problem}
        held = ledger.held()
        return {
            "mode": self._sidecar.plans.plan.work.mode,
            "order": ledger.order,
            "epoch": ledger.epoch,
            "queued": ledger.queued,
            "leased": len(ledger.leases),
            "done": ledger.done,
            "returned": dict(self.desk.returns),
            "workers": [
                {
                    "member": one.name,
                    "tokensPerSecond": None if one.rate is None else round(one.rate, 3),
                    "leases": held.get(one.name, 0),
                    "wants": one.want,
                    "seq": None if one.version is None else one.version.seq,
                    "connected": one.lost_at_s is None,
                }
                for one in self.desk.workers.all
            ],
        }

    def readings(self) -> Iterator[Reading]:
        """Figures of the ledger."""
        ledger, desk = self.desk.ledger, self.desk
        if ledger is None:
            return
        for state, count in (("queued", ledger.queued), ("leased", len(ledger.leases)), ("done", ledger.done)):
            yield Reading(figures.WORK_GROUPS, count, (state,))
        yield Reading(figures.WORK_PROMPT_BYTES, ledger.prompt_bytes)
        yield Reading(figures.WORK_RESULT_BYTES, ledger.result_bytes)
        yield Reading(figures.WORK_TOKENS, desk.tokens)
        yield from (Reading(figures.WORK_RESULTS, count, (reason,)) for reason, count in desk.verdicts.items())
        yield from (Reading(figures.WORK_RETURNED, count, (reason,)) for reason, count in desk.returns.items())
        for one in desk.workers.all:
            if one.rate is not None:
                yield Reading(figures.WORK_RATE, one.rate, (one.name,))

    def _head(self) -> WorkVersion | None:
        versions = self._sidecar.versions
        head, digest = versions.head, versions.digest(versions.head)
        if head is None or digest is None:
            return None
        return WorkVersion(head.lineage, head.seq, digest, self._engine.step if head == self._engine.version else None)

    def _counted(self, version: WorkVersion, worker: str, tokens: int, spent_s: float) -> None:
        attributes: Attributes = {ATTR_PEER: worker, ATTR_TOKENS: tokens}
        self._sidecar.traces.timed(version.lineage, version.seq, WORK, int(spent_s * 1e6), attributes=attributes)
        self._sidecar.tracing.telemetry.record(WORK_TOKENS, tokens, {ATTR_PEER: worker})


class RolloutWork:
    """A worker's sidecar: its groups, and the connection to the trainer."""

    def __init__(self, sidecar: Sidecar, engine: EngineSession, hello: Hello) -> None:
        self._sidecar, self._engine = sidecar, engine
        self.session = WorkerSession(
            WorkerContext(
                live=self._live,
                coming=self._coming,
                policy=lambda: policy_of(sidecar),
                is_on=lambda: is_on(sidecar),
                spawn=sidecar.spawn,
                worked=self._worked,
                measured=self._measured,
            )
        )
        self.libraries = WorkerLibraries(self.session)
        self.dialler = WorkDialler(
            self._trainer(),
            tls=sidecar.identity.client_context,
            hello=hello.model_copy(update={"kind": "work"}),
            emit=sidecar.emit,
        )

    def start(self) -> None:
        """Dials the trainer."""
        self.dialler.start()

    def close(self) -> None:
        """Hangs up; the trainer gives what was in hand to others."""
        self.dialler.close()

    def on_event(self, event: WorkEvent) -> None:
        """Something about the connection to the trainer."""
        self.session.on_event(event)

    def plan_changed(self) -> None:
        """Another trainer, or none."""
        self.dialler.set_trainer(self._trainer())

    def keep_house(self) -> None:
        """What nobody asks for goes back."""
        self.session.refresh()

    def document(self) -> Mapping[str, object]:
        """For the control API."""
        tasks = self.session.tasks
        return {
            "mode": self._sidecar.plans.plan.work.mode,
            "connected": self.session.is_connected,
            "waiting": len(tasks.waiting),
            "inHand": len(tasks.in_hand),
            "revoked": sum(one.revoked is not None for one in tasks.in_hand),
            "unjudged": len(tasks.outbox),
        }

    def readings(self) -> Iterator[Reading]:
        """Figures of the tasks."""
        tasks, verdicts = self.session.tasks, self.session.verdicts
        counts = ("waiting", tasks.waiting), ("in_hand", tasks.in_hand), ("unjudged", tasks.outbox)
        yield from (Reading(figures.WORK_TASKS, len(those), (state,)) for state, those in counts)
        yield from (Reading(figures.WORK_VERDICTS, count, (reason,)) for reason, count in verdicts.items())

    # --- over HTTP ---------------------------------------------------------------------------------------------------

    @property
    def max_payload_bytes(self) -> int:
        """Of a result."""
        return policy_of(self._sidecar).max_payload_bytes

    async def take(self, wait_s: float, lost: Callable[[], bool]) -> Mapping[str, object] | None:
        """A group for whatever the engine runs; None: none came, or who asked is lost."""
        held = await self.session.take(HTTP, None, wait_s, lost)
        if held is None:
            return None
        head, version = held.task.head, held.version
        named = {"lineage": version.lineage, "seq": version.seq, "digest": version.digest, "step": version.step}
        payload = base64.b64encode(held.task.payload).decode("ascii")
        return {"lease": head.lease, "id": head.id, "samples": head.samples, "version": named, "payload": payload}

    def complete(self, lease: str, tokens: int, payload: bytes) -> Mapping[str, object]:
        """A result. Who has leave to switch may have switched, and says so later: no version is certain until then."""
        made = _UNCERTAIN if self._engine.state is ServiceState.ACTIVATING else None
        answer = self.session.complete(HTTP, lease, made, tokens, payload)
        return {"taken": answer.taken, "reason": answer.reason, "message": answer.message}

    def release(self, lease: str, reason: str, *, failed: bool) -> None:
        """Gives a lease back."""
        self.session.release(HTTP, lease, reason, failed=failed)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _trainer(self) -> Endpoint | None:
        return self._sidecar.plans.plan.trainer if is_on(self._sidecar) else None

    def _live(self) -> WorkVersion | None:
        return self._named(self._engine.live) if self._engine.scrubs.passed is True else None

    def _coming(self) -> WorkVersion | None:
        engine = self._engine
        return self._named(engine.staged or (engine.live if engine.scrubs.passed is None else None))

    def _named(self, version: VersionRef | None) -> WorkVersion | None:
        """A version as the ledger has it; None where its digest is not known, or the weights were found wrong."""
        digest = self._sidecar.versions.digest(version)
        if version is None or digest is None or self._engine.state is ServiceState.POISONED:
            return None
        return WorkVersion(version.lineage, version.seq, digest)

    def _measured(self, tokens_per_s: float) -> None:
        self._engine.tokens_per_second = round(tokens_per_s)

    def _worked(self, version: WorkVersion, group: str, spent_s: float) -> None:
        attributes: Attributes = {ATTR_GROUP_ID: group}
        self._sidecar.traces.timed(version.lineage, version.seq, WORK, int(spent_s * 1e6), attributes=attributes)
