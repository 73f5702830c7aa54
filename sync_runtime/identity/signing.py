"""Signatures on manifests and terms: the trainer's Ed25519 key signs, every member checks, so that no relay can alter
weights or replace a trainer.

Knows documents as bytes only; `bucket.manifest` knows what is in them. Which signatures an older term loses is the
session's decision: it calls `withdraw`.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sync_runtime.identity.certificates import (
    MAX_AUTHORITIES,
    MemberCertificate,
    check_issued,
    read_member,
    read_pem,
)
from sync_runtime.identity.errors import BadSignatureError, IdentityError, UnknownCaError
from sync_runtime.identity.files import IdentityFiles
from sync_runtime.identity.names import expect

SIGNED_PREFIX: Final = b"syncgroup manifest 1\0"
"""Stands before every signed document, so that no other signature by the same key can pass for one. FORMAT.md, 9."""
TERM_PREFIX: Final = b"syncgroup term 1\0"
"""Stands before the proof of a term. PROTOCOL.md, 1."""
SIGNATURE_BYTES: Final = 64
CLOCK_TOLERANCE: Final = datetime.timedelta(minutes=10)
MAX_SIGNERS: Final = 32


class Signer:
    """The trainer's pen."""

    def __init__(self, key: Ed25519PrivateKey, chain_pem: bytes) -> None:
        self._key = key
        self.chain_pem = chain_pem
        """What others need to check its signatures."""

    @classmethod
    def of(cls, files: IdentityFiles) -> Signer:
        """The pen of the member whose files these are; raises WrongRoleError if it is no trainer."""
        expect(files.identity, group_uid=files.identity.group_uid, roles=("trainer",))
        return cls(files.key, files.certificate_pem)

    def sign(self, document: bytes, prefix: bytes = SIGNED_PREFIX) -> bytes:
        """64 bytes; `prefix` says what the document is."""
        return self._key.sign(prefix + document)


@dataclass(frozen=True)
class _Trusted:
    certificate: MemberCertificate
    authority: x509.Certificate


class TrustedSigners:
    """The trainers whose signatures count: certificates of the group's CA with role trainer. Not thread-safe."""

    def __init__(self, ca_pem: bytes, group_uid: str) -> None:
        self._authorities = _authorities(ca_pem)
        self._group_uid = group_uid
        self._trusted: dict[str, _Trusted] = {}
        self._withdrawn: set[bytes] = set()

    def replace_ca(self, ca_pem: bytes) -> None:
        """Trust these CAs from now on; signers of others are forgotten."""
        self._authorities = _authorities(ca_pem)
        kept = set(self._authorities)
        self._trusted = {name: one for name, one in self._trusted.items() if one.authority in kept}

    def add(self, chain_pem: bytes) -> str:
        """Trust a trainer's certificate from elsewhere; the id of the signer. Raises IdentityError, changing nothing.

        Times are checked when a signature is: a spool may bring back a certificate that has ended since.
        """
        (leaf,) = read_pem(chain_pem, "a signer's chain")
        certificate = read_member(leaf)
        authority = check_issued(leaf, self._authorities)
        expect(certificate.identity, group_uid=self._group_uid, roles=("trainer",))
        self._trusted[certificate.fingerprint] = _Trusted(certificate, authority)
        if len(self._trusted) > MAX_SIGNERS:  # only the CA can make so many; the one that ends first matters least
            del self._trusted[min(self._trusted, key=lambda name: self._trusted[name].certificate.not_after)]
        return certificate.fingerprint

    def withdraw(self, signer_id: str) -> None:
        """Refuse this signer's key from now on, under any certificate: a newer term replaced it."""
        found = self._trusted.get(signer_id)
        if found is not None:
            self._withdrawn.add(found.certificate.public_key.public_bytes_raw())

    def verify(self, document: bytes, signature: bytes, now: datetime.datetime, prefix: bytes = SIGNED_PREFIX) -> str:
        """The id of the signer; raises BadSignatureError, or ExpiredError and its like if only the time is wrong.

        A renewed certificate for the same key carries its older signatures along.
        """
        problem: IdentityError | None = None
        for signer_id, trusted in self._trusted.items():
            if not _signed(trusted.certificate, prefix + document, signature):
                continue
            try:
                self._check_now(trusted, now)
            except IdentityError as error:
                problem = error
                continue
            return signer_id
        raise problem or BadSignatureError("no trainer of this group signed the document")

    def _check_now(self, trusted: _Trusted, now: datetime.datetime) -> None:
        if trusted.certificate.public_key.public_bytes_raw() in self._withdrawn:
            raise BadSignatureError(f"the key of {trusted.certificate.identity} was withdrawn by a newer term")
        trusted.certificate.check_time(now, CLOCK_TOLERANCE)
        if now > trusted.authority.not_valid_after_utc + CLOCK_TOLERANCE:
            raise UnknownCaError("the CA that stands behind the signature has ended")


def _authorities(ca_pem: bytes) -> Sequence[x509.Certificate]:
    return read_pem(ca_pem, "the CA's certificate", MAX_AUTHORITIES)


def _signed(certificate: MemberCertificate, signed: bytes, signature: bytes) -> bool:
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        certificate.public_key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True
