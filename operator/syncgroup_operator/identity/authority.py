"""The certificate authority of one group: what its hub Secret holds, and how it is replaced without cutting anyone off.

    ca.crt, ca.key            signs
    next.crt, next.key        trusted already, signs later: members must have heard of it first
    previous.crt              trusted still: certificates that it signed have not all ended
    previousUntil             when the last of those has

A replacement is announced (`next`), switched (`previous`) and over; each step is one write of the Secret, so that an
operator that dies in between goes on where it was. A Secret that does not fit together is an error for a person: a new
CA in its place would cut every member off.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from cryptography import x509

from sync_runtime.contract.names import CA_CERTIFICATE_KEY, CA_PRIVATE_KEY_KEY
from sync_runtime.identity.ca import BACKDATE, Authority, group_of, load_ca, make_ca, renew_at
from sync_runtime.identity.certificates import MAX_AUTHORITIES, read_pem, to_pem
from sync_runtime.identity.errors import IdentityError
from syncgroup_operator.errors import AuthoritySecretError

NEXT_CERTIFICATE_KEY: Final = "next.crt"
NEXT_PRIVATE_KEY_KEY: Final = "next.key"
PREVIOUS_CERTIFICATE_KEY: Final = "previous.crt"
PREVIOUS_UNTIL_KEY: Final = "previousUntil"
_KEYS: Final = frozenset(
    {
        CA_CERTIFICATE_KEY,
        CA_PRIVATE_KEY_KEY,
        NEXT_CERTIFICATE_KEY,
        NEXT_PRIVATE_KEY_KEY,
        PREVIOUS_CERTIFICATE_KEY,
        PREVIOUS_UNTIL_KEY,
    }
)
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_REMEDY: Final = (
    "put the Secret back from a backup; only if there is none, delete it, and every member gets a new identity"
)


@dataclass(frozen=True)
class AuthorityPolicy:
    """How long things last."""

    ca_lifetime: datetime.timedelta = datetime.timedelta(days=365)
    member_lifetime: datetime.timedelta = datetime.timedelta(days=1)
    """The longest that a member's certificate lasts."""
    announced: datetime.timedelta = datetime.timedelta(hours=2)
    """How long the next CA is trusted before it signs: more than a kubelet takes to bring a bundle into a pod."""
    tolerance: datetime.timedelta = datetime.timedelta(hours=1)
    """Members' clocks may be wrong by so much."""


class Rotation(enum.Enum):
    """The next step of a replacement."""

    NONE = "nothing is due"
    ANNOUNCE = "the CA ends in a while: the next one is made, and trusted from now on"
    SWITCH = "every member has had time to trust the next CA: it signs from now on"
    DROP = "the last certificate of the previous CA has ended: it is trusted no longer"


@dataclass(frozen=True)
class GroupAuthority:
    """What the Secret of one group holds, checked."""

    signing: Authority
    next: Authority | None = None
    previous: x509.Certificate | None = None
    previous_until: datetime.datetime | None = None

    @property
    def bundle(self) -> str:
        """What members trust: the text of the trust ConfigMap."""
        further = [] if self.next is None else [self.next.certificate_pem]
        older = [] if self.previous is None else [to_pem(self.previous)]
        return b"".join([self.signing.certificate_pem, *further, *older]).decode()

    @property
    def expires(self) -> datetime.datetime:
        """When the CA that signs now ends, and every certificate of it at the latest."""
        return self.signing.certificate.not_valid_after_utc

    @property
    def rotating(self) -> bool:
        """Whether a replacement is under way."""
        return self.next is not None or self.previous is not None

    def lags(self, now: datetime.datetime, policy: AuthorityPolicy) -> bool:
        """Whether a replacement should have switched long ago, and has not: worth a warning before it hurts."""
        return self.expires - now < 2 * policy.member_lifetime


def make(group_uid: str, *, now: datetime.datetime, policy: AuthorityPolicy, trusted: str = "") -> GroupAuthority:
    """A CA where the Secret does not exist. `trusted` is the bundle that members have, if there is one.

    There is one where somebody deleted the Secret: what members have goes on being trusted while they get certificates
    of the new CA.
    """
    signing = make_ca(group_uid, now=now, lifetime=policy.ca_lifetime)
    previous = _trusted(trusted, group_uid, now)
    if previous is None:
        return GroupAuthority(signing)
    until = (now + policy.member_lifetime + policy.tolerance).replace(microsecond=0)
    return GroupAuthority(signing, None, previous, until)


def due(authority: GroupAuthority, *, now: datetime.datetime, policy: AuthorityPolicy, delivered: bool) -> Rotation:
    """Which step of a replacement is due. `delivered`: every cluster with members has the bundle of this Secret.

    A cluster that is away holds the switch up, but not until certificates end: from one member's lifetime before the
    CA's end the rest of the group counts for more.
    """
    if authority.next is not None:
        certificate = authority.next.certificate
        announced_for = now - (certificate.not_valid_before_utc + BACKDATE)
        pressing = authority.expires - now <= policy.member_lifetime
        if now >= authority.expires or (announced_for >= policy.announced and (delivered or pressing)):
            return Rotation.SWITCH
        return Rotation.NONE
    if authority.previous is not None:
        until = authority.previous_until or authority.previous.not_valid_after_utc
        return Rotation.DROP if now >= until else Rotation.NONE
    certificate = authority.signing.certificate
    renewal = renew_at(certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return Rotation.ANNOUNCE if now >= renewal else Rotation.NONE


def advance(
    authority: GroupAuthority, rotation: Rotation, *, now: datetime.datetime, policy: AuthorityPolicy
) -> GroupAuthority:
    """The Secret after one step; write it before anything is done with it."""
    match rotation:
        case Rotation.ANNOUNCE:
            group_uid = authority.signing.group_uid
            return replace(authority, next=make_ca(group_uid, now=now, lifetime=policy.ca_lifetime))
        case Rotation.SWITCH if authority.next is not None:
            previous = authority.signing.certificate
            last = min(now + policy.member_lifetime + policy.tolerance, previous.not_valid_after_utc + policy.tolerance)
            return GroupAuthority(authority.next, None, previous, last.replace(microsecond=0))
        case Rotation.DROP:
            return replace(authority, previous=None, previous_until=None)
        case _:
            return authority


def to_data(authority: GroupAuthority) -> dict[str, str]:
    """The `data` of the Secret, base64 as Kubernetes has it."""
    found = {
        CA_CERTIFICATE_KEY: authority.signing.certificate_pem,
        CA_PRIVATE_KEY_KEY: authority.signing.key_pem,
    }
    if authority.next is not None:
        found[NEXT_CERTIFICATE_KEY] = authority.next.certificate_pem
        found[NEXT_PRIVATE_KEY_KEY] = authority.next.key_pem
    if authority.previous is not None:
        until = authority.previous_until or authority.previous.not_valid_after_utc
        found[PREVIOUS_CERTIFICATE_KEY] = to_pem(authority.previous)
        found[PREVIOUS_UNTIL_KEY] = until.strftime(_TIME).encode()
    return {name: base64.b64encode(value).decode() for name, value in found.items()}


def from_data(data: object, group_uid: str) -> GroupAuthority:
    """The authority in the `data` of a Secret; raises AuthoritySecretError where it is not as we left it."""
    found = _decoded(data)
    signing = _load(found, CA_CERTIFICATE_KEY, CA_PRIVATE_KEY_KEY, group_uid)
    following: Authority | None = None
    if NEXT_CERTIFICATE_KEY in found or NEXT_PRIVATE_KEY_KEY in found:
        following = _load(found, NEXT_CERTIFICATE_KEY, NEXT_PRIVATE_KEY_KEY, group_uid)
    previous, until = _previous(found, group_uid)
    if following is not None and previous is not None:
        raise _edited("it holds both a next and a previous CA, which no step of a replacement leaves")
    return GroupAuthority(signing, following, previous, until)


def _decoded(data: object) -> dict[str, bytes]:
    if not isinstance(data, Mapping) or not data:
        raise _edited("it is empty")
    strange = sorted(str(name) for name in data if name not in _KEYS)
    if strange:
        raise _edited(f"it has keys that are none of ours: {', '.join(strange)[:100]}")
    try:
        return {str(name): base64.b64decode(value, validate=True) for name, value in data.items()}
    except (binascii.Error, ValueError, TypeError) as error:
        raise _edited("a value in it is not base64") from error


def _load(found: Mapping[str, bytes], certificate_name: str, key_name: str, group_uid: str) -> Authority:
    for name in (certificate_name, key_name):
        if name not in found:
            raise _edited(f"{name} is missing")
    try:
        authority = load_ca(found[certificate_name], found[key_name])
    except IdentityError as error:
        raise _edited(f"{certificate_name} and {key_name}: {error}") from error
    _check_group(authority.certificate, certificate_name, group_uid)
    return authority


def _previous(
    found: Mapping[str, bytes], group_uid: str
) -> tuple[x509.Certificate, datetime.datetime] | tuple[None, None]:
    names = (PREVIOUS_CERTIFICATE_KEY, PREVIOUS_UNTIL_KEY)
    if not any(name in found for name in names):
        return None, None
    if not all(name in found for name in names):
        raise _edited(f"{' and '.join(names)} belong together")
    try:
        (certificate,) = read_pem(found[PREVIOUS_CERTIFICATE_KEY], PREVIOUS_CERTIFICATE_KEY)
        until = datetime.datetime.strptime(found[PREVIOUS_UNTIL_KEY].decode(), _TIME).replace(tzinfo=datetime.UTC)
    except (IdentityError, ValueError) as error:
        raise _edited(f"{' and '.join(names)}: {error}") from error
    _check_group(certificate, PREVIOUS_CERTIFICATE_KEY, group_uid)
    return certificate, until


def _trusted(bundle: str, group_uid: str, now: datetime.datetime) -> x509.Certificate | None:
    """The CA that a bundle names first and that has not ended; a bundle that is no use counts for nothing."""
    try:
        found = read_pem(bundle.encode(), "the trust bundle", MAX_AUTHORITIES)
        mine = [one for one in found if group_of(one) == group_uid and one.not_valid_after_utc > now]
    except IdentityError:
        return None
    return mine[0] if mine else None


def _check_group(certificate: x509.Certificate, name: str, group_uid: str) -> None:
    try:
        found = group_of(certificate)
    except IdentityError as error:
        raise _edited(f"{name}: {error}") from error
    if found != group_uid:
        raise _edited(f"{name} is of group {found}, not of {group_uid}")


def _edited(what: str) -> AuthoritySecretError:
    return AuthoritySecretError(f"the Secret of the group's CA cannot be used: {what}; {_REMEDY}")
