"""What is seen of a group at one moment, read out of API objects, control APIs and the lines that programs write. Pure.

Documents come in as JSON has them and may be empty or late: what is not there yet is absent here, never an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sync_runtime.contract import names

Document = Mapping[str, Any]
_NOTHING: Document = {}
_DELTA = re.compile(r"^[^/]+/(\d+)-(\d+)\.(\w+)$")


@dataclass(frozen=True)
class Member:
    """One member by its lease's report and its pod."""

    name: str
    role: str
    region: str
    uid: str
    state: str
    seq: int | None = None
    sync_millis: int | None = None
    pause_millis: int | None = None
    tokens_per_second: int | None = None
    scrub: str | None = None

    @property
    def is_trainer(self) -> bool:
        """Whether it publishes."""
        return self.role == "Trainer"


@dataclass(frozen=True)
class Link:
    """A link out of the trainer's region, as its sender last measured it."""

    to_region: str
    streams: int
    bucket_bytes: int
    codec: str
    payloads: int = 0
    rate_bits_per_second: int | None = None
    capacity_bits_per_second: int | None = None
    rtt_micros: int | None = None
    loss_ppm: int | None = None
    message: str = ""


@dataclass(frozen=True)
class PlannedLink:
    """The same link as the operator's plan has it."""

    revision: int
    codec: str
    streams: int
    bucket_bytes: int
    message: str = ""


@dataclass(frozen=True)
class Step:
    """One step of training, as the trainer's program told it."""

    step: int
    reward: float
    lag: float
    tokens: int
    seconds: float
    workers: int


@dataclass(frozen=True)
class Delta:
    """An object in the trainer's spool that turns one version into a later one."""

    base: int
    target: int
    codec: str
    size_bytes: int

    @property
    def merged(self) -> bool:
        """Whether it spans several versions."""
        return self.target - self.base > 1


@dataclass(frozen=True)
class Replacement:
    """A member that was replaced, and why."""

    member: str
    reason: str
    message: str


@dataclass(frozen=True)
class Ended:
    """The trainer's last words: what its weights are."""

    seq: int
    digest: str
    wire_sum: str


@dataclass(frozen=True)
class Scene:
    """Everything that is seen at one moment."""

    at_s: float = 0.0
    ready: bool = False
    ready_message: str = ""
    seq: int | None = None
    plan_revision: int = 0
    replacements_total: int = 0
    replacements: tuple[Replacement, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    links: tuple[Link, ...] = ()
    plans: Mapping[str, PlannedLink] = field(default_factory=dict)
    """By the region that the link leads to."""
    steps: tuple[Step, ...] = ()
    deltas: tuple[Delta, ...] = ()
    sent_bytes: int = 0
    """That left the trainer's sidecar, over all its links."""
    ended: Ended | None = None
    sums: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """What members that rest say their weights are: version and sum."""

    def member(self, region: str) -> Member | None:
        """The rollout in a region; each has one at most."""
        return next((one for one in self.rollouts if one.region == region), None)

    def link(self, region: str) -> Link | None:
        """The link into a region."""
        return next((one for one in self.links if one.to_region == region), None)

    @property
    def rollouts(self) -> tuple[Member, ...]:
        """Members that receive."""
        return tuple(one for one in self.members if not one.is_trainer)

    def lag(self, member: Member) -> int | None:
        """Versions that a member is behind."""
        return None if self.seq is None or member.seq is None else max(self.seq - member.seq, 0)


# --- reading ----------------------------------------------------------------------------------------------------------


def group_facts(group: Document) -> dict[str, Any]:
    """The fields of a Scene that the group's status has."""
    status = group.get("status") or {}
    conditions: list[Document] = status.get("conditions") or []
    ready = next((one for one in conditions if one.get("type") == "Ready"), _NOTHING)
    replacements = tuple(
        Replacement(one["member"], one["reason"], one.get("message") or "") for one in status.get("replacements") or []
    )
    return {
        "ready": ready.get("status") == "True",
        "ready_message": ready.get("message", ""),
        "seq": (status.get("version") or {}).get("seq"),
        "plan_revision": status.get("planRevision") or 0,
        "replacements_total": status.get("replacementsTotal") or 0,
        "replacements": replacements,
        "lost": {one["name"]: one.get("message") or one["reason"] for one in status.get("lostClusters") or []},
    }


def report_of(lease: Document) -> Document:
    """The report in a member's lease; empty where there is none yet."""
    text = (lease.get("metadata", {}).get("annotations") or {}).get(names.ANNOTATION_REPORT)
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def member_of(lease: Document) -> Member | None:
    """A member, by its lease; None before its first report."""
    report = report_of(lease)
    if not report:
        return None
    return Member(
        name=report["member"], role=report["role"], region=report["region"],
        uid=(lease.get("spec") or {}).get("holderIdentity") or "", state=report["state"],
        seq=(report.get("version") or {}).get("seq"), sync_millis=report.get("syncMillis"),
        pause_millis=report.get("pauseMillis"), tokens_per_second=report.get("tokensPerSecond"),
        scrub=report.get("scrub"),
    )  # fmt: skip


def links_of(leases: Iterable[Document]) -> tuple[Link, ...]:
    """The trainer's links, by region; of several into one region that with most payloads."""
    found: dict[str, Link] = {}
    for lease in leases:
        report = report_of(lease)
        for one in (report.get("links") or []) if report.get("role") == "Trainer" else []:
            link = Link(
                to_region=one["toRegion"], streams=one["streams"], bucket_bytes=one["bucketBytes"],
                codec=one["codec"], payloads=one["payloads"], rate_bits_per_second=one.get("rateBitsPerSecond"),
                capacity_bits_per_second=one.get("capacityBitsPerSecond"), rtt_micros=one.get("minRttMicros"),
                loss_ppm=one.get("lossPpm"), message=one.get("message") or "",
            )  # fmt: skip
            if link.to_region not in found or found[link.to_region].payloads <= link.payloads:
                found[link.to_region] = link
    return tuple(found[region] for region in sorted(found))


def planned_link(config_map: Document, from_region: str) -> PlannedLink | None:
    """The link from a region as the plan in a ConfigMap has it."""
    text = (config_map.get("data") or {}).get(names.PLAN_KEY)
    plan = json.loads(text) if text else {}
    for one in plan.get("links") or []:
        if one["fromRegion"] == from_region:
            return PlannedLink(
                plan["revision"], one["codec"], one["streams"]["seed"], one["bucketBytes"]["seed"],
                one.get("message") or "",
            )  # fmt: skip
    return None


def deltas_of(versions: Document) -> tuple[Delta, ...]:
    """The deltas among the objects that a sidecar's control API tells of."""
    found = []
    for one in versions.get("objects") or []:
        match = _DELTA.match(one["key"])
        if match is not None:
            found.append(Delta(int(match[1]), int(match[2]), match[3], one["bytes"]))
    return tuple(sorted(found, key=lambda one: (one.target, one.base, one.codec)))


class Sent:
    """Bytes that left a sidecar, over all connections: a peer that dials again is counted from 0 by the sidecar."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._last: dict[str, int] = {}

    def take(self, links: Document) -> None:
        """What the control API tells now."""
        now = {str(one["peer"]): int(one["sentBytes"]) for one in links.get("links") or []}
        for peer, sent in now.items():
            before = self._last.get(peer, 0)
            self.total_bytes += sent - before if sent >= before else sent
        self._last |= now


def lines_of(log: str) -> list[Document]:
    """The lines of JSON in a log; a line that is being written is left out."""
    found = []
    for line in log.splitlines():
        if line.startswith("{") and line.endswith("}"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def steps_of(lines: Sequence[Document]) -> tuple[Step, ...]:
    """The steps among a trainer's lines."""
    return tuple(
        Step(one["step"], one["reward"], one["lag"], one["tokens"], one["seconds"], one["workers"])
        for one in lines
        if "reward" in one
    )


def figures_text(log: str) -> str:
    """The lines of a trainer's log that tell of a step, for `examples.grpo.plots`."""
    return "".join(f"{json.dumps(one)}\n" for one in lines_of(log) if "reward" in one)


def ended_of(lines: Sequence[Document]) -> Ended | None:
    """The trainer's last words, once it has said them."""
    last = next((one for one in lines if one.get("done")), None)
    return None if last is None else Ended(last["seq"], last["digest"], last["wire_sum"])


def sum_of(lines: Sequence[Document]) -> tuple[int, str] | None:
    """Version and sum that a worker told last."""
    last = next((one for one in reversed(lines) if "sum" in one and "seq" in one), None)
    return None if last is None else (last["seq"], last["sum"])
