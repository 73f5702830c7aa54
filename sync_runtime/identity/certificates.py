"""Reading certificates from elsewhere: what a member's certificate must be, checked field by field.

What our CA writes is narrow (`ca`), so what is accepted is narrow too: one URI name, an Ed25519 key, both TLS purposes,
no right to sign others. Signatures and times are checked by the callers: TLS in the handshake, `signing` by hand.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from sync_runtime.identity.errors import (
    BadChainError,
    BadNameError,
    ExpiredError,
    NotYetValidError,
    UnknownCaError,
    WrongKeyError,
    WrongUsageError,
)
from sync_runtime.identity.names import MemberIdentity, parse_uri

MAX_CERTIFICATE_BYTES: Final = 8 * 1024
"""Ours have about 600."""
MAX_BUNDLE_BYTES: Final = 64 * 1024
MAX_AUTHORITIES: Final = 8
"""Certificates in ca.crt: more than one while the CA is being replaced."""
PURPOSES: Final = frozenset({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH})
NO_TOLERANCE: Final = datetime.timedelta(0)

_KNOWN_EXTENSIONS: Final = (
    x509.AuthorityKeyIdentifier,
    x509.BasicConstraints,
    x509.ExtendedKeyUsage,
    x509.KeyUsage,
    x509.SubjectAlternativeName,
    x509.SubjectKeyIdentifier,
)


@dataclass(frozen=True)
class MemberCertificate:
    """What a well-formed certificate of a member says."""

    identity: MemberIdentity
    not_before: datetime.datetime
    not_after: datetime.datetime
    public_key: Ed25519PublicKey
    fingerprint: str
    """SHA-256 of the certificate, in hex."""

    def check_time(self, now: datetime.datetime, tolerance: datetime.timedelta = NO_TOLERANCE) -> None:
        """Raises ExpiredError or NotYetValidError."""
        if now > self.not_after + tolerance:
            raise ExpiredError(f"the certificate of {self.identity} ended at {self.not_after:%Y-%m-%dT%H:%M:%SZ}")
        if now < self.not_before - tolerance:
            raise NotYetValidError(
                f"the certificate of {self.identity} begins at {self.not_before:%Y-%m-%dT%H:%M:%SZ}: check the clocks"
            )


def read_der(der: bytes) -> x509.Certificate:
    """A certificate from the bytes of a handshake; raises BadChainError."""
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise BadChainError(f"a certificate has at most {MAX_CERTIFICATE_BYTES} bytes, not {len(der)}")
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise BadChainError("these bytes are no certificate") from error


def read_pem(pem: bytes, what: str, most: int = 1) -> tuple[x509.Certificate, ...]:
    """Between one and `most` certificates of a PEM; `what` names it in the sentence. Raises BadChainError."""
    if len(pem) > MAX_BUNDLE_BYTES:
        raise BadChainError(f"{what} has {len(pem)} bytes; the limit is {MAX_BUNDLE_BYTES}")
    count = pem.count(b"-----BEGIN CERTIFICATE-----")
    if not 1 <= count <= most:
        raise BadChainError(
            f"{what} must hold {'one certificate' if most == 1 else f'1 to {most} certificates'} in PEM"
        )
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise BadChainError(f"{what} is malformed") from error


def to_pem(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_member(certificate: x509.Certificate) -> MemberCertificate:
    """What a member's certificate says, once its form is right; neither signature nor time are checked here."""
    try:
        extensions = certificate.extensions
        key = certificate.public_key()
        not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, UnsupportedAlgorithm) as error:
        raise BadChainError(f"the certificate is malformed: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise WrongKeyError("the certificate is not for an Ed25519 key")
    _check_usage(extensions)
    return MemberCertificate(
        identity=parse_uri(only_uri(extensions)),
        not_before=not_before,
        not_after=not_after,
        public_key=key,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def only_uri(extensions: x509.Extensions) -> str:
    """The one alternative name of a certificate or request, which must be a URI; raises BadNameError."""
    try:
        names = list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound as error:
        raise BadNameError("the certificate names nobody: its URI SAN is missing") from error
    if len(names) != 1:
        raise BadNameError(f"the certificate has {len(names)} names; a member has exactly one")
    (name,) = names
    if not isinstance(name, x509.UniformResourceIdentifier):
        raise BadNameError(f"the certificate's name is a {type(name).__name__}; a member's is a URI")
    return name.value


def check_issued(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> x509.Certificate:
    """The CA that signed a certificate; raises UnknownCaError."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return authority
    raise UnknownCaError("the certificate was not signed by the group's CA")


def _check_usage(extensions: x509.Extensions) -> None:
    for extension in extensions:
        if extension.critical and not isinstance(extension.value, _KNOWN_EXTENSIONS):
            raise WrongUsageError(f"the certificate demands {extension.oid.dotted_string}, which is unknown here")
    try:
        constraints = extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
        purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound as error:
        raise WrongUsageError(f"the certificate does not say what it is for: {error}") from error
    if constraints.ca or usage.key_cert_sign or usage.crl_sign:
        raise WrongUsageError("the certificate is one of a CA; a member's must not sign others")
    if not usage.digital_signature or frozenset(purposes) != PURPOSES:
        raise WrongUsageError("the certificate is not for both ends of TLS, or is for more than that")
