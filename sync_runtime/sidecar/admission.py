"""Who may connect to this sidecar as a child: of the group, of a role, of a name that the plan knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sync_runtime.contract.plan import Plan
from sync_runtime.errors import RefusedError
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.settings import SidecarSettings
from sync_runtime.transport.listener import Admission
from sync_runtime.transport.messages import Hello


@dataclass(frozen=True)
class Standing:
    """What a child is told about us; replaced as a whole, read by several threads."""

    term: int
    incarnation: str | None
    plan: Plan
    draining: bool = False


class ChildPolicy:
    """Judges every connection; `standing` is asked each time."""

    def __init__(
        self, settings: SidecarSettings, standing: Callable[[], Standing], streams: Callable[[Hello], int]
    ) -> None:
        self._settings, self._standing, self._streams = settings, standing, streams

    def admit(self, identity: MemberIdentity, hello: Hello) -> Admission:
        """Raises RefusedError with a reason of PROTOCOL.md, section 3.1."""
        settings, standing = self._settings, self._standing()
        if identity.group_uid != settings.group_uid:
            raise RefusedError("WrongGroup", f"this is group {settings.group_uid}", retry=False)
        if identity.role != "rollout":
            raise RefusedError("WrongRole", "only rollouts receive weights", retry=False)
        if identity.member == settings.member:
            raise RefusedError("WrongMember", "this is that member itself", retry=False)
        local = (hello.cluster, identity.region) == (standing.plan.cluster, standing.plan.region)
        if local and identity.member not in {member.name for member in standing.plan.members}:
            raise RefusedError("WrongMember", f"the plan does not name {identity.member}", retry=True)
        if hello.kind == "work" and settings.role != "trainer":
            raise RefusedError("WrongRole", "only the trainer leases work", retry=False)
        if hello.kind == "work" and standing.plan.work.mode != "Leased":
            raise RefusedError("NotReady", "work leases are off in this group", retry=True)
        if hello.term > standing.term:
            retry = settings.role == "rollout"  # a relay may hear of the new trainer yet; a trainer never is one
            raise RefusedError("OldTerm", f"term {standing.term} was replaced by {hello.term}", retry=retry)
        if standing.draining and hello.kind == "control":  # who is being served may still open streams
            raise RefusedError("ShuttingDown", "this member takes no new children", retry=True)
        return Admission(settings.member, standing.term, standing.incarnation, self._streams(hello))
