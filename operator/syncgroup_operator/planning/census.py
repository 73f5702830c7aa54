"""Who serves, who does not and why: the figures that conditions and status are made of. Pure, decides nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sync_runtime.contract import names, patterns
from sync_runtime.contract.reports import MemberReport
from sync_runtime.contract.status import Version
from syncgroup_operator import reasons
from syncgroup_operator.planning.decision import Decision, Seat
from syncgroup_operator.planning.leases import UNSEEN, Life, judge
from syncgroup_operator.planning.observation import Observation, Place, PodView
from syncgroup_operator.planning.sitting import pods_by_slot, spelled
from syncgroup_operator.planning.trainers import TRAINER

MAX_MESSAGE_LENGTH = 1024
MAX_REASON_LENGTH = 128
_PASSING = frozenset({"ContainerCreating", "PodInitializing", "Pending"})
"""Waiting reasons of a pod that is well."""

_IMAGE = "correct image or imagePullSecrets"
_REMEDIES = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": _IMAGE,
    "ErrImageNeverPull": _IMAGE,
    "CreateContainerConfigError": "create the Secret or ConfigMap that is missing, or correct its name",
    reasons.UNSCHEDULABLE: "add nodes, or change nodeSelector, tolerations or resources",
}
"""What to do about what kubelets and schedulers say, which is only what is wrong."""


@dataclass(frozen=True, slots=True)
class Row:
    """One seat and who sits there."""

    seat: Seat
    member: str
    pod: PodView | None
    life: Life
    reachable: bool
    removed: bool
    """It is let go in this pass, or was before."""

    @property
    def ready(self) -> bool:
        """Whether the member serves, as far as can be seen."""
        pod, report = self.pod, self.life.report
        if pod is None or not self.reachable or self.removed or pod.deleting or not pod.ready or self.life.lost:
            return False
        return report is None or report.state != "Poisoned"

    @property
    def report(self) -> MemberReport | None:
        """What it says of itself."""
        return self.life.report

    def trouble(self) -> tuple[int, str, str]:
        """How bad, why in a word, why in a sentence. For a member that does not serve."""
        where = f"{self.member} ({spelled(self.seat.place)})"
        pod, report = self.pod, self.report
        if not self.reachable:
            return 2, reasons.UNREACHABLE, f"{where}: its cluster cannot be reached"
        if pod is None:
            return 4, reasons.POD_PENDING, f"{where}: its pod is not there yet"
        if pod.deleting or self.removed:
            return 4, reasons.REPLACING, f"{where}: its pod is being removed"
        if report is not None and report.state == "Poisoned":
            told = report.trouble.message if report.trouble else "its weights are wrong"
            return 1, reasons.MEMBER_POISONED, f"{where}: {told}"
        if pod.trouble is not None and pod.trouble.reason not in _PASSING:
            container = f", container {pod.trouble.container}" if pod.trouble.container else ""
            told = f"{where}{container}: {pod.trouble.reason}: {pod.trouble.message}".removesuffix(": ")
            if pod.trouble.reason in _REMEDIES:
                told += f"; {_REMEDIES[pod.trouble.reason]} in {_template_of(pod.slot.role)}"
            unschedulable = pod.unschedulable_since_s is not None
            return 1 if unschedulable else 0, camel(pod.trouble.reason, reasons.POD_NOT_READY), told
        if self.life.lost:
            return 2, reasons.LEASE_EXPIRED, f"{where}: nothing was heard of it for {_rounded(self.life.silent_s)}"
        if report is not None and report.trouble is not None:
            return 3, camel(report.trouble.reason, reasons.POD_NOT_READY), f"{where}: {report.trouble.message}"
        word = reasons.POD_PENDING if pod.phase == "Pending" else reasons.POD_NOT_READY
        return 4, word, f"{where}: its pod is {pod.phase} and not ready yet"


@dataclass(frozen=True)
class Census:
    """Every seat of the group."""

    observation: Observation
    decision: Decision
    trainer: Row | None
    rollouts: tuple[Row, ...]
    lives: Mapping[str, Life]

    @cached_property
    def ready(self) -> tuple[Row, ...]:
        """Rollouts that serve."""
        return tuple(row for row in self.rollouts if row.ready)

    @cached_property
    def version(self) -> Version | None:
        """What the trainer published last."""
        report = self.trainer.report if self.trainer is not None else None
        before = self.observation.group.status
        if report is not None and report.version is not None:
            return report.version
        return before.version if before is not None else None

    def lag(self, row: Row) -> int | None:
        """Versions that a member is behind; None where they cannot be compared."""
        newest, report = self.version, row.report
        if newest is None or report is None or report.version is None or report.version.lineage != newest.lineage:
            return None
        return max(newest.seq - report.version.seq, 0)

    def at(self, place: Place) -> list[Row]:
        """The rollouts of one place."""
        return [row for row in self.rollouts if row.seat.place == place]

    @cached_property
    def outdated(self) -> int:
        """Pods of an older template."""
        hashes = self.observation.template_hashes
        rows = (self.trainer, *self.rollouts) if self.trainer else self.rollouts
        pods = (row.pod for row in rows if row.pod is not None and row.reachable)
        return sum(pod.slot.role in hashes and pod.template_hash != hashes[pod.slot.role] for pod in pods)

    @cached_property
    def strays(self) -> int:
        """Pods in a reachable cluster that have no seat there."""
        seated = {row.pod.uid for row in (*self.rollouts, *([self.trainer] if self.trainer else ())) if row.pod}
        clusters = (cluster for cluster in self.observation.clusters.values() if cluster.reachable)
        return sum(pod.uid not in seated for cluster in clusters for pod in cluster.pods)


def _template_of(role: str) -> str:
    return "spec.trainer.template" if role == names.TRAINER_ROLE else f"spec.rollouts[{role}].template"


def take_census(observation: Observation, decision: Decision) -> Census:
    """Who sits where."""
    lives = judge(observation)
    pods = pods_by_slot(observation)
    gone = {removal.pod.uid for removal in decision.removals}
    given_up = {slot.removed_uid for slot in decision.state.slots if slot.removed_uid is not None}
    rows = []
    for seat in decision.seats:
        pod = next((one for one in pods.get(seat.slot, ()) if one.place == seat.place), None)
        cluster = observation.clusters.get(seat.place.cluster)
        rows.append(
            Row(
                seat,
                names.member_name(observation.key, *seat.slot),
                pod,
                lives.get(pod.uid, UNSEEN) if pod is not None else UNSEEN,
                reachable=cluster is not None and cluster.reachable,
                removed=pod is not None and (pod.uid in gone or pod.uid in given_up),
            )
        )
    trainer = next((row for row in rows if row.seat.slot == TRAINER), None)
    return Census(observation, decision, trainer, tuple(row for row in rows if row.seat.slot != TRAINER), lives)


def camel(word: str, otherwise: str) -> str:
    """A reason that came from elsewhere, if it can be one."""
    fits = 0 < len(word) <= MAX_REASON_LENGTH and re.fullmatch(patterns.CAMEL_REASON, word)
    return word if fits else otherwise


def clipped(message: str) -> str:
    """A message that the API server takes."""
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[: MAX_MESSAGE_LENGTH - 1]}…"


def _rounded(silent_s: float) -> str:
    """Coarse, so that a status does not change with every look at the clock."""
    for limit_s, unit_s, unit in ((120.0, 10, "s"), (7200.0, 60, "min")):
        if silent_s < limit_s:
            return f"{int(silent_s // unit_s) * (unit_s if unit == 's' else 1)} {unit}"
    return f"{int(silent_s // 3600)} h"
