"""Rolling changes of a template: which pods give way to new ones now, within `maxUnavailable`. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence

from sync_runtime.contract.rollout import Rollout
from syncgroup_operator import reasons
from syncgroup_operator.planning.observation import PodView
from syncgroup_operator.planning.sitting import Sitting, Work


def is_outdated(work: Work, pod: PodView) -> bool:
    """Whether a pod was made from another template than the present one; unknown templates date nobody."""
    wanted = work.observation.template_hashes.get(pod.slot.role)
    return wanted is not None and pod.template_hash != wanted


def is_available(work: Work, pod: PodView | None) -> bool:
    """Whether a pod serves and is not on its way out."""
    if pod is None or pod.uid in work.removals or pod.deleting or not pod.ready:
        return False
    return work.cluster(pod.place) is not None and not work.life(pod).lost


def roll(work: Work, rollout: Rollout, sittings: Sequence[Sitting], relays: Container[str]) -> None:
    """Let outdated pods of one rollout go: broken ones at once, ready ones as far as `maxUnavailable` allows.

    Relays come last, so that a region changes its relay once.
    """
    unavailable = sum(not is_available(work, sitting.pod) for sitting in sittings)
    ready: list[tuple[Sitting, PodView]] = []
    for sitting in sittings:
        pod = sitting.pod
        if pod is None or work.cluster(pod.place) is None or pod.deleting or pod.uid in work.removals:
            continue
        if not is_outdated(work, pod):
            continue
        if is_available(work, pod):
            ready.append((sitting, pod))
        else:
            _let_go(work, sitting, pod)
    ready.sort(key=lambda pair: (work.member(pair[0].slot) in relays, pair[0].slot))
    for sitting, pod in ready[: max(rollout.max_unavailable - unavailable, 0)]:
        _let_go(work, sitting, pod)


def _let_go(work: Work, sitting: Sitting, pod: PodView) -> None:
    work.remove(pod, reasons.TEMPLATE_CHANGED, "its template changed")
    work.note_seen(sitting.slot, seen=False)
