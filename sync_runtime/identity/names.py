"""The name of a member as its certificate carries it, and the grammar of that name.

    spiffe://syncgroup.dev/group/<group uid>/role/<trainer|rollout>/region/<region>/member/<member>

Text only: knows nothing of certificates. A name from elsewhere is hostile until `parse_uri` has taken it apart.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from sync_runtime.contract import patterns
from sync_runtime.contract.fields import DnsLabel, Uid
from sync_runtime.contract.names import API_GROUP
from sync_runtime.identity.errors import BadNameError, WrongGroupError, WrongMemberError, WrongRoleError

Role = Literal["trainer", "rollout"]
ROLES: Final[tuple[str, ...]] = get_args(Role)
MAX_URI_CHARACTERS: Final = 512
"""More than the longest name that the grammar allows."""

_STANDALONE: Final = uuid.UUID("7f0f3a52-9f0c-4f2e-9a7a-3f1f0d1f6f51")
_LABEL: Final = TypeAdapter(DnsLabel)
_UID: Final = TypeAdapter(Uid)
_URI: Final = re.compile(rf"spiffe://{re.escape(API_GROUP)}/group/([^/]+)/role/([^/]+)/region/([^/]+)/member/([^/]+)")


@dataclass(frozen=True)
class MemberIdentity:
    """Who a member is. Cannot be made with parts that the grammar does not allow."""

    group_uid: str
    role: Role
    region: str
    member: str

    def __post_init__(self) -> None:
        check_group_uid(self.group_uid)
        if self.role not in ROLES:
            raise BadNameError(f"the role {self.role!r:.40} must be {' or '.join(ROLES)}")
        _check(_LABEL, self.region, "region", patterns.DNS_LABEL)
        _check(_LABEL, self.member, "member", patterns.DNS_LABEL)

    def uri(self) -> str:
        """The one URI of its certificate."""
        parts = {"group": self.group_uid, "role": self.role, "region": self.region, "member": self.member}
        return f"spiffe://{API_GROUP}/" + "/".join(f"{name}/{value}" for name, value in parts.items())

    def __str__(self) -> str:
        return f"{self.role} {self.member} in {self.region}"


def parse_uri(uri: str) -> MemberIdentity:
    """The name in a URI; raises BadNameError."""
    if len(uri) > MAX_URI_CHARACTERS:
        raise BadNameError(f"a name has at most {MAX_URI_CHARACTERS} characters")
    found = _URI.fullmatch(uri)
    if found is None:
        raise BadNameError(f"{uri!r:.200} does not name a member: see section 2 of PROTOCOL.md")
    group_uid, role, region, member = found.groups()
    # __post_init__ refuses any other role; the type checker cannot see that.
    return MemberIdentity(group_uid, role, region, member)  # type: ignore[arg-type]


def check_group_uid(group_uid: str) -> None:
    """Raises BadNameError where a group cannot have this uid."""
    _check(_UID, group_uid, "group uid", patterns.UID)


def standalone_group_uid(namespace: str, name: str) -> str:
    """The uid of a group without Kubernetes that was given none: the same wherever its name is written down."""
    _check(_LABEL, namespace, "namespace", patterns.DNS_LABEL)
    _check(_LABEL, name, "group's name", patterns.DNS_LABEL)
    return str(uuid.uuid5(_STANDALONE, f"{namespace}/{name}"))


def expect(
    identity: MemberIdentity,
    *,
    group_uid: str,
    roles: Collection[str] = ROLES,
    member: str | None = None,
    region: str | None = None,
) -> None:
    """Raises where `identity` is of another group, role, name or region than the caller deals with; group first."""
    if identity.group_uid != group_uid:
        raise WrongGroupError(f"{identity} belongs to group {identity.group_uid}, not to {group_uid}")
    if identity.role not in roles:
        raise WrongRoleError(f"{identity} must be {' or '.join(sorted(roles))} here")
    if member is not None and identity.member != member:
        raise WrongMemberError(f"{identity} is not {member}")
    if region is not None and identity.region != region:
        raise WrongMemberError(f"{identity} is not in region {region}")


def _check(kind: TypeAdapter[str], value: str, what: str, pattern: str) -> None:
    try:
        kind.validate_python(value, strict=True)
    except ValidationError as error:
        raise BadNameError(f"the {what} {value!r:.100} must be short: {patterns.WORDS[pattern]}") from error
