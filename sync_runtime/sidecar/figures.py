"""The figures of one sidecar, read when somebody asks: what is counted elsewhere gets its names here.

Absent where nothing is known. Knows nothing of HTTP or of Prometheus' text.
"""

from __future__ import annotations

from collections.abc import Iterator

from sync_runtime.bucket.stored import StoredObject
from sync_runtime.contract.figures import Figure
from sync_runtime.contract.figures import runtime as names
from sync_runtime.contract.reports import LinkReport
from sync_runtime.control.exposition import Reading
from sync_runtime.errors import FormatError
from sync_runtime.sidecar.brain import Sidecar
from sync_runtime.sidecar.rollout import Rollout
from sync_runtime.tensors.layout import parse_layout


def readings_of(sidecar: Sidecar) -> Iterator[Reading]:
    """All figures, in the order of the table."""
    yield from _life(sidecar)
    yield from _versions(sidecar)
    yield from _payload(sidecar)
    yield from _links(sidecar)
    yield from (Reading(names.REFUSALS, count, (reason,)) for reason, count in sorted(sidecar.all_refusals().items()))
    if sidecar.role.store_book is not None:
        yield from sidecar.role.store_book.readings()
    yield from sidecar.role.work.readings()


def _life(sidecar: Sidecar) -> Iterator[Reading]:
    keeper, worker = sidecar.keeper, sidecar.worker
    yield Reading(names.DRAINING, float(sidecar.draining))
    yield Reading(names.LEASE_RENEWALS, keeper.renewals)
    yield Reading(names.LEASE_FAILURES, keeper.failures)
    yield from _known(names.LEASE_AGE, keeper.age_s())
    yield Reading(names.CERTIFICATE_EXPIRY, sidecar.identity.expires_at.timestamp())
    yield Reading(names.STALE_PLANS, sidecar.plans.stale)
    yield Reading(names.SPANS_DROPPED, sidecar.tracing.telemetry.dropped_spans)
    yield Reading(names.PLAN_REVISION, sidecar.plans.plan.revision)
    yield Reading(names.TERM, sidecar.versions.fence.term)
    if worker is not None:
        yield Reading(names.GPU_WORKER_UP, float(worker.trouble is None))
        yield Reading(names.GPU_WORKER_STARTS, worker.starts)


def _versions(sidecar: Sidecar) -> Iterator[Reading]:
    head, role = sidecar.versions.head, sidecar.role
    served = role.engine.live if isinstance(role, Rollout) else role.engine.version
    yield from _known(names.HEAD_SEQ, None if head is None else head.seq)
    yield from _known(names.VERSION_SEQ, None if served is None else served.seq)
    if isinstance(role, Rollout):
        if served is not None and head is not None and served.lineage == head.lineage:
            yield Reading(names.LAG, max(head.seq - served.seq, 0))
        for result, count in role.engine.scrubs.results.items():
            yield Reading(names.SCRUBS, count, (result,))
    yield from sidecar.stage_times.readings(is_rollout=isinstance(role, Rollout))


def _payload(sidecar: Sidecar) -> Iterator[Reading]:
    """What the newest version's step cost: from the objects of it that are here, whoever coded them."""
    head = sidecar.versions.head
    steps = [one for one in sidecar.spool.objects() if one.key.is_link and one.key.target == head]
    for step in steps:
        yield Reading(names.PAYLOAD_BYTES, step.size_bytes, (step.key.codec,))
    for step in steps:
        if step.facts.num_changed:
            yield Reading(names.PAYLOAD_BITS, 8 * step.size_bytes / step.facts.num_changed, (step.key.codec,))
    if steps:
        yield Reading(names.PAYLOAD_CHANGED, steps[0].facts.num_changed)
        yield from _of_layout(sidecar, steps[0])
    yield Reading(names.SPOOL_BYTES, sidecar.spool.size_bytes)


def _of_layout(sidecar: Sidecar, step: StoredObject) -> Iterator[Reading]:
    document = sidecar.spool.layout(step.facts.layout_hash)
    if document is None:
        return
    try:
        tensors = parse_layout(document).tensors
    except FormatError:  # the spool says so itself, when it is opened
        return
    num_elements = sum(tensor.numel for tensor in tensors)
    if num_elements:
        yield Reading(names.PAYLOAD_DENSITY, step.facts.num_changed / num_elements)
    yield Reading(names.WEIGHTS_BYTES, sum(tensor.numel * tensor.dtype.width_bytes for tensor in tensors))


def _links(sidecar: Sidecar) -> Iterator[Reading]:
    yield Reading(names.CHILDREN, len(sidecar.distributor.children))
    for report in sidecar.links.reports():
        yield from _link(report)
    for link in () if sidecar.listener is None else sidecar.listener.children:
        labels = link.name, link.hello.cluster, link.hello.region
        yield Reading(names.LINK_SENT, link.stats.totals.sent_bytes, labels)
        yield Reading(names.LINK_REPEATED, link.stats.totals.repeated_bytes, labels)
    yield Reading(names.SUPERSEDED, sidecar.links.num_superseded)
    yield Reading(names.ASKED_AGAIN, sidecar.distributor.asked_again, ("children",))
    if isinstance(sidecar.role, Rollout):
        yield Reading(names.ASKED_AGAIN, sidecar.role.receiver.asked_again, ("parent",))


def _link(report: LinkReport) -> Iterator[Reading]:
    labels = report.peer, report.to_cluster, report.to_region
    yield from _known(names.LINK_RATE, report.rate_bits_per_second, labels)
    yield from _known(names.LINK_CAPACITY, report.capacity_bits_per_second, labels)
    yield from _known(names.LINK_UTILISATION, report.utilisation_percent, labels, per=100)
    yield from _known(names.LINK_RTT, report.rtt_micros, labels, per=1_000_000)
    yield from _known(names.LINK_MIN_RTT, report.min_rtt_micros, labels, per=1_000_000)
    yield from _known(names.LINK_LOSS, report.loss_ppm, labels, per=1_000_000)
    yield Reading(names.LINK_STREAMS, report.streams, labels)
    yield Reading(names.LINK_BUCKET, report.bucket_bytes, labels)


def _known(figure: Figure, value: float | None, labels: tuple[str, ...] = (), *, per: int = 1) -> Iterator[Reading]:
    if value is not None:
        yield Reading(figure, value / per, labels)
