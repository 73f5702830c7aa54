"""The group's CA: made once, signs members and nothing else.

Path length 0: what a member's key signs is no certificate. Subjects of members are empty: the one URI is the whole
name. Lifetimes and `now` come from the caller: the operator signs for a day, the command line for a year.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sync_runtime.contract.names import API_GROUP
from sync_runtime.identity.certificates import only_uri, read_pem, to_pem
from sync_runtime.identity.errors import (
    AuthorityError,
    BadChainError,
    BadNameError,
    ExpiredError,
    WrongKeyError,
    WrongMemberError,
)
from sync_runtime.identity.keys import key_pem, make_key, read_key
from sync_runtime.identity.names import MemberIdentity, check_group_uid, parse_uri

BACKDATE: Final = datetime.timedelta(hours=2)
"""Certificates begin this long before they are made: members' clocks may be wrong by an hour."""
RENEW_AFTER: Final = 2 / 3
"""The share of a certificate's life after which it is replaced, so that a signer may be away for the rest."""
MAX_REQUEST_BYTES: Final = 16 * 1024


@dataclass(frozen=True)
class Authority:
    """The CA of one group, with its key."""

    certificate: x509.Certificate
    key: Ed25519PrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """What members trust."""
        return to_pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        """What must stay where it is."""
        return key_pem(self.key)

    @property
    def group_uid(self) -> str:
        """The group it signs for."""
        return group_of(self.certificate)


def make_ca(group_uid: str, *, now: datetime.datetime, lifetime: datetime.timedelta) -> Authority:
    """A new CA for a group."""
    check_group_uid(group_uid)
    key = make_key()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, API_GROUP),
            x509.NameAttribute(NameOID.COMMON_NAME, group_uid),
        ]
    )
    builder = (
        _builder(key.public_key(), now, now + lifetime)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, None), key)


def load_ca(certificate_pem: bytes, private_key_pem: bytes) -> Authority:
    """A CA that was made earlier; raises AuthorityError."""
    try:
        (certificate,) = read_pem(certificate_pem, "the CA's certificate")
        key = read_key(private_key_pem)
        if certificate.public_key() != key.public_key():
            raise AuthorityError("the CA's key is not the one of its certificate: they must come from the same folder")
    except (BadChainError, WrongKeyError, UnsupportedAlgorithm) as error:
        raise AuthorityError(f"the CA cannot sign: {error}") from error
    group_of(certificate)
    return Authority(certificate, key)


def group_of(certificate: x509.Certificate) -> str:
    """The uid of the group that a CA signs for; raises AuthorityError where it is no CA of ours."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise AuthorityError("the certificate is not one of a CA") from error
    if not constraints.ca:
        raise AuthorityError("the certificate is not one of a CA")
    if len(names) != 1 or not isinstance(names[0].value, str):
        raise AuthorityError("the CA does not name its group")
    try:
        check_group_uid(names[0].value)
    except BadNameError as error:
        raise AuthorityError(f"the CA does not name its group: {error}") from error
    return names[0].value


def make_request(identity: MemberIdentity, key: Ed25519PrivateKey) -> bytes:
    """A certificate request in PEM: what a member sends to whoever signs."""
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(_alternative_name(identity), critical=True)
    )
    return builder.sign(key, None).public_bytes(serialization.Encoding.PEM)


def read_request(pem: bytes) -> tuple[MemberIdentity, Ed25519PublicKey]:
    """Who asks, and for which key; the request is hostile. Raises BadChainError, WrongKeyError, BadNameError."""
    if len(pem) > MAX_REQUEST_BYTES:
        raise BadChainError(f"a certificate request has at most {MAX_REQUEST_BYTES} bytes, not {len(pem)}")
    try:
        request = x509.load_pem_x509_csr(pem)
        extensions, key = request.extensions, request.public_key()
        proven = request.is_signature_valid
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, UnsupportedAlgorithm) as error:
        raise BadChainError(f"the certificate request is malformed: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise WrongKeyError("the certificate request is not for an Ed25519 key")
    if not proven:
        raise WrongKeyError("the certificate request is not signed by its own key")
    if len(extensions) != 1 or len(request.subject):
        raise BadNameError("the certificate request asks for more than one URI as its name")
    return parse_uri(only_uri(extensions)), key


def sign_request(
    authority: Authority,
    request_pem: bytes,
    expected: MemberIdentity,
    *,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> bytes:
    """The certificate for a request, in PEM, if it asks for `expected`, whom the caller has authenticated.

    It never outlives the CA. Everything but the key is written anew: nothing else of the request survives.
    """
    asked, key = read_request(request_pem)
    if asked != expected:
        raise WrongMemberError(f"the certificate request is for {asked}, but comes from {expected}")
    if expected.group_uid != authority.group_uid:
        raise AuthorityError(f"this CA signs for group {authority.group_uid}, not for {expected.group_uid}")
    ca_end = authority.certificate.not_valid_after_utc
    if now >= ca_end:
        raise ExpiredError(f"the group's CA ended at {ca_end:%Y-%m-%dT%H:%M:%SZ}: make a new one")
    builder = (
        _builder(key, now, min(now + lifetime, ca_end))
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(_alternative_name(expected), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    return to_pem(builder.sign(authority.key, None))


def renew_at(not_before: datetime.datetime, not_after: datetime.datetime) -> datetime.datetime:
    """When a certificate should be replaced; the backdated hours are no part of its life."""
    life = max(not_after - not_before - BACKDATE, datetime.timedelta(0))
    return not_after - life * (1 - RENEW_AFTER)


def _builder(key: Ed25519PublicKey, now: datetime.datetime, end: datetime.datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _alternative_name(identity: MemberIdentity) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity.uri())])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
