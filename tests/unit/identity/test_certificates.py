"""Certificates that a careless or stolen CA might have signed: each is refused for its own reason."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose

from sync_runtime.identity.ca import Authority, make_ca
from sync_runtime.identity.certificates import (
    MAX_BUNDLE_BYTES,
    MAX_CERTIFICATE_BYTES,
    check_issued,
    read_der,
    read_member,
    read_pem,
)
from sync_runtime.identity.errors import (
    BadChainError,
    BadNameError,
    ExpiredError,
    IdentityError,
    NotYetValidError,
    UnknownCaError,
    WrongKeyError,
    WrongUsageError,
)
from sync_runtime.identity.keys import make_key
from tests.support.identities import DAY, GROUP_UID, elliptic_certificate, now, odd_certificate

HOUR = datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return make_ca(GROUP_UID, now=now(), lifetime=10 * DAY)


def uri(member: str = "odd", group: str = GROUP_UID) -> x509.UniformResourceIdentifier:
    path = f"group/{group}/role/rollout/region/eu-west/member/{member}"
    return x509.UniformResourceIdentifier(f"spiffe://syncgroup.dev/{path}")


@pytest.mark.parametrize(
    ("oddity", "kind"),
    [
        pytest.param({"names": []}, BadNameError, id="no name"),
        pytest.param({"names": [uri(), uri("other")]}, BadNameError, id="two URIs"),
        pytest.param({"names": [uri(), x509.DNSName("trainer.example")]}, BadNameError, id="a host name besides"),
        pytest.param({"names": [x509.DNSName("trainer.example")]}, BadNameError, id="a host name"),
        pytest.param({"names": [uri("*")]}, BadNameError, id="a wildcard"),
        pytest.param({"names": [uri(group="*")]}, BadNameError, id="a wildcard group"),
        pytest.param({"purposes": [Purpose.CLIENT_AUTH]}, WrongUsageError, id="client only"),
        pytest.param({"purposes": [Purpose.SERVER_AUTH]}, WrongUsageError, id="server only"),
        pytest.param({"purposes": [Purpose.CODE_SIGNING]}, WrongUsageError, id="code signing"),
        pytest.param({"purposes": [Purpose.ANY_EXTENDED_KEY_USAGE]}, WrongUsageError, id="any purpose"),
        pytest.param({"is_ca": True}, WrongUsageError, id="a CA"),
        pytest.param(
            {"further": [x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x")], "critical": True},
            WrongUsageError,
            id="an unknown demand",
        ),
    ],
)
def test_odd_certificates_are_refused_each_for_its_reason(
    authority: Authority, oddity: dict[str, object], kind: type[IdentityError]
) -> None:
    (certificate,) = read_pem(odd_certificate(authority, make_key(), **oddity), "it")  # type: ignore[arg-type]
    with pytest.raises(kind) as caught:
        read_member(certificate)
    assert caught.value.reason == kind.reason


def test_the_plain_one_they_are_made_from_is_good(authority: Authority) -> None:
    (certificate,) = read_pem(odd_certificate(authority, make_key()), "it")
    assert read_member(certificate).identity.member == "odd"
    assert check_issued(certificate, [authority.certificate]) == authority.certificate


def test_another_curve_is_refused(authority: Authority) -> None:
    pem, _ = elliptic_certificate(authority)
    with pytest.raises(WrongKeyError):
        read_member(read_pem(pem, "it")[0])


def test_times_are_judged_by_the_callers_clock(authority: Authority) -> None:
    member = read_member(read_pem(odd_certificate(authority, make_key()), "it")[0])
    member.check_time(now())
    member.check_time(now() + DAY + HOUR, tolerance=2 * HOUR)
    with pytest.raises(ExpiredError):
        member.check_time(now() + DAY + HOUR)
    with pytest.raises(NotYetValidError, match="clocks"):
        member.check_time(now() - DAY - HOUR)


def test_a_namesake_of_the_ca_is_another_ca(authority: Authority) -> None:
    namesake = make_ca(GROUP_UID, now=now(), lifetime=DAY)
    (certificate,) = read_pem(odd_certificate(namesake, make_key()), "it")
    with pytest.raises(UnknownCaError):
        check_issued(certificate, [authority.certificate])
    assert check_issued(certificate, [authority.certificate, namesake.certificate]) == namesake.certificate


def test_a_member_cannot_sign_another(authority: Authority) -> None:
    key = make_key()
    (member,) = read_pem(odd_certificate(authority, key), "it")
    (forged,) = read_pem(odd_certificate(authority, make_key(), signer=key), "it")
    with pytest.raises(UnknownCaError):
        check_issued(forged, [authority.certificate])
    with pytest.raises(UnknownCaError):
        check_issued(forged, [member])


@pytest.mark.parametrize(
    "pem",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", id="no base64"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", id="no certificate"),
        pytest.param(b"x" * (MAX_BUNDLE_BYTES + 1), id="huge"),
    ],
)
def test_bytes_that_are_no_certificate_are_refused(pem: bytes) -> None:
    with pytest.raises(BadChainError):
        read_pem(pem, "it", 8)


def test_a_long_chain_is_refused_before_it_is_parsed(authority: Authority) -> None:
    good = odd_certificate(authority, make_key())
    assert len(read_pem(good * 8, "it", 8)) == 8
    for count, most in ((2, 1), (9, 8), (80, 8)):
        with pytest.raises(BadChainError):
            read_pem(good * count, "it", most)


def test_bytes_of_a_handshake_have_a_limit() -> None:
    with pytest.raises(BadChainError, match="at most"):
        read_der(b"\x30" * (MAX_CERTIFICATE_BYTES + 1))
    with pytest.raises(BadChainError, match="no certificate"):
        read_der(b"\x30\x03")
