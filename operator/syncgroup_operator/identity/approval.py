"""Whether a certificate request is signed: only for the very pod that it was sent from, and only as what that pod is.

Pure but for the signature itself. What counts is the API server's stamp (service account, pod name and uid), compared
with a pod that we created and that lives; the request's own words must agree with that pod's seat and place. A request
that may become good by itself (a pod that we have not seen yet) is waited with; one that cannot is denied with a reason
that the member shows its user.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sync_runtime.contract.names import TRAINER_ROLE, GroupKey, member_name
from sync_runtime.identity.ca import sign_request
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.names import MemberIdentity
from syncgroup_operator.identity.authority import AuthorityPolicy, GroupAuthority
from syncgroup_operator.identity.requests import Request, is_ours, parse
from syncgroup_operator.planning.observation import PodView

USAGES: Final = frozenset({"digital signature", "client auth", "server auth"})
LEAST_LIFETIME_S: Final = 600
"""The API server's own limit."""
PATIENCE_S: Final = 60.0
"""A pod that we created may reach us after its request does."""
KEEP_S: Final = 600.0
"""How long a decided request stays readable for its member and for whoever looks into a trouble."""
APPROVED_REASON: Final = "PodVerified"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Approve:
    """To be approved, where it is not yet, and given this certificate."""

    certificate_pem: bytes
    member: MemberIdentity
    is_approved: bool
    """Approved already: an operator died between the two writes, or somebody else approved it."""


@dataclass(frozen=True, slots=True)
class Deny:
    """To be refused for good."""

    reason: str
    message: str
    as_failed: bool = False
    """Somebody approved it, so that it can no longer be denied: condition Failed says no."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Cannot be judged yet; look again soon."""

    message: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """None of our business, or done."""

    why: str


Verdict = Approve | Deny | Wait | Ignore


def expected_identity(key: GroupKey, uid: str, pod: PodView) -> MemberIdentity:
    """Who a pod of a group is."""
    role, index = pod.slot
    kind = "trainer" if role == TRAINER_ROLE else "rollout"
    return MemberIdentity(uid, kind, pod.place.region, member_name(key, role, index))  # type: ignore[arg-type]


def asked_group(body: object) -> str | None:
    """The uid of the group that a request names; None: not ours, or it cannot be read (then `judge_nobodys` denies)."""
    if not is_ours(body):
        return None
    identity = parse(body).identity
    return None if identity is None else identity.group_uid


def judge_nobodys(body: object) -> Verdict:
    """A request that names no group we know. Another hub may know it: only what nobody can sign is denied."""
    _, verdict = _first_look(body)
    return verdict or Ignore("of a group that this operator does not know")


def judge(
    body: object,
    *,
    key: GroupKey,
    uid: str,
    pods: Iterable[PodView],
    authority: GroupAuthority,
    now: datetime.datetime,
    policy: AuthorityPolicy,
) -> Verdict:
    """What becomes of a request that names this group. `pods`: the group's, in the cluster that the request is in."""
    request, verdict = _first_look(body)
    if verdict is not None:
        return verdict
    if request.identity is None or request.identity.group_uid != uid:
        return Ignore("of another group")
    problem = _problem(request)
    if problem is not None:
        return _no(request, *problem)
    pod = next((one for one in pods if one.uid == request.pod_uid), None)
    if pod is None:
        if _age_s(request, now) < PATIENCE_S:
            return Wait(f"no pod with the uid {request.pod_uid:.64} of this group is known yet")
        return _no(request, "UnknownPod", f"the pod {request.pod_name:.64} that asks is none of this group")
    problem = _mismatch(request, pod, key, uid)
    if problem is not None:
        return _no(request, *problem)
    return _signed(request, expected_identity(key, uid, pod), authority, now, policy)


def _first_look(body: object) -> tuple[Request, Verdict | None]:
    """What a request says, and the verdict where it needs neither group nor pod."""
    request = parse(body)
    if not is_ours(body):
        return request, Ignore("another signer's")
    if request.decided in ("Denied", "Failed") or request.has_certificate:
        return request, Ignore("decided already")
    return request, _no(request, "BadRequest", request.problem) if request.identity is None else None


def _problem(request: Request) -> tuple[str, str] | None:
    """What is wrong with a request whoever sent it."""
    if request.usages is None or frozenset(request.usages) != USAGES:
        return "WrongUsages", f"the usages must be exactly {', '.join(sorted(USAGES))}"
    if request.lifetime_is_odd or (request.lifetime_s is not None and request.lifetime_s < LEAST_LIFETIME_S):
        return "BadLifetime", f"expirationSeconds must be a number from {LEAST_LIFETIME_S} on"
    if request.account is None:
        return "NotAPod", "only a pod gets a certificate: this was not sent by a service account"
    if not request.pod_uid or not request.pod_name:
        return "NotAPod", "only a pod gets a certificate: the token that this was sent with is bound to none"
    return None


def _mismatch(request: Request, pod: PodView, key: GroupKey, uid: str) -> tuple[str, str] | None:
    """What does not fit between a request and the pod that sent it."""
    account = request.account
    if request.pod_name != pod.name or account is None or account.namespace != pod.namespace:
        return "WrongPod", f"the pod {request.pod_name:.64} that asks is not {pod.namespace}/{pod.name}"
    if pod.service_account and account.name != pod.service_account:
        return "WrongAccount", f"the pod {pod.name} runs as {pod.service_account}, not as {account.name:.64}"
    if pod.deleting or pod.phase in ("Succeeded", "Failed"):
        return "PodEnds", f"the pod {pod.name} has ended or is being deleted"
    if not pod.labels_ours:
        return "PodChanged", f"somebody changed the labels of the pod {pod.name} by which we know its seat"
    try:
        expected = expected_identity(key, uid, pod)
    except IdentityError as error:
        return "PodChanged", f"the pod {pod.name} is no member: {error}"
    if pod.name != expected.member:
        return "PodChanged", f"the pod {pod.name} is not named as its seat, {expected.member}"
    if request.identity != expected:
        return "WrongIdentity", f"it asks for {request.identity}, but the pod {pod.name} is {expected}"
    return None


def _signed(
    request: Request,
    expected: MemberIdentity,
    authority: GroupAuthority,
    now: datetime.datetime,
    policy: AuthorityPolicy,
) -> Verdict:
    lifetime = policy.member_lifetime
    if request.lifetime_s is not None and request.lifetime_s < lifetime.total_seconds():
        lifetime = datetime.timedelta(seconds=request.lifetime_s)
    try:
        certificate = sign_request(authority.signing, request.pem, expected, now=now, lifetime=lifetime)
    except IdentityError as error:
        return _no(request, error.reason, str(error))
    return Approve(certificate, expected, request.decided == "Approved")


def _no(request: Request, reason: str, message: str) -> Deny:
    return Deny(reason, message, as_failed=request.decided == "Approved")


def conditions_after(body: Mapping[str, Any], verdict: Approve | Deny, now: datetime.datetime) -> list[dict[str, Any]]:
    """All conditions of a request once a verdict is written: to `approval`, or to `status` where `as_failed`."""
    before = [dict(one) for one in (body.get("status") or {}).get("conditions") or []]
    if isinstance(verdict, Approve):
        kind, reason, message = "Approved", APPROVED_REASON, f"sent by the pod of {verdict.member}"
        if verdict.is_approved:
            return before
    else:
        kind, reason, message = "Failed" if verdict.as_failed else "Denied", verdict.reason, verdict.message
    moment = now.astimezone(datetime.UTC).strftime(_TIME)
    return [
        *before,
        {"type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": moment},
    ]


def to_delete(
    bodies: Iterable[Mapping[str, Any]], *, uid: str, pod_uids: Collection[str], now: datetime.datetime
) -> list[tuple[str, str]]:
    """Requests of this group that are of no use any more, as (name, uid).

    `pod_uids`: the group's pods in that cluster. Those that are decided have been read long since; those of pods that
    are gone will never be.
    """
    found = []
    for body in bodies:
        if not is_ours(body):
            continue
        request = parse(body)
        named = request.label_group_uid if request.identity is None else request.identity.group_uid
        if named != uid or not request.name or not request.uid or _age_s(request, now) < KEEP_S:
            continue
        is_decided = request.decided in ("Denied", "Failed") or request.has_certificate
        if is_decided or request.pod_uid not in pod_uids:
            found.append((request.name, request.uid))
    return found


def _age_s(request: Request, now: datetime.datetime) -> float:
    """By the cluster's clock against ours; one from the future is new."""
    return 0.0 if request.created is None else max(0.0, (now - request.created).total_seconds())
