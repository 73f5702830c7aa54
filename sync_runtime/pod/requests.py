"""What a certificate request says, what an answer to it means, and when a certificate is due. Pure.

The request is a CertificateSigningRequest of the member's own cluster: the API server stamps it with the pod that sent
it, and the operator signs what fits that pod. An answer is hostile until `accepted` has compared it with the member's
own key, name and trust bundle.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sync_runtime.contract.names import SIGNER_NAME
from sync_runtime.identity.ca import renew_at
from sync_runtime.identity.errors import IdentityError, UnknownCaError, WrongMemberError
from sync_runtime.identity.files import IdentityFiles, parse_files
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.pod.errors import NoCertificateError

API_VERSION: Final = "certificates.k8s.io/v1"
KIND: Final = "CertificateSigningRequest"
PATH: Final = f"/apis/{API_VERSION}/certificatesigningrequests"
USAGES: Final = ("digital signature", "client auth", "server auth")
LIFETIME_S: Final = 24 * 3600
"""What is asked for; the signer may give less."""
SPREAD: Final = 0.1
"""Members that began together renew over this share of a certificate's life, not all at once."""

DENIED: Final = "CertificateDenied"
FAILED: Final = "CertificateFailed"
UNUSABLE: Final = "CertificateUnusable"


def request_document(name: str, labels: Mapping[str, str], request_pem: bytes) -> dict[str, Any]:
    """The object to create. Labels let the operator find it and prove nothing."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "request": base64.b64encode(request_pem).decode(),
            "signerName": SIGNER_NAME,
            "usages": list(USAGES),
            "expirationSeconds": LIFETIME_S,
        },
    }


def certificate_in(document: Mapping[str, Any]) -> bytes | None:
    """The certificate in an answer; None: not decided yet. Raises NoCertificateError where there will be none."""
    status = document.get("status")
    if not isinstance(status, dict):
        return None
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        kind = condition.get("type") if isinstance(condition, dict) else None
        if kind in ("Denied", "Failed"):
            words = f"{condition.get('reason') or 'no reason given'}: {condition.get('message') or 'no message'}"
            verb = "denied" if kind == "Denied" else "not signed"
            raise NoCertificateError(
                DENIED if kind == "Denied" else FAILED, f"the certificate request was {verb}: {words[:300]}"
            )
    found = status.get("certificate")
    if not found:
        return None
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise NoCertificateError(UNUSABLE, "the certificate in the answer is not base64") from error


def accepted(
    bundle_pem: bytes, certificate_pem: bytes, key_pem: bytes, expected: MemberIdentity, now: datetime.datetime
) -> IdentityFiles:
    """The member's files with this certificate, once it has the right key, name, CA and time; or IdentityError."""
    files = parse_files(bundle_pem, certificate_pem, key_pem)
    if files.identity != expected:
        raise WrongMemberError(f"the certificate is of {files.identity}, but this is {expected}")
    files.certificate.check_time(now)
    return files


@dataclass(frozen=True)
class Held:
    """What the member's folder and the trust bundle are worth together."""

    files: IdentityFiles | None
    """The certificate in use under the present bundle; None: one must be asked for now."""
    why: str = ""
    """Why one must be asked for."""
    issuer_left: bool = False
    """The bundle no longer holds the CA of a certificate that is otherwise good: it stays in use until the new one is
    here, or members could not be dialled meanwhile."""


def judge(
    bundle_pem: bytes,
    certificate_pem: bytes | None,
    key_pem: bytes,
    expected: MemberIdentity,
    now: datetime.datetime,
) -> Held:
    """Whether the certificate that is there can stay."""
    if certificate_pem is None:
        return Held(None, "there is none yet")
    try:
        return Held(accepted(bundle_pem, certificate_pem, key_pem, expected, now))
    except UnknownCaError:
        return Held(None, "its CA has left the trust bundle", issuer_left=True)
    except IdentityError as error:
        return Held(None, str(error))


def due_at(files: IdentityFiles, chance: float) -> datetime.datetime:
    """When to ask for the next certificate; `chance` (0 to 1) is drawn once per certificate."""
    certificate = files.certificate
    renewal = renew_at(certificate.not_before, certificate.not_after)
    return renewal - (certificate.not_after - renewal) * SPREAD * chance
