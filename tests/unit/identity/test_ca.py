"""The CA signs what it is asked for by whom it expects, narrowly, and never past its own end."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509

from sync_runtime.identity import ca
from sync_runtime.identity.certificates import read_member, read_pem
from sync_runtime.identity.errors import (
    AuthorityError,
    BadChainError,
    BadNameError,
    ExpiredError,
    IdentityError,
    WrongKeyError,
    WrongMemberError,
)
from sync_runtime.identity.keys import key_pem, make_key, read_key
from sync_runtime.identity.names import MemberIdentity
from tests.support.identities import DAY, GROUP_UID, elliptic_certificate, elliptic_request, now

NAME = MemberIdentity(GROUP_UID, "rollout", "eu-west", "worker-0")


@pytest.fixture(scope="module")
def authority() -> ca.Authority:
    return ca.make_ca(GROUP_UID, now=now(), lifetime=10 * DAY)


def signed(authority: ca.Authority, request: bytes, lifetime: datetime.timedelta = DAY) -> bytes:
    return ca.sign_request(authority, request, NAME, now=now(), lifetime=lifetime)


def test_a_member_gets_the_name_and_key_that_it_asked_for(authority: ca.Authority) -> None:
    key = make_key()
    (certificate,) = read_pem(signed(authority, ca.make_request(NAME, key)), "it")
    member = read_member(certificate)
    assert member.identity == NAME
    assert member.public_key == key.public_key()
    assert not list(certificate.subject)
    certificate.verify_directly_issued_by(authority.certificate)


def test_certificates_begin_in_the_past_and_end_with_the_ca_at_the_latest(authority: ca.Authority) -> None:
    request = ca.make_request(NAME, make_key())
    (short,) = read_pem(signed(authority, request), "it")
    (long,) = read_pem(signed(authority, request, 1000 * DAY), "it")
    assert now() - short.not_valid_before_utc >= datetime.timedelta(hours=1, minutes=59)
    assert datetime.timedelta(0) <= now() + DAY - short.not_valid_after_utc < datetime.timedelta(minutes=1)
    assert long.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_the_ca_signs_members_only_and_no_further_ca(authority: ca.Authority) -> None:
    constraints = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert authority.group_uid == GROUP_UID


def test_a_request_for_somebody_else_is_refused(authority: ca.Authority) -> None:
    other = MemberIdentity(GROUP_UID, "trainer", "eu-west", "worker-0")
    with pytest.raises(WrongMemberError):
        signed(authority, ca.make_request(other, make_key()))


def test_a_request_for_another_group_is_refused(authority: ca.Authority) -> None:
    other = MemberIdentity("other", "rollout", "eu-west", "worker-0")
    with pytest.raises(AuthorityError, match="signs for group"):
        ca.sign_request(authority, ca.make_request(other, make_key()), other, now=now(), lifetime=DAY)


def test_an_ended_ca_signs_nothing(authority: ca.Authority) -> None:
    later = now() + 11 * DAY
    with pytest.raises(ExpiredError, match="make a new one"):
        ca.sign_request(authority, ca.make_request(NAME, make_key()), NAME, now=later, lifetime=DAY)


def tampered_request() -> bytes:
    request = ca.make_request(NAME, make_key())
    lines = request.splitlines()
    lines[-2] = lines[-2][:8] + (b"AAAA" if lines[-2][8:12] != b"AAAA" else b"BBBB") + lines[-2][12:]
    return b"\n".join(lines)


def request_with(*extensions: x509.ExtensionType, subject: str | None = None) -> bytes:
    attributes = [] if subject is None else [x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    from cryptography.hazmat.primitives.serialization import Encoding

    return builder.sign(make_key(), None).public_bytes(Encoding.PEM)


URI = x509.UniformResourceIdentifier(NAME.uri())


@pytest.mark.parametrize(
    ("request_pem", "kind"),
    [
        pytest.param(b"", BadChainError, id="nothing"),
        pytest.param(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", BadChainError),
        pytest.param(b"x" * (ca.MAX_REQUEST_BYTES + 1), BadChainError, id="too large"),
        pytest.param(tampered_request(), WrongKeyError, id="not signed by its key"),
        pytest.param(elliptic_request(NAME), WrongKeyError, id="another curve"),
        pytest.param(request_with(), BadNameError, id="no name"),
        pytest.param(request_with(x509.SubjectAlternativeName([URI]), subject="x"), BadNameError, id="a subject too"),
        pytest.param(request_with(x509.SubjectAlternativeName([URI, URI])), BadNameError, id="two names"),
        pytest.param(request_with(x509.SubjectAlternativeName([x509.DNSName("a.b")])), BadNameError, id="a host name"),
        pytest.param(
            request_with(x509.SubjectAlternativeName([URI]), x509.BasicConstraints(ca=True, path_length=None)),
            BadNameError,
            id="wants to be a CA",
        ),
    ],
)
def test_hostile_requests_are_refused(authority: ca.Authority, request_pem: bytes, kind: type[IdentityError]) -> None:
    with pytest.raises(kind):
        signed(authority, request_pem)


def test_a_ca_is_read_back_and_refused_when_its_parts_do_not_fit(authority: ca.Authority) -> None:
    again = ca.load_ca(authority.certificate_pem, authority.key_pem)
    assert again.certificate == authority.certificate
    with pytest.raises(AuthorityError, match="not the one"):
        ca.load_ca(authority.certificate_pem, key_pem(make_key()))
    key = make_key()
    leaf = signed(authority, ca.make_request(NAME, key))
    with pytest.raises(AuthorityError, match="not one of a CA"):
        ca.load_ca(leaf, key_pem(key))
    with pytest.raises(AuthorityError, match="no private key"):
        ca.load_ca(authority.certificate_pem, b"nonsense")


@pytest.mark.parametrize("uid", ["", "a b", "*", "x" * 65, "-a"])
def test_a_ca_needs_a_proper_group(uid: str) -> None:
    with pytest.raises(BadNameError):
        ca.make_ca(uid, now=now(), lifetime=DAY)


def test_renewal_comes_after_two_thirds_of_the_life_without_the_backdated_hours() -> None:
    begin = now()
    assert ca.renew_at(begin - ca.BACKDATE, begin + 3 * DAY) == begin + 2 * DAY


def test_keys_of_other_kinds_and_encrypted_ones_are_refused(tmp_path: Path, authority: ca.Authority) -> None:
    from cryptography.hazmat.primitives import serialization as how

    _, curve = elliptic_certificate(authority)
    pem = curve.private_bytes(how.Encoding.PEM, how.PrivateFormat.PKCS8, how.NoEncryption())
    with pytest.raises(WrongKeyError, match="Ed25519"):
        read_key(pem)
    locked = make_key().private_bytes(how.Encoding.PEM, how.PrivateFormat.PKCS8, how.BestAvailableEncryption(b"x"))
    with pytest.raises(WrongKeyError, match="encrypted"):
        read_key(locked)
    with pytest.raises(WrongKeyError, match="at most"):
        read_key(b"x" * 100_000)
