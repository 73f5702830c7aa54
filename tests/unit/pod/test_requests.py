"""What a member asks for, which answers it accepts, and when it asks again."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest

from sync_runtime.contract.names import GroupKey, certificate_request_name
from sync_runtime.identity.ca import make_ca, make_request, read_request, sign_request
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.keys import key_pem, make_key
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.pod import requests
from sync_runtime.pod.errors import NoCertificateError

NOW = datetime.datetime(2027, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
UID = "2b1f9c5e-0a53-4d7c-9a3b-6a0f5f8a1c11"
HOUR = datetime.timedelta(hours=1)
ME = MemberIdentity(UID, "rollout", "eu-west", "worker-0")
OTHER = MemberIdentity(UID, "trainer", "eu-west", "trainer-0")
CA = make_ca(UID, now=NOW, lifetime=100 * HOUR)
NEXT_CA = make_ca(UID, now=NOW, lifetime=100 * HOUR)
KEY = make_key()


def certificate(identity: MemberIdentity = ME, ca: Any = CA, key: Any = KEY, hours: int = 24) -> bytes:
    return sign_request(ca, make_request(identity, key), identity, now=NOW, lifetime=hours * HOUR)


def judged(pem: bytes | None, bundle: bytes = CA.certificate_pem, now: datetime.datetime = NOW) -> requests.Held:
    return requests.judge(bundle, pem, key_pem(KEY), ME, now)


def test_a_request_asks_for_exactly_what_a_member_needs() -> None:
    document = requests.request_document("name", {"a": "b"}, make_request(ME, KEY))
    assert document["metadata"] == {"name": "name", "labels": {"a": "b"}}
    assert document["spec"]["signerName"] == "syncgroup.dev/member"
    assert document["spec"]["usages"] == ["digital signature", "client auth", "server auth"]
    assert read_request(base64.b64decode(document["spec"]["request"])) == (ME, KEY.public_key())


def test_every_attempt_has_another_name() -> None:
    group = GroupKey("team-a", "demo")
    made = {certificate_request_name(group, "worker-0", "uid", attempt) for attempt in ("1", "2")}
    assert len(made) == 2


@pytest.mark.parametrize(
    "answer", [{}, {"status": {}}, {"status": {"conditions": [{"type": "Approved"}]}}, {"status": 7}]
)
def test_an_answer_without_a_decision_is_waited_for(answer: dict[str, Any]) -> None:
    assert requests.certificate_in(answer) is None


@pytest.mark.parametrize(("kind", "reason"), [("Denied", "CertificateDenied"), ("Failed", "CertificateFailed")])
def test_a_refusal_says_why(kind: str, reason: str) -> None:
    answer = {"status": {"conditions": [{"type": kind, "reason": "WrongIdentity", "message": "it is somebody else"}]}}
    with pytest.raises(NoCertificateError, match="WrongIdentity: it is somebody else") as caught:
        requests.certificate_in(answer)
    assert caught.value.reason == reason


@pytest.mark.parametrize("odd", ["***", 7, ["x"]])
def test_a_certificate_that_is_none_is_refused(odd: object) -> None:
    with pytest.raises(NoCertificateError):
        requests.certificate_in({"status": {"certificate": odd}})


def test_the_certificate_of_an_answer_is_its_pem() -> None:
    pem = certificate()
    assert requests.certificate_in({"status": {"certificate": base64.b64encode(pem).decode()}}) == pem


@pytest.mark.parametrize(
    "pem",
    [
        pytest.param(certificate(OTHER), id="of another member"),
        pytest.param(certificate(key=make_key()), id="of another key"),
        pytest.param(certificate(hours=-1), id="ended"),
        pytest.param(b"nonsense", id="none"),
    ],
)
def test_an_answer_that_is_not_ours_is_refused(pem: bytes) -> None:
    held = judged(pem)
    assert held.files is None
    assert held.why
    assert not held.issuer_left
    with pytest.raises(IdentityError):
        requests.accepted(CA.certificate_pem, pem, key_pem(KEY), ME, NOW)


def test_a_certificate_stays_in_use_while_its_ca_is_trusted() -> None:
    assert judged(certificate()).files is not None
    assert judged(certificate(), CA.certificate_pem + NEXT_CA.certificate_pem).files is not None
    left = judged(certificate(), NEXT_CA.certificate_pem)
    assert left.files is None
    assert left.issuer_left
    assert judged(None).files is None


def test_members_that_began_together_renew_at_different_moments_and_in_time() -> None:
    files = judged(certificate(hours=24)).files
    assert files is not None
    moments = [requests.due_at(files, chance) for chance in (0.0, 0.5, 1.0)]
    assert moments[0] == NOW + 16 * HOUR
    assert moments == sorted(moments, reverse=True)
    assert moments[-1] > NOW + 15 * HOUR
