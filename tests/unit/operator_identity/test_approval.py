"""Which certificate requests are signed: those of our own living pods, for what these pods are. Nothing else is."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.identity.certificates import check_issued, read_member, read_pem
from sync_runtime.identity.keys import make_key
from sync_runtime.identity.names import MemberIdentity
from syncgroup_operator.identity import approval
from syncgroup_operator.identity.approval import Approve, Deny, Ignore, Verdict, Wait
from syncgroup_operator.identity.authority import AuthorityPolicy
from syncgroup_operator.planning.observation import PodView, Slot
from tests.support.identities import elliptic_request
from tests.unit.operator_identity.bodies import AUTHORITY, IDENTITY, KEY, NOW, POD, POLICY, UID, body, changed, encoded

EXTRA = "authentication.kubernetes.io"


def judged(document: object, *pods: PodView, policy: AuthorityPolicy = POLICY) -> Verdict:
    found = pods or (POD,)
    return approval.judge(document, key=KEY, uid=UID, pods=found, authority=AUTHORITY, now=NOW, policy=policy)


def test_a_pods_own_request_is_signed_for_what_the_pod_is() -> None:
    verdict = judged(body())
    assert isinstance(verdict, Approve)
    assert (verdict.member, verdict.is_approved) == (IDENTITY, False)
    (leaf,) = read_pem(verdict.certificate_pem, "the certificate")
    check_issued(leaf, [AUTHORITY.signing.certificate])
    certificate = read_member(leaf)
    assert certificate.identity == IDENTITY
    assert certificate.not_after == NOW + POLICY.member_lifetime


def test_the_trainers_pod_is_a_trainer() -> None:
    trainer = dataclasses.replace(POD, slot=Slot("trainer", 0))
    assert approval.expected_identity(KEY, UID, trainer).role == "trainer"


def test_nobody_gets_more_time_than_the_policy_gives_and_less_if_he_asks_for_less() -> None:
    for asked_s, given_s in ((600, 600), (7200, 3600), (None, 3600)):
        document = changed(body(), "spec/expirationSeconds", asked_s)
        verdict = judged(document, policy=AuthorityPolicy(member_lifetime=datetime.timedelta(hours=1)))
        assert isinstance(verdict, Approve)
        (leaf,) = read_pem(verdict.certificate_pem, "the certificate")
        assert leaf.not_valid_after_utc == NOW + datetime.timedelta(seconds=given_s)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("spec/username", "system:serviceaccount:other:runner", "WrongPod"),
        ("spec/username", "system:serviceaccount:remote-a:thief", "WrongAccount"),
        ("spec/username", "system:serviceaccount:remote-a", "NotAPod"),
        ("spec/username", "system:serviceaccount::runner", "NotAPod"),
        ("spec/username", "alice", "NotAPod"),
        ("spec/username", ["system:serviceaccount:remote-a:runner"], "NotAPod"),
        ("spec/username", None, "NotAPod"),
        ("spec/extra", None, "NotAPod"),
        ("spec/extra", {f"{EXTRA}/pod-name": [POD.name]}, "NotAPod"),
        ("spec/extra", {f"{EXTRA}/pod-name": [POD.name], f"{EXTRA}/pod-uid": []}, "NotAPod"),
        ("spec/extra", {f"{EXTRA}/pod-name": [POD.name], f"{EXTRA}/pod-uid": ["other", POD.uid]}, "NotAPod"),
        ("spec/extra", {f"{EXTRA}/pod-name": POD.name, f"{EXTRA}/pod-uid": POD.uid}, "NotAPod"),
        ("spec/extra", {f"{EXTRA}/pod-name": ["another"], f"{EXTRA}/pod-uid": [POD.uid]}, "WrongPod"),
        ("spec/extra", ["x"], "NotAPod"),
        ("spec/usages", ["client auth"], "WrongUsages"),
        ("spec/usages", ["digital signature", "client auth", "server auth", "cert sign"], "WrongUsages"),
        ("spec/usages", "client auth", "WrongUsages"),
        ("spec/usages", [{"a": 1}], "WrongUsages"),
        ("spec/usages", None, "WrongUsages"),
        ("spec/expirationSeconds", 1, "BadLifetime"),
        ("spec/expirationSeconds", -(10**30), "BadLifetime"),
        ("spec/expirationSeconds", "86400", "BadLifetime"),
        ("spec/expirationSeconds", True, "BadLifetime"),
        ("spec/request", None, "BadRequest"),
        ("spec/request", "***", "BadRequest"),
        ("spec/request", 7, "BadRequest"),
        ("spec/request", encoded(b"no request"), "BadRequest"),
        ("spec/request", "A" * 100_000, "BadRequest"),
        ("spec/request", encoded(elliptic_request(IDENTITY)), "BadRequest"),
    ],
)
def test_a_request_that_cannot_become_good_is_denied_with_a_reason(path: str, value: object, reason: str) -> None:
    verdict = judged(changed(body(), path, value))
    assert isinstance(verdict, Deny), verdict
    assert (verdict.reason, verdict.as_failed) == (reason, False)
    assert verdict.message


@pytest.mark.parametrize(
    "identity",
    [
        dataclasses.replace(IDENTITY, role="trainer"),
        dataclasses.replace(IDENTITY, member="demo-workers-1-aaaaaaaa"),
        dataclasses.replace(IDENTITY, region="us-east"),
    ],
    ids=["another role", "another member", "another region"],
)
def test_a_pod_gets_no_identity_but_its_own(identity: MemberIdentity) -> None:
    verdict = judged(body(identity))
    assert isinstance(verdict, Deny)
    assert verdict.reason == "WrongIdentity"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"deleting": True}, "PodEnds"),
        ({"phase": "Failed"}, "PodEnds"),
        ({"phase": "Succeeded"}, "PodEnds"),
        ({"labels_ours": False}, "PodChanged"),
        ({"slot": Slot("workers", 1)}, "PodChanged"),
        ({"slot": Slot("trainer", 0)}, "PodChanged"),
        ({"namespace": "other"}, "WrongPod"),
        ({"name": "other"}, "WrongPod"),
        ({"service_account": "other"}, "WrongAccount"),
    ],
)
def test_a_pod_that_is_not_what_we_made_gets_nothing(change: dict[str, Any], reason: str) -> None:
    verdict = judged(body(), dataclasses.replace(POD, **change))
    assert isinstance(verdict, Deny)
    assert verdict.reason == reason


def test_a_successor_of_the_pod_is_another_pod() -> None:
    successor = dataclasses.replace(POD, uid="another")
    verdict = judged(body(age_s=300), successor)
    assert isinstance(verdict, Deny)
    assert verdict.reason == "UnknownPod"


def test_a_pod_that_we_have_not_seen_yet_is_waited_for_a_while() -> None:
    other = dataclasses.replace(POD, uid="another")
    assert isinstance(judged(body(age_s=5), other), Wait)
    assert isinstance(judged(body(age_s=-5), other), Wait)
    assert isinstance(judged(body(age_s=300), other), Deny)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"conditions": [{"type": "Denied"}]}, Ignore),
        ({"conditions": [{"type": "Approved"}, {"type": "Failed"}]}, Ignore),
        ({"conditions": [{"type": "Approved"}], "certificate": "x"}, Ignore),
        ({"conditions": [{"type": {}}, 7, None]}, Approve),
        ({"conditions": "Approved"}, Approve),
        ("no object", Approve),
    ],
)
def test_what_is_decided_stays_as_it_is(status: object, expected: type[Verdict]) -> None:
    assert isinstance(judged(changed(body(), "status", status)), expected)


def test_an_operator_that_died_between_approval_and_signature_goes_on() -> None:
    approved = changed(body(), "status", {"conditions": [{"type": "Approved"}]})
    verdict = judged(approved)
    assert isinstance(verdict, Approve)
    assert verdict.is_approved
    assert approval.conditions_after(approved, verdict, NOW) == [{"type": "Approved"}]


def test_a_bad_request_that_somebody_approved_fails_instead() -> None:
    approved = changed(body(), "status", {"conditions": [{"type": "Approved"}]})
    verdict = judged(changed(approved, "spec/usages", ["client auth"]))
    assert isinstance(verdict, Deny)
    assert verdict.as_failed
    assert [one["type"] for one in approval.conditions_after(approved, verdict, NOW)] == ["Approved", "Failed"]


def test_requests_of_other_signers_and_groups_are_left_alone() -> None:
    foreign = changed(body(), "spec/signerName", "kubernetes.io/kube-apiserver-client")
    assert isinstance(judged(foreign), Ignore)
    assert approval.asked_group(foreign) is None
    other = body(dataclasses.replace(IDENTITY, group_uid="99999999-0a53-4d7c-9a3b-6a0f5f8a1c11"))
    assert isinstance(judged(other), Ignore)
    assert isinstance(approval.judge_nobodys(other), Ignore)
    assert approval.asked_group(body()) == UID


def test_what_names_no_group_is_denied_by_whoever_sees_it() -> None:
    broken = changed(body(), "spec/request", encoded(b"x"))
    assert approval.asked_group(broken) is None
    assert isinstance(approval.judge_nobodys(broken), Deny)


def test_a_request_is_not_signed_by_a_ca_that_has_ended() -> None:
    later = NOW + datetime.timedelta(days=400)
    verdict = approval.judge(body(), key=KEY, uid=UID, pods=[POD], authority=AUTHORITY, now=later, policy=POLICY)
    assert isinstance(verdict, Deny)
    assert verdict.reason == "Expired"


def test_a_request_with_more_than_a_name_gets_nothing() -> None:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "admin")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(make_key(), None)
    assert isinstance(judged(body(pem=request.public_bytes(serialization.Encoding.PEM))), Deny)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PATHS = [
    "metadata", "spec", "status", "metadata/labels", "metadata/name", "metadata/creationTimestamp", "spec/request",
    "spec/signerName", "spec/usages", "spec/username", "spec/extra", "spec/expirationSeconds", "status/conditions",
    "status/certificate",
]  # fmt: skip
GOOD = body()


@given(path=st.sampled_from(PATHS), value=anything)
def test_no_body_makes_the_judge_stumble(path: str, value: object) -> None:
    document = changed(GOOD, path, value)
    judged(document)
    approval.judge_nobodys(document)
    approval.to_delete([document], uid=UID, pod_uids=[POD.uid], now=NOW)


@given(value=anything)
def test_what_is_no_body_at_all_is_left_alone(value: object) -> None:
    assert isinstance(judged(value), Ignore)


def test_old_requests_are_cleared_away() -> None:
    done = {"conditions": [{"type": "Approved"}], "certificate": base64.b64encode(b"x").decode()}
    young, pending, orphan = body(age_s=60), body(age_s=3600), body(age_s=3600)
    old = changed(body(age_s=3600), "status", done)
    foreign = changed(old, "spec/signerName", "kubernetes.io/kubelet-serving")
    other = body(dataclasses.replace(IDENTITY, group_uid="99999999-0a53-4d7c-9a3b-6a0f5f8a1c11"), age_s=3600)

    def cleared(document: dict[str, Any], *pod_uids: str) -> bool:
        return approval.to_delete([document], uid=UID, pod_uids=pod_uids, now=NOW) == [("demo-csr-1", "csr-uid")]

    assert cleared(old, POD.uid)
    assert cleared(orphan)
    assert not cleared(pending, POD.uid)
    assert not cleared(young)
    assert not cleared(changed(young, "status", done), POD.uid)
    assert not cleared(foreign)
    assert not cleared(other)
