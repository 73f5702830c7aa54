"""What a lease says, as the JSON of a Kubernetes Lease; the file lease holds the same.

Pure: the time is an argument. Observers never compare `renewTime` with their own clock, they only see whether it
changed, so that a member's wrong clock costs nothing.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.names import ANNOTATION_REPORT
from sync_runtime.contract.reports import MAX_REPORT_BYTES, MemberReport
from sync_runtime.membership.errors import MembershipError

API_VERSION: Final = "coordination.k8s.io/v1"
KIND: Final = "Lease"
MAX_LEASE_BYTES: Final = 2 * MAX_REPORT_BYTES + 65536
"""A report inside JSON inside JSON grows, but never twofold, and the rest is small."""


@dataclass(frozen=True)
class LeaseName:
    """Which lease, and whose."""

    name: str
    holder: str
    """The member's incarnation: a pod's uid, or what tells one start of a process from the next."""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, Any] | None = None
    """The owner reference of the member's pod: the lease goes with it."""


@dataclass(frozen=True)
class LeaseTimes:
    """How long a lease lasts without renewal, and how often it is renewed."""

    duration_s: int
    interval_s: int


@dataclass(frozen=True)
class SeenLease:
    """A lease as an observer reads it."""

    holder: str
    renew_time: str
    duration_s: int
    transitions: int
    report: MemberReport


def pod_owner(pod_name: str, pod_uid: str) -> dict[str, Any]:
    """The owner reference of a pod."""
    return {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid}


def new_lease(
    name: LeaseName, report: MemberReport, duration_s: int, now: datetime.datetime, transitions: int = 0
) -> dict[str, Any]:
    """The whole document, for a lease that this holder has not renewed before."""
    renewal = renewal_of(report, duration_s, now)
    metadata = {
        "name": name.name,
        "labels": dict(name.labels),
        "annotations": renewal["metadata"]["annotations"],
    }
    if name.namespace:
        metadata["namespace"] = name.namespace
    if name.owner is not None:
        metadata["ownerReferences"] = [dict(name.owner)]
    spec = {
        **renewal["spec"],
        "holderIdentity": name.holder,
        "acquireTime": micro_time(now),
        "leaseTransitions": transitions,
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def renewal_of(report: MemberReport, duration_s: int, now: datetime.datetime) -> dict[str, Any]:
    """What every renewal changes, as a merge patch."""
    try:
        text = report.to_json()
    except ContractError as error:
        raise MembershipError(f"the report does not fit into a lease: {error}") from error
    return {
        "metadata": {"annotations": {ANNOTATION_REPORT: text}},
        "spec": {"renewTime": micro_time(now), "leaseDurationSeconds": duration_s},
    }


def read_lease(data: bytes | str) -> SeenLease:
    """A lease that a member wrote; the bytes are hostile. Raises MembershipError."""
    if len(data) > MAX_LEASE_BYTES:
        raise MembershipError(f"a lease has at most {MAX_LEASE_BYTES} bytes, not {len(data)}")
    try:
        document = json.loads(data)
        spec, annotations = document["spec"], document["metadata"]["annotations"]
        holder, renew_time = spec["holderIdentity"], spec["renewTime"]
        numbers = (spec["leaseDurationSeconds"], spec.get("leaseTransitions", 0))
        report = MemberReport.from_json(annotations[ANNOTATION_REPORT])
    except ContractError as error:
        raise MembershipError(f"the report in a lease cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MembershipError("the lease is malformed") from error
    if not isinstance(holder, str) or not isinstance(renew_time, str) or any(type(one) is not int for one in numbers):
        raise MembershipError("the lease is malformed")
    return SeenLease(holder, renew_time, *numbers, report)


def transitions_after(found: Mapping[str, Any], holder: str) -> int:
    """How often the lease has changed hands once `holder` takes it over from what was `found`."""
    spec = found.get("spec") or {}
    before = spec.get("leaseTransitions") or 0
    return int(before) + (spec.get("holderIdentity") != holder)


def micro_time(moment: datetime.datetime) -> str:
    """Kubernetes' MicroTime: always six digits, always UTC."""
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
