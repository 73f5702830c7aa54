"""The member report: what the lease, the control API and the operator are told of a sidecar."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.contract.reports import MemberReport
from sync_runtime.contract.status import Version as ReportedVersion

if TYPE_CHECKING:
    from sync_runtime.sidecar.brain import Sidecar

TroubleOf = Callable[[], tuple[str, str] | None]
"""What is wrong around a sidecar, in a word and a sentence; None: nothing."""


def no_trouble() -> None:
    """Nothing around it can be wrong."""


def reported(version: VersionRef, step: int | None) -> ReportedVersion:
    return ReportedVersion(lineage=version.lineage, seq=version.seq, step=step)


def report_of(sidecar: Sidecar, state: str, **fields: object) -> MemberReport:
    settings = sidecar.settings
    around, book = sidecar.trouble(), sidecar.role.store_book
    if around is not None and fields.get("trouble") is None:  # what is wrong with the weights comes first
        fields["trouble"] = {"reason": around[0], "message": around[1][:200]}
    return MemberReport.model_validate(
        {
            "format_version": 1,
            "group_uid": settings.group_uid,
            "member": settings.member,
            "role": "Trainer" if settings.role == "trainer" else "Rollout",
            "cluster": settings.cluster,
            "region": settings.region,
            "runtime_version": sidecar.release,
            "max_plan_format": 1,
            "state": state,
            "term": sidecar.versions.fence.term,
            "plan_revision": sidecar.plans.plan.revision,
            "children": len(sidecar.distributor.children),
            "links": sidecar.links.reports(),
            "spool_bytes": sidecar.spool.size_bytes,
            "store": None if book is None else book.report(),
            "certificate_expiry_time": sidecar.identity.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            **fields,
        },
        by_name=True,
    )
