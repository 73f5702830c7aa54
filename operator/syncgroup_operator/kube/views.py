"""From bodies of an API server to the values that decisions rest on.

Pure: the moment is an argument, and what must be remembered (since when a pod is seen, when a lease last changed) is
carried over from the view before. Bodies are hostile: what is not as the operator wrote it becomes None, never an
error.

Reports stay text here. A cluster with ten thousand leases would otherwise hold ten thousand models of which a pass
needs a dozen: `LeaseRow` keeps the text, and `lease_view` reads it when a pass asks, through a cache of the latest.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sync_runtime.contract import names, patterns
from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.reports import MAX_REPORT_BYTES, MemberReport
from syncgroup_operator.kube.kinds import BY_NAME
from syncgroup_operator.kube.troubles import trouble_of, unschedulable
from syncgroup_operator.planning.observation import ChildView, LeaseView, NodeView, ObjectKey, Place, PodView, Slot

Body = Mapping[str, Any]
TOPOLOGY_REGION: Final = "topology.kubernetes.io/region"
MAX_LEASE_DURATION_S: Final = 86_400
CACHED_REPORTS: Final = 2048
_PHASES: Final = frozenset({"Pending", "Running", "Succeeded", "Failed", "Unknown"})
_LABEL: Final = re.compile(patterns.DNS_LABEL)
_INDEX: Final = re.compile("^(0|[1-9][0-9]{0,5})$")
_TERM: Final = re.compile("^[0-9]{1,15}$")


@dataclass(frozen=True, slots=True)
class Seated:
    """Whose object it is, by its labels."""

    group_uid: str
    slot: Slot
    place: Place


@dataclass(slots=True)
class LeaseRow:
    """One lease as it is kept."""

    name: str
    namespace: str
    uid: str
    slot: Slot
    place: Place
    holder: str
    renew_time: str
    duration_s: int
    changed_s: float
    report_json: str


def group_uid_of(body: Body) -> str | None:
    """The group that an object belongs to."""
    uid = _labels(body).get(names.LABEL_GROUP_UID)
    return sys.intern(uid) if isinstance(uid, str) and uid else None


def seat_of(body: Body, cluster: str) -> Seated | None:
    """The group, the slot and the place that a member's object is labelled with."""
    labels = _labels(body)
    uid, role, index, region = (
        labels.get(label) for label in (names.LABEL_GROUP_UID, names.LABEL_ROLE, names.LABEL_INDEX, names.LABEL_REGION)
    )
    if not isinstance(uid, str) or not uid or not isinstance(index, str) or not _INDEX.fullmatch(index):
        return None
    if not _is_label(role) or not _is_label(region):
        return None
    return Seated(sys.intern(uid), _slot(role, int(index)), _place(cluster, region))


def pod_view(body: Body, cluster: str, now_s: float, before: PodView | None = None) -> PodView | None:
    """One pod; None where its labels say no seat. `before` is the view of the same pod, if it was seen."""
    seat = seat_of(body, cluster)
    metadata, spec, status = (_mapping(body.get(part)) for part in ("metadata", "spec", "status"))
    name, namespace, uid = (_text(metadata.get(part)) for part in ("name", "namespace", "uid"))
    if seat is None or not name or not uid:
        return None
    if before is not None and before.uid != uid:
        before = None
    annotations = _mapping(metadata.get("annotations"))
    ready = _condition(status, "Ready") == "True"
    waits = not _text(spec.get("nodeName")) and unschedulable(status) is not None
    since_s = before.unschedulable_since_s if before is not None and before.unschedulable_since_s is not None else now_s
    phase = _text(status.get("phase"))
    return PodView(
        name=before.name if before is not None else name,
        namespace=sys.intern(namespace),
        uid=before.uid if before is not None else uid,
        slot=seat.slot,
        place=seat.place,
        phase=sys.intern(phase) if phase in _PHASES else "Unknown",
        ready=ready,
        deleting=bool(metadata.get("deletionTimestamp")),
        seen_s=before.seen_s if before is not None else now_s,
        node=sys.intern(_text(spec.get("nodeName"))) or None,
        ip=_text(status.get("podIP")) or None,
        template_hash=sys.intern(_text(annotations.get(names.ANNOTATION_TEMPLATE_HASH))),
        term=_term(annotations.get(names.ANNOTATION_TERM)),
        trouble=trouble_of(status, ready=ready),
        unschedulable_since_s=since_s if waits else None,
        labels_ours=_labels_ours(metadata, cluster, seat.slot),
        service_account=sys.intern(_text(spec.get("serviceAccountName"))),
    )


def lease_row(body: Body, cluster: str, now_s: float, before: LeaseRow | None = None) -> LeaseRow | None:
    """One lease; None where its labels say no seat. A renewal is a changed `renewTime`, whatever time it says."""
    seat = seat_of(body, cluster)
    metadata, spec = _mapping(body.get("metadata")), _mapping(body.get("spec"))
    name, namespace, uid = (_text(metadata.get(part)) for part in ("name", "namespace", "uid"))
    if seat is None or not name or not uid:
        return None
    renew_time, holder = _text(spec.get("renewTime")), _text(spec.get("holderIdentity"))
    duration = spec.get("leaseDurationSeconds")
    duration_s = duration if type(duration) is int and 0 < duration <= MAX_LEASE_DURATION_S else 0
    report = _mapping(metadata.get("annotations")).get(names.ANNOTATION_REPORT)
    report_json = report if isinstance(report, str) and len(report) <= MAX_REPORT_BYTES else ""
    if isinstance(report, str) and not report_json and report:
        report_json = "too large"  # no report reads so; the text itself is not worth its memory
    if before is None or before.uid != uid:
        place = (name, sys.intern(namespace), uid, seat.slot, seat.place)
        return LeaseRow(*place, holder, renew_time, duration_s, now_s, report_json)
    renewed = (before.renew_time, before.holder) != (renew_time, holder)
    return LeaseRow(
        before.name,
        before.namespace,
        before.uid,
        seat.slot,
        seat.place,
        before.holder if before.holder == holder else holder,  # one copy of what does not change
        renew_time,
        duration_s,
        now_s if renewed else before.changed_s,
        before.report_json if before.report_json == report_json else report_json,
    )


def lease_view(row: LeaseRow) -> LeaseView:
    """What a pass sees of a lease: here the report is read."""
    report, problem = read_report(row.report_json) if row.report_json else (None, None)
    return LeaseView(
        name=row.name,
        namespace=row.namespace,
        slot=row.slot,
        place=row.place,
        holder=row.holder,
        renew_time=row.renew_time,
        duration_s=row.duration_s,
        changed_s=row.changed_s,
        report=report,
        problem=problem,
        uid=row.uid,
    )


@functools.lru_cache(maxsize=CACHED_REPORTS)
def read_report(text: str) -> tuple[MemberReport | None, str | None]:
    """A report, or why it cannot be read. An unchanged text is the same model."""
    try:
        return MemberReport.from_json(text), None
    except ContractError as error:
        return None, str(error)[:256]


def node_view(body: Body) -> NodeView | None:
    """One node; None for a body that is none."""
    name = _text(_mapping(body.get("metadata")).get("name"))
    if not name:
        return None
    region = _labels(body).get(TOPOLOGY_REGION)
    ready = _condition(_mapping(body.get("status")), "Ready") == "True"
    return NodeView(sys.intern(name), ready, sys.intern(region) if isinstance(region, str) and region else None)


def child_view(body: Body) -> ChildView | None:
    """Any other object: its body as compact JSON, without managed fields."""
    metadata, key = body.get("metadata"), child_key(body)
    if key is None or not isinstance(metadata, dict):
        return None
    metadata.pop("managedFields", None)
    return ChildView(
        key=key,
        uid=_text(metadata.get("uid")),
        resource_version=_text(metadata.get("resourceVersion")),
        body=json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"),
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def child_key(body: Body) -> ObjectKey | None:
    """Which object a body is; None for a kind that is not ours."""
    kind, metadata = BY_NAME.get(_text(body.get("kind"))), _mapping(body.get("metadata"))
    if kind is None:
        return None
    name, namespace = _text(metadata.get("name")), _text(metadata.get("namespace"))
    return ObjectKey(kind.kind, sys.intern(namespace), name) if name else None


def _labels_ours(metadata: Body, cluster: str, slot: Slot) -> bool:
    """Whether the labels are as we wrote them: the name is a hash of most of them, and the server knows who wrote."""
    labels = _mapping(metadata.get("labels"))
    group = GroupKey(_text(labels.get(names.LABEL_GROUP_NAMESPACE)), _text(labels.get(names.LABEL_GROUP)))
    if metadata.get("name") != names.member_name(group, *slot) or labels.get(names.LABEL_CLUSTER) != cluster:
        return False
    entries = metadata.get("managedFields")
    if not isinstance(entries, list):
        return True
    owned: dict[str, set[str]] = {"f:labels": set(), "f:annotations": set()}
    for entry in entries:
        if isinstance(entry, dict) and entry.get("manager") == names.FIELD_MANAGER:
            fields = _mapping(_mapping(entry.get("fieldsV1")).get("f:metadata"))
            for part, found in owned.items():
                found.update(_mapping(fields.get(part)))
    prefix = f"{names.API_GROUP}/"
    return all(
        f"f:{key}" in owned[f"f:{part}"]
        for part in ("labels", "annotations")
        for key in _mapping(metadata.get(part))
        if isinstance(key, str) and key.startswith(prefix)
    )


@functools.lru_cache(maxsize=16_384)
def _slot(role: str, index: int) -> Slot:
    return Slot(role, index)


@functools.lru_cache(maxsize=1024)
def _place(cluster: str, region: str) -> Place:
    return Place(cluster, region)


def _is_label(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 63 and _LABEL.fullmatch(value) is not None


def _term(value: object) -> int | None:
    return int(value) if isinstance(value, str) and _TERM.fullmatch(value) else None


def _condition(status: Body, kind: str) -> object:
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == kind:
            return condition.get("status")
    return None


def _labels(body: Body) -> Body:
    return _mapping(_mapping(body.get("metadata")).get("labels"))


def _mapping(value: object) -> Body:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
