"""What the control API shows of a sidecar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sync_runtime.control.exposition import Reading
from sync_runtime.session.machine import PublishState, ServiceState
from sync_runtime.sidecar.brain import Sidecar
from sync_runtime.sidecar.figures import readings_of
from sync_runtime.sidecar.rollout import Rollout
from sync_runtime.sidecar.trainer import Trainer
from sync_runtime.sidecar.work import RolloutWork
from sync_runtime.transport.child import ChildLink


class View:
    """Readings of one sidecar; on its loop."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def live(self) -> Sequence[str]:
        """A process that answers is alive."""
        return []

    def ready(self) -> Sequence[str]:
        """A trainer whose library is open; a member that serves. With a GPU worker: one that owners can dial."""
        worker = self._sidecar.worker
        without = None if worker is None else worker.trouble
        return [*([] if without is None else [without[1]]), *self._session_ready()]

    def _session_ready(self) -> Sequence[str]:
        role = self._sidecar.role
        if isinstance(role, Trainer):
            if role.engine.appointed_term > self._sidecar.versions.fence.term:
                return ["another trainer was appointed"]
            waiting = role.engine.state in (PublishState.WAITING, PublishState.OPENING)
            return ["no publisher is open"] if waiting else []
        if role.engine.state is ServiceState.STARTING:
            return ["no subscriber is open"]
        if role.engine.live is None:
            return ["the engine's weights are no version yet"]
        return ["a scrub found wrong weights"] if role.engine.state is ServiceState.POISONED else []

    def status(self) -> Mapping[str, object]:
        """The member report, and what stands around it."""
        sidecar = self._sidecar
        head = sidecar.versions.head
        return {
            "report": sidecar.role.report().to_document(),
            "head": None if head is None else {"lineage": head.lineage, "seq": head.seq},
            "incarnation": sidecar.versions.fence.incarnation,
            "draining": sidecar.draining,
            "drained": sidecar.draining and not sidecar.distributor.children,
            "planRevision": sidecar.plans.plan.revision,
            "planProblem": sidecar.plans.problem,
            "stalePlans": sidecar.plans.stale,
            "certificateProblem": str(sidecar.identity.problem or "") or None,
            "lease": {"renewals": sidecar.keeper.renewals, "problem": sidecar.keeper.problem},
            "gpuWorker": None if sidecar.worker is None else sidecar.worker.status(),
            "work": sidecar.role.work.document(),
            "parents": [f"{one.member} {one.host}:{one.port}" for one in sidecar.plans.parents()],
            "children": [
                {
                    "member": view.name,
                    "holds": None if view.holds is None else view.holds.seq,
                    "transfers": [key.text for key in view.transfers.values()],
                }
                for view in sidecar.distributor.children
            ],
            "incoming": [one.key.text for one in sidecar.role.receiver.incoming]
            if isinstance(sidecar.role, Rollout)
            else [],
        }

    def links(self) -> Mapping[str, object]:
        """Links with their counters."""
        listener = self._sidecar.listener
        links = () if listener is None else listener.children
        return {
            "links": [
                {
                    "peer": link.name,
                    "region": link.hello.region,
                    "streams": link.stats.streams,
                    "congestionControl": link.stats.congestion_control,
                    "sentBytes": link.stats.totals.sent_bytes,
                    "ackedBytes": link.stats.totals.acked_bytes,
                    "repeatedBytes": link.stats.totals.repeated_bytes,
                    "bounds": self._sidecar.links.bounds(link),
                    "decisions": self._sidecar.links.decisions(link),
                    "superseded": self._sidecar.links.superseding(link),
                    "codec": self._codec_reason(link),
                }
                for link in links
            ],
            "reports": [report.to_document() for report in self._sidecar.links.reports()],
        }

    def _codec_reason(self, link: ChildLink) -> str | None:
        reasons = (view.codec_reason for view in self._sidecar.distributor.children if view.link is link)
        return next(reasons, None) or None

    def versions(self) -> Mapping[str, object]:
        """What the spool holds."""
        return {
            "objects": [
                {"key": one.key.text, "bytes": one.size_bytes, "digest": str(one.facts.target.digest)}
                for one in self._sidecar.spool.objects()
            ],
            "partial": [key.text for key in self._sidecar.spool.partial()],
        }

    def refusals(self) -> Mapping[str, int]:
        """Counts by reason, from all sides."""
        return self._sidecar.all_refusals()

    def metrics(self) -> Sequence[Reading]:
        """All figures."""
        return list(readings_of(self._sidecar))

    @property
    def work(self) -> RolloutWork | None:
        """Groups for workers that speak HTTP; at a rollout's sidecar only."""
        return self._sidecar.role.work if isinstance(self._sidecar.role, Rollout) else None

    async def drain(self) -> Mapping[str, object]:
        """Takes no new children, lets those being served finish; asked again it tells how far that is."""
        return {"draining": True, "drained": self._sidecar.drain()}

    async def reload(self) -> None:
        """Reads plan and certificates now."""
        self._sidecar.reload()
