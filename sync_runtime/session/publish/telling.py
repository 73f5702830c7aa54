"""What everyone below is told of the trainer's versions: the index of its lineages, and which version is the newest."""

from __future__ import annotations

import time

from sync_runtime.session.publish.context import Standing, TrainerContext
from sync_runtime.transport.messages import Head


def tell_index(context: TrainerContext, standing: Standing) -> None:
    """The lineages that lead to where the publisher stands, and its newest version."""
    position = standing.position
    for known in (*position.before, position.record):
        rows = [(seq, str(digest)) for seq, digest in sorted(known.digests.items())]
        is_newest = known.lineage == position.lineage
        context.versions.learn_lineage(known.lineage, rows, start=known.origin, current=is_newest)
        context.distributor.tell_index(known.lineage)
    tell_head(context, standing, "")


def tell_head(context: TrainerContext, standing: Standing, trace: str) -> None:
    """The newest version, with the trace that it is part of."""
    fence = context.versions.fence
    if fence.incarnation is None:
        return
    digest = str(standing.position.digest)
    context.versions.learn_head(standing.version, digest, standing.step)
    context.distributor.set_head(
        Head(
            lineage=standing.position.lineage,
            seq=standing.position.seq,
            digest=digest,
            step=standing.step,
            term=fence.term,
            incarnation=fence.incarnation,
            published_unix_ns=time.time_ns(),
            trace=trace,
        )
    )
