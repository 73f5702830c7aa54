"""A sidecar in a pod before it is whole: it waits for its plan and its certificate, and says so.

It answers its probes from the first moment (alive, not ready, and why), so that no slow hub makes the kubelet restart
it, and renews its lease with what it waits for, so that the operator sees a member that lives. Knows nothing of
weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sync_runtime.contract.figures.runtime import STARTING
from sync_runtime.contract.policies import LeasePolicy
from sync_runtime.contract.reports import MemberReport
from sync_runtime.control.exposition import Reading
from sync_runtime.errors import SettingsError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.names import expect
from sync_runtime.membership.documents import LeaseTimes
from sync_runtime.membership.keeper import LeaseKeeper
from sync_runtime.pod.provision import Provision
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.parts import lease_of, release
from sync_runtime.sidecar.plans import PlanWatch, check_role

LOOK_S: Final = 0.2
SAY_EVERY_S: Final = 60.0
_log = logging.getLogger(__name__)


class Starting:
    """The view of a sidecar that is not whole yet, and the wait for what makes it so."""

    def __init__(self, settings: SidecarSettings, provision: Provision) -> None:
        self._settings, self._provision = settings, provision
        self._waiting: list[str] = ["the start has just begun"]
        self._plan: tuple[object, list[str]] = (None, [])
        """A plan's file as it was looked at, and what is wrong with it."""
        self.draining = False

    async def wait(self, stop: asyncio.Event) -> bool:
        """Until plan and certificate can be used; False: it is to stop before that."""
        policy = LeasePolicy()
        times = LeaseTimes(policy.duration_seconds, policy.renew_interval_seconds)
        keeper = LeaseKeeper(lease_of(self._settings), self.report, lambda: times)
        renewing = asyncio.create_task(keeper.run())
        try:
            return await self._look(stop, keeper.wake)
        finally:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing

    async def _look(self, stop: asyncio.Event, wake: Callable[[], None]) -> bool:
        loop = asyncio.get_running_loop()
        said: tuple[list[str], float] | None = None
        while not stop.is_set():
            self._waiting = await asyncio.to_thread(self._missing)
            if not self._waiting:
                return True
            if said is None or said[0] != self._waiting or loop.time() - said[1] >= SAY_EVERY_S:
                said = self._waiting, loop.time()
                _log.info("the sidecar of %s waits: %s", self._settings.member, "; ".join(self._waiting))
                wake()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
        return False

    def _missing(self) -> list[str]:
        """What keeps the sidecar from being whole, in sentences; empty: nothing."""
        return [*self._about_plan(), *_about_certificate(self._settings, self._provision)]

    def _about_plan(self) -> list[str]:
        try:
            state = self._settings.plan_path.stat()
        except OSError:
            return [f"the plan has not come yet: {self._provision.plan.problem or 'it is being fetched'}"]
        found = state.st_mtime_ns, state.st_ino
        if self._plan[0] != found:
            try:
                check_role(self._settings, PlanWatch(self._settings))
            except SettingsError as error:  # a plan from before this member was one; the next one names it
                self._plan = found, [str(error)]
            else:
                self._plan = found, []
        return self._plan[1]

    def report(self) -> MemberReport:
        """How it is: starting, and why it is not further."""
        settings = self._settings
        reason, message = self._provision.trouble or ("Starting", "; ".join(self._waiting) or "almost there")
        return MemberReport.model_validate(
            {
                "format_version": 1,
                "group_uid": settings.group_uid,
                "member": settings.member,
                "role": "Trainer" if settings.role == "trainer" else "Rollout",
                "cluster": settings.cluster,
                "region": settings.region,
                "runtime_version": release(),
                "max_plan_format": 1,
                "state": "Starting",
                "trouble": {"reason": reason, "message": message[:200]},
                "term": settings.term,
                "plan_revision": 0,
            },
            by_name=True,
        )

    def live(self) -> Sequence[str]:
        """A process that answers is alive."""
        return []

    def ready(self) -> Sequence[str]:
        """What it waits for."""
        return self._waiting or ["almost there"]

    def status(self) -> Mapping[str, object]:
        """The member report, and what it waits for."""
        return {"report": self.report().to_document(), "waitsFor": list(self.ready()), "draining": self.draining}

    def links(self) -> Mapping[str, object]:
        """None yet."""
        return {"links": [], "reports": []}

    def versions(self) -> Mapping[str, object]:
        """The spool is not open yet."""
        return {"objects": [], "partial": []}

    def refusals(self) -> Mapping[str, int]:
        """Nobody was refused."""
        return {}

    def metrics(self) -> Sequence[Reading]:
        """That it is starting."""
        return [Reading(STARTING, 1.0)]

    @property
    def work(self) -> None:
        """There is none yet."""
        return None

    async def drain(self) -> Mapping[str, object]:
        """Nothing is in flight."""
        self.draining = True
        return {"draining": True, "drained": True}

    async def reload(self) -> None:
        """Looks all the time anyway."""


def _about_certificate(settings: SidecarSettings, provision: Provision) -> list[str]:
    try:
        identity = read_folder(settings.identity_dir).identity
        expect(identity, group_uid=settings.group_uid, roles=(settings.role,), member=settings.member)
    except IdentityError:
        _, why = provision.certificate.trouble or ("", "it is being asked for")
        return [f"the certificate has not come yet: {why}"]
    return []
