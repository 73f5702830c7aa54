"""The plan as a sidecar sees it: read from its file, read again when that changes, and never older than before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.plan import Endpoint, LinkPlan, MemberPlan, Plan
from sync_runtime.errors import SettingsError, SyncError
from sync_runtime.settings import SidecarSettings
from sync_runtime.standalone import load_group, plan_of
from sync_runtime.telemetry.context import MAX_CHARACTERS

_log = logging.getLogger(__name__)


class PlanWatch:
    """The newest good plan. A broken or stale file changes nothing; `problem` says what is wrong with it."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self._seen: tuple[int, int, int] | None = None
        self.problem: str | None = None
        self.stale = 0
        """Plans that came with a smaller number than the one in force."""
        self.plan = self._read()
        self._seen = self._state()
        self.cause = self._read_cause()
        """The operator's span that made the plan, as it came: hostile until it is parsed; empty: unknown."""

    def look(self) -> bool:
        """Whether a newer plan is in force now."""
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        try:
            plan = self._read()
        except SyncError as error:
            self.problem = str(error)
            _log.warning("the plan in force stays, the new one cannot be used: %s", error)
            return False
        self.problem = None
        if (plan.term, plan.revision) < (self.plan.term, self.plan.revision):
            self.stale += 1
            _log.warning(
                "plan %d of term %d is stale, plan %d of term %d stays in force",
                plan.revision, plan.term, self.plan.revision, self.plan.term,
            )  # fmt: skip
            return False
        changed = plan != self.plan
        self.plan, self.cause = plan, self._read_cause()
        return changed

    @property
    def member(self) -> MemberPlan:
        """What the plan says of this member."""
        return next(member for member in self.plan.members if member.name == self._settings.member)

    def parents(self) -> list[Endpoint]:
        """Whom to dial, in order."""
        known = {endpoint.member: endpoint for endpoint in self.plan.endpoints}
        if self.plan.trainer is not None:
            known[self.plan.trainer.member] = self.plan.trainer
        return [known[name] for name in self.member.parents if name in known]

    def link_from(self, place: Place) -> LinkPlan | None:
        """How the link from a place into this region is used."""
        found = (one for one in self.plan.links if (one.from_cluster, one.from_region) == place)
        return next(found, None)

    def _read(self) -> Plan:
        settings = self._settings
        if settings.plan_path.suffix == ".toml":
            plan = plan_of(load_group(settings.plan_path), settings.region)
        else:
            plan = _read_json(settings.plan_path)
        _check(plan, settings)
        return plan

    def _read_cause(self) -> str:
        try:
            with self._settings.plan_cause_path.open("rb") as file:
                return file.read(MAX_CHARACTERS).decode("ascii", "replace")
        except OSError:
            return ""

    def _state(self) -> tuple[int, int, int] | None:
        """What tells one file from the next. Its size, too: an editor empties and fills it within a tick of the clock
        that files are dated by, and whoever looked in between would never look again.
        """
        try:
            found = self._settings.plan_path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


class Place(NamedTuple):
    """A cluster and a region."""

    cluster: str
    region: str


def _read_json(path: Path) -> Plan:
    try:
        return Plan.from_json(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"the plan {path} cannot be read: {error.strerror}") from error
    except ContractError as error:
        raise SettingsError(f"the plan {path} cannot be used: {error}") from error


def _check(plan: Plan, settings: SidecarSettings) -> None:
    if plan.group_uid != settings.group_uid:
        raise SettingsError(f"the plan is of group {plan.group_uid}, this member belongs to {settings.group_uid}")
    if (plan.cluster, plan.region) != (settings.cluster, settings.region):
        raise SettingsError(f"the plan is for {plan.cluster}/{plan.region}, not {settings.cluster}/{settings.region}")
    if settings.member not in {member.name for member in plan.members}:
        raise SettingsError(f"the plan does not name the member {settings.member}")


def check_role(settings: SidecarSettings, plans: PlanWatch) -> None:
    """The plan and the settings must agree on who this is."""
    if plans.member.role.lower() != settings.role:
        raise SettingsError(f"the plan calls {settings.member} a {plans.member.role}, its settings a {settings.role}")
