"""The plan of a member in a pod: the ConfigMap that the operator writes, copied into the plan's file.

One loop: list, then watch from there until the server ends it, a minute at most; so every change is seen at once, and
a watch that has silently died costs no more than that minute. Only a plan that can be read, of this group, and not
older than the one before replaces the file; it is replaced whole. Knows nothing of what a plan makes a member do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import Any, Final

from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.names import ANNOTATION_TRACEPARENT, PLAN_KEY
from sync_runtime.contract.plan import Plan
from sync_runtime.identity.files import PUBLIC_MODE, write_file
from sync_runtime.membership.api import ClusterApi, Document, refused
from sync_runtime.membership.errors import MembershipError
from sync_runtime.membership.keeper import next_pause_s
from sync_runtime.pod.errors import UnusablePlanError
from sync_runtime.settings import SidecarSettings
from sync_runtime.telemetry.context import parse_traceparent

WATCH_S: Final = 60
"""How long a watch lasts before the plan is listed again."""
SILENCE_S: Final = 90.0
"""A watch of which nothing is heard for longer is dead: the server should have ended it."""
MOST_PAUSE_S: Final = 60
LEAST_WATCH_S: Final = 1.0
"""A watch that the server ends sooner counts as a failure: or the two would go round and round."""
GONE: Final = 410

_log = logging.getLogger(__name__)


class PlanSource:
    """Keeps the plan's file as the ConfigMap says, for as long as it runs."""

    def __init__(self, api: ClusterApi, settings: SidecarSettings) -> None:
        self._api = api
        self._settings = settings
        self._path = f"/api/v1/namespaces/{settings.pod_namespace}/configmaps"
        self._named = [("fieldSelector", f"metadata.name={settings.plan_config_map}")]
        self._newest = _number_in(settings)
        self._failures = 0
        self._refused: str | None = None
        """The resource version of a document that was looked at and is no use."""
        self.problem: str | None = None
        """Why there is no newer plan, in a sentence."""

    @property
    def has_plan(self) -> bool:
        """Whether the file holds a plan, of now or of an earlier start."""
        return self._newest is not None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began_s = time.monotonic()
            try:
                await self._watch(await self._list())
                _check_lasted(time.monotonic() - began_s)
                self._watching()
            except (MembershipError, OSError) as error:
                self._failed(str(error))
                pause_s = next_pause_s(MOST_PAUSE_S, self._failures, random.random())  # noqa: S311 jitter
                await asyncio.sleep(pause_s)

    async def _list(self) -> str:
        """Takes the plan as it is now; returns the resource version to watch from."""
        status, found = await self._api.request("GET", self._path, query=self._named)
        if status != 200:
            raise refused("the plan", status, found)
        items = found.get("items") or []
        if items:
            self._take(items[0])
        elif not self.has_plan:
            self._say(f"the ConfigMap {self._settings.plan_config_map} with the plan does not exist yet")
        return str((found.get("metadata") or {}).get("resourceVersion", ""))

    async def _watch(self, version: str) -> None:
        """Takes what changes, until the server ends the watch or no longer knows the version."""
        seconds = str(round(WATCH_S * (0.75 + random.random() / 2)))  # noqa: S311 not all members at once
        query = [
            *self._named,
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", seconds),
        ]
        async with contextlib.aclosing(self._api.watch(self._path, query, silence_s=SILENCE_S)) as events:
            async for event in events:
                self._watching()
                document = event.get("object")
                if not isinstance(document, dict):
                    continue
                match event.get("type"):
                    case "ADDED" | "MODIFIED":
                        self._take(document)
                    case "DELETED":
                        _log.warning("the ConfigMap of the plan was deleted; the last plan stays in force")
                    case "ERROR" if document.get("code") != GONE:
                        raise refused("the watch of the plan", int(document.get("code") or 0), document)
                    case "ERROR":
                        return
                    case _:
                        continue

    def _take(self, document: Document) -> None:
        """Writes the plan in a ConfigMap into its file, if it is one."""
        version = str((document.get("metadata") or {}).get("resourceVersion", ""))
        if version == self._refused:
            return
        try:
            text, number = readable(document, self._settings, self._newest)
        except UnusablePlanError as error:
            self._refused = version
            self._say(f"the plan in force stays: {error}" if self.has_plan else str(error))
            return
        self._newest, self.problem, self._refused = number, None, None
        path = self._settings.plan_path
        if _read(self._settings) != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            # First: whoever sees the new plan finds what caused it.
            write_file(self._settings.plan_cause_path, cause_of(document), mode=PUBLIC_MODE, replace=True)
            write_file(path, text, mode=PUBLIC_MODE, replace=True)
            _log.info("plan %d of term %d was received", number[1], number[0])

    def _watching(self) -> None:
        if self._failures:
            _log.info("the plan is watched again after %d failures", self._failures)
        self._failures = 0

    def _failed(self, sentence: str) -> None:
        if not self._failures:  # once per outage
            _log.warning("the plan cannot be watched, the last one stays in force: %s", sentence)
        self._failures += 1
        self.problem = sentence

    def _say(self, sentence: str) -> None:
        if sentence != self.problem:
            _log.warning("%s", sentence)
        self.problem = sentence


def _check_lasted(spent_s: float) -> None:
    if spent_s < LEAST_WATCH_S:
        raise MembershipError("the API server ends watches at once")


def readable(
    document: Document, settings: SidecarSettings, newest: tuple[int, int] | None
) -> tuple[bytes, tuple[int, int]]:
    """The plan in a ConfigMap as it goes into the file, and its number; raises UnusablePlanError."""
    data: Any = document.get("data")
    text = data.get(PLAN_KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise UnusablePlanError(f"the ConfigMap {settings.plan_config_map} has no {PLAN_KEY}")
    try:
        plan = Plan.from_json(text)
    except ContractError as error:
        raise UnusablePlanError(f"the ConfigMap {settings.plan_config_map} holds no plan: {error}") from error
    if plan.group_uid != settings.group_uid:
        raise UnusablePlanError(f"the plan is of group {plan.group_uid}, this member belongs to {settings.group_uid}")
    if (plan.cluster, plan.region) != (settings.cluster, settings.region):
        raise UnusablePlanError(f"the plan is for {plan.cluster}/{plan.region}, this is another place")
    number = plan.term, plan.revision
    if newest is not None and number < newest:
        raise UnusablePlanError(f"plan {plan.revision} of term {plan.term} is older than the one in force")
    return text.encode(), number


def cause_of(document: Document) -> bytes:
    """The operator's span that made this plan, as its ConfigMap names it; nothing where it names none."""
    annotations: Any = (document.get("metadata") or {}).get("annotations")
    found = annotations.get(ANNOTATION_TRACEPARENT) if isinstance(annotations, dict) else None
    is_context = isinstance(found, str) and parse_traceparent(found) is not None
    return str(found).encode("ascii") if is_context else b""


def _read(settings: SidecarSettings) -> bytes | None:
    try:
        return settings.plan_path.read_bytes()
    except OSError:
        return None


def _number_in(settings: SidecarSettings) -> tuple[int, int] | None:
    """The number of the plan that an earlier start of this pod's sidecar left."""
    text = _read(settings)
    if text is None:
        return None
    try:
        plan = Plan.from_json(text)
    except ContractError:
        return None
    return (plan.term, plan.revision) if plan.group_uid == settings.group_uid else None
