"""A CertificateSigningRequest as its body says it is: parsed once, with every field's type checked.

The body is hostile: whoever may create such an object writes most of it. Only `username` and `extra` are the API
server's own word. Nothing here raises for what a body holds; what cannot be read is None.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sync_runtime.contract.names import LABEL_GROUP_UID, SIGNER_NAME
from sync_runtime.identity.ca import MAX_REQUEST_BYTES, read_request
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.names import MemberIdentity

POD_NAME_EXTRA: Final = "authentication.kubernetes.io/pod-name"
POD_UID_EXTRA: Final = "authentication.kubernetes.io/pod-uid"
ACCOUNT_PREFIX: Final = "system:serviceaccount:"

Decided = Literal["", "Approved", "Denied", "Failed"]


@dataclass(frozen=True, slots=True)
class Account:
    """A service account."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as far as it can be read."""

    name: str
    uid: str
    created: datetime.datetime | None
    label_group_uid: str
    """What its label claims; good for selecting, never for deciding."""
    pem: bytes
    identity: MemberIdentity | None
    """Whom it asks for; None: it cannot be read."""
    problem: str
    """Why it cannot be read."""
    usages: tuple[str, ...] | None
    lifetime_s: int | None
    """How long it asks for; None: not said."""
    lifetime_is_odd: bool
    account: Account | None
    """Who sent it, if that is a service account."""
    pod_name: str
    pod_uid: str
    """The pod whose token it was sent with; empty: the token was bound to none."""
    decided: Decided
    has_certificate: bool


def is_ours(body: object) -> bool:
    """Whether a body names our signer; others' requests are none of our business."""
    return _mapping(_mapping(body).get("spec")).get("signerName") == SIGNER_NAME


def parse(body: object) -> Request:
    """What a body says."""
    whole = _mapping(body)
    metadata, spec, status = (_mapping(whole.get(part)) for part in ("metadata", "spec", "status"))
    pem, identity, problem = _asked(spec.get("request"))
    usages = spec.get("usages")
    lifetime = spec.get("expirationSeconds")
    extra = _mapping(spec.get("extra"))
    return Request(
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        created=_time(metadata.get("creationTimestamp")),
        label_group_uid=_text(_mapping(metadata.get("labels")).get(LABEL_GROUP_UID)),
        pem=pem,
        identity=identity,
        problem=problem,
        usages=tuple(usages) if isinstance(usages, list) and all(isinstance(one, str) for one in usages) else None,
        lifetime_s=lifetime if type(lifetime) is int else None,
        lifetime_is_odd=lifetime is not None and type(lifetime) is not int,
        account=_account(spec.get("username")),
        pod_name=_single(extra.get(POD_NAME_EXTRA)),
        pod_uid=_single(extra.get(POD_UID_EXTRA)),
        decided=_decided(status.get("conditions")),
        has_certificate=bool(status.get("certificate")),
    )


def _asked(encoded: object) -> tuple[bytes, MemberIdentity | None, str]:
    if not isinstance(encoded, str) or len(encoded) > 2 * MAX_REQUEST_BYTES:
        return b"", None, "spec.request is missing or too large"
    try:
        pem = base64.b64decode(encoded, validate=True)
        identity, _ = read_request(pem)
    except (binascii.Error, ValueError) as error:
        return b"", None, f"spec.request cannot be read: {error}"
    except IdentityError as error:
        return b"", None, str(error)
    return pem, identity, ""


def _decided(conditions: object) -> Decided:
    found = {_text(_mapping(one).get("type")) for one in (conditions if isinstance(conditions, list) else ())}
    if "Denied" in found:
        return "Denied"
    if "Failed" in found:
        return "Failed"
    return "Approved" if "Approved" in found else ""


def _account(username: object) -> Account | None:
    text = _text(username)
    if not text.startswith(ACCOUNT_PREFIX):
        return None
    namespace, separator, name = text.removeprefix(ACCOUNT_PREFIX).partition(":")
    return Account(namespace, name) if separator and namespace and name else None


def _single(values: object) -> str:
    """The one value of an extra; several mean that something else than the API server wrote it."""
    return _text(values[0]) if isinstance(values, list) and len(values) == 1 else ""


def _mapping(found: object) -> Mapping[str, object]:
    return found if isinstance(found, Mapping) else {}


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""


def _time(found: object) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(_text(found))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
