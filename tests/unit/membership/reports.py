"""A small report of a member."""

from __future__ import annotations

import datetime
from typing import Any

from sync_runtime.contract.reports import MemberReport
from sync_runtime.membership.documents import LeaseName

NOW = datetime.datetime(2027, 1, 31, 12, 0, 0, tzinfo=datetime.UTC)
NAME = LeaseName("worker-0", holder="first", labels={"syncgroup.dev/group": "demo"})


def report(**changes: Any) -> MemberReport:
    document = {
        "formatVersion": 1,
        "groupUid": "0a1b",
        "member": "worker-0",
        "role": "Rollout",
        "cluster": "local",
        "region": "eu-west",
        "runtimeVersion": "0.1.0",
        "maxPlanFormat": 1,
        "state": "Serving",
        "term": 1,
        "planRevision": 1,
    }
    return MemberReport.parse(document | changes)
