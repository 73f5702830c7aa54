"""The cases of the operator's benchmark, each on a bed that is ready."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sync_runtime.contract import names
from sync_runtime.contract.figures.operator import GROUP_READY, REPLACEMENT_OWN_SECONDS, REPLACEMENT_SECONDS
from sync_runtime.contract.names import GroupKey
from tests.bench.operator_lab import (
    GROUPS_NAMESPACE,
    REMOTES,
    Lab,
    LabError,
    cluster_name,
    cpu_s,
    percentile,
    quantile,
    resident_mb,
    wait_for,
)
from tests.bench.report import Report
from tests.support.operators import OperatorProcess
from tools.devcluster.api import MERGE

SPEC_CHANGES: Final = 50
CHANGES_EVERY_S: Final = 0.2
EXPIRING: Final = 100
BATCH: Final = 50
"""Groups that are made at once."""


@dataclass(frozen=True)
class Context:
    """Where figures of one size go."""

    report: Report
    case: str
    groups: int
    believable: bool

    def figure(self, metric: str, value: float, unit: str, **more: Any) -> None:
        """One figure."""
        self.report.figure(self.case, metric, value, unit, believable=self.believable, **more)


def create_groups(lab: Lab, operator: OperatorProcess, groups: int) -> None:
    """All of them, batch after batch: more at once, and this machine's API servers are too slow for their members.

    Leases then expire by the hundred while groups are being made, and the bed never comes to rest.
    """
    for first in range(0, groups, BATCH):
        made = min(first + BATCH, groups)
        lab.create_groups(range(first, made))
        wait_for(partial(all_ready, operator, made), f"{made} groups ready", 600.0, 2.0)


def all_ready(operator: OperatorProcess, groups: int) -> bool:
    """Whether all groups are ready; raises LabError where nobody works on it any more.

    By the operator's own figures: a list of a thousand groups every other second is more than an idle hub has to do.
    """
    if operator.process.poll() is not None:
        raise LabError(f"the operator ended with {operator.process.returncode}: {operator.log.read_text()[-500:]}")
    try:
        found = operator.metrics()
    except OSError:  # it does not listen yet
        return False
    return _total(found, GROUP_READY.name) == groups


def steady_state(context: Context, lab: Lab, operator: OperatorProcess, seconds: float) -> None:
    """Nothing happens but renewals: what does that cost?"""
    pid = operator.process.pid
    drove, before, spent_s, started_s = lab.driver.ask("totals"), operator.metrics(), cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - started_s
    share = (cpu_s(pid) - spent_s) / took_s
    after, drive = operator.metrics(), lab.driver.ask("totals")
    context.figure("steady state, CPU", round(share, 3), "core", at_most=0.35)
    context.figure("steady state, resident memory", round(resident_mb(pid), 1), "MB", at_most=300.0)
    requests = _requests(after) - _requests(before)
    each = requests / context.groups / (took_s / 60)
    context.figure("requests per idle group and minute", round(each, 3), "1/min", at_most=1.0)
    passes = _total(after, "controller_runtime_reconcile_total") - _total(before, "controller_runtime_reconcile_total")
    context.figure("passes per group and minute", round(passes / context.groups / (took_s / 60), 3), "1/min")
    context.figure("renewals", round((drive["renewed"] - drove["renewed"]) / took_s, 1), "1/s")
    context.figure("renewals later than 2 s", drive["late"] - drove["late"], "")
    context.figure("members", drive["members"], "")


def spec_changes(context: Context, lab: Lab, operator: OperatorProcess) -> None:
    """A further rollout is asked for in one group after the other."""
    before = operator.metrics()
    waiting = change_specs(lab, min(SPEC_CHANGES, context.groups), CHANGES_EVERY_S)
    seen = _wait_seen(lab, dict.fromkeys(waiting, names.LOCAL_CLUSTER), set())
    after = operator.metrics()
    for part, goal in ((0.5, 0.1), (0.99, 1.0)):
        own_s = quantile(before, after, "syncgroup_reaction_seconds", 'why="spec"', part)
        context.figure(f"spec change seen to request, p{part * 100:.0f}", round(own_s, 4), "s", at_most=goal)
    ends = [seen[pod] - asked_s for pod, asked_s in waiting.items()]
    for part in (0.5, 0.99):
        context.figure(f"spec change to new pod, end to end, p{part * 100:.0f}", round(percentile(ends, part), 3), "s")


def change_specs(lab: Lab, count: int, every_s: float) -> dict[str, float]:
    """One rollout more in so many groups; the names of the pods to come, and when each was asked for."""
    waiting: dict[str, float] = {}
    for group in lab.groups()[:count]:
        name, rollouts = group["metadata"]["name"], group["spec"]["rollouts"]
        near = rollouts[0]
        pod = names.member_name(GroupKey(GROUPS_NAMESPACE, name), near["name"], near["replicas"])
        near["replicas"] += 1
        path = f"/apis/{names.GROUP_VERSION}/namespaces/{GROUPS_NAMESPACE}/syncgroups/{name}"
        waiting[pod] = time.monotonic()
        status, answer = lab.region.api("PATCH", path, {"spec": {"rollouts": rollouts}}, content_type=MERGE)
        if status != 200:
            raise LabError(f"{name} could not be changed: {answer}")
        time.sleep(every_s)
    return waiting


def expiry(context: Context, lab: Lab, operator: OperatorProcess) -> None:
    """A hundred members in all clusters fall silent at the same moment."""
    chosen = _rollouts(lab, min(EXPIRING, context.groups * 3))
    pods = {pod: cluster for cluster, found in chosen.items() for pod in found}
    known = {uid for rows in lab.driver.ask("seen", pods=pods).values() for uid, _ in rows}
    before = operator.metrics()
    lab.driver.ask("expire", members=chosen)
    time.sleep(10.0)
    renewed = lab.driver.ask("renewed", pods=pods)
    seen = _wait_seen(lab, pods, known, timeout_s=180.0)
    after = operator.metrics()
    for part, more in ((0.5, {}), (0.99, {"at_most": 0.3})):
        found_s = quantile(before, after, REPLACEMENT_SECONDS.name, "", part)
        metric = f"{len(pods)} expiring at once, judged to successor requested, p{part * 100:.0f}"
        context.figure(metric, round(found_s, 4), "s", **more)
        own_s = quantile(before, after, REPLACEMENT_OWN_SECONDS.name, "", part)
        context.figure(f"{metric}, without the API servers' share", round(own_s, 4), "s")
    ends = [moment_s - renewed[pod] for pod, moment_s in seen.items()]
    for part in (0.5, 0.99):
        metric = f"last renewal to successor created, end to end, p{part * 100:.0f}"
        context.figure(metric, round(percentile(ends, part), 2), "s")


def restart_and_hand_over(context: Context, lab: Lab) -> None:
    """A new process looks at everything and touches nothing; a second one takes over when it is told to go."""
    untouched = lab.child_versions()
    started_s = time.monotonic()
    with lab.hub.operator("operator-1") as first:
        wait_for(lambda: _value(first, "syncgroup_groups_observed") >= context.groups, "all groups observed", 300.0)
        context.figure("restart to all groups observed", round(time.monotonic() - started_s, 2), "s", at_most=60.0)
        time.sleep(5.0)
        after = lab.child_versions()
        touched = [key for key, version in after.items() if untouched.get(key) != version]
        gone = untouched.keys() - after.keys()
        context.figure("children touched by a restart", len(touched) + len(gone), "", at_most=0)
        with lab.hub.operator("operator-2") as second:
            wait_for(lambda: _value(second, "syncgroup_groups") >= context.groups, "the second replica watches", 120.0)
            time.sleep(5.0)
            told_s = time.monotonic()
            first.process.send_signal(signal.SIGTERM)
            passes = "controller_runtime_reconcile_total"
            wait_for(lambda: _value(second, passes) > 0, "the second replica acts", 60.0, 0.05)
            took_s = time.monotonic() - told_s
            context.figure("hand-over to first pass of the new leader", round(took_s, 2), "s", at_most=2.0)


def plain_kopf(context: Context, lab: Lab, seconds: float) -> None:
    """The same spec changes, renewals and pods for an operator of a few dozen lines that reacts to edges."""
    with _plain_operator(lab) as process:
        time.sleep(30.0 + context.groups * 0.1)
        spent_s, started_s = cpu_s(process.pid), time.monotonic()
        time.sleep(seconds)
        share = (cpu_s(process.pid) - spent_s) / (time.monotonic() - started_s)
        context.figure("plain kopf (watches the hub alone), steady state, CPU", round(share, 3), "core")
        context.figure("plain kopf, resident memory", round(resident_mb(process.pid), 1), "MB")
        waiting = change_specs(lab, min(SPEC_CHANGES, context.groups), CHANGES_EVERY_S)
        seen = _wait_seen(lab, dict.fromkeys(waiting, names.LOCAL_CLUSTER), set(), timeout_s=120.0)
        ends = [seen[pod] - asked_s for pod, asked_s in waiting.items()]
        for part in (0.5, 0.99):
            metric = f"plain kopf, spec change to new pod, end to end, p{part * 100:.0f}"
            context.figure(metric, round(percentile(ends, part), 3), "s")


@contextlib.contextmanager
def _plain_operator(lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    log = lab.hub.folder / "plain-kopf.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.plain_kopf_operator"],
            env=os.environ | {"KUBECONFIG": str(lab.region.kubeconfig), "BENCH_NAMESPACE": GROUPS_NAMESPACE},
            stdout=file,
            stderr=file,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _rollouts(lab: Lab, count: int) -> dict[str, list[str]]:
    """So many rollouts, one per group in turn, clusters in turn."""
    chosen: dict[str, list[str]] = {cluster_name(region): [] for region in ("us-east", *REMOTES)}
    groups = sorted(group["metadata"]["name"] for group in lab.groups())
    roles = (("near", names.LOCAL_CLUSTER), *((region, region) for region in REMOTES))
    for number in range(count):
        key = GroupKey(GROUPS_NAMESPACE, groups[number % len(groups)])
        role, cluster = roles[(number % len(groups) + number // len(groups)) % len(roles)]
        chosen[cluster].append(names.member_name(key, role, 0))
    return chosen


def _wait_seen(lab: Lab, pods: Mapping[str, str], known: set[str], timeout_s: float = 60.0) -> dict[str, float]:
    """When each of these pods was first seen, pods of known uids aside."""
    found: dict[str, float] = {}

    def all_there() -> bool:
        for pod, rows in lab.driver.ask("seen", pods=pods).items():
            fresh = [moment_s for uid, moment_s in rows if uid not in known]
            if fresh:
                found[pod] = fresh[0]
        return len(found) == len(pods)

    wait_for(all_there, f"{len(pods)} new pods", timeout_s)
    return found


def _requests(metrics: Mapping[str, float]) -> float:
    """Requests besides watches; the leader's own lease has a client of its own, which is not counted."""

    def counts(name: str) -> bool:
        return name.startswith("rest_client_requests_total") and 'verb="watch"' not in name

    return sum(value for name, value in metrics.items() if counts(name))


def _total(metrics: Mapping[str, float], name: str) -> float:
    return sum(value for key, value in metrics.items() if key.partition("{")[0] == name)


def _value(operator: OperatorProcess, name: str) -> float:
    """The sum of one family; 0 while the process is still starting."""
    try:
        return _total(operator.metrics(), name)
    except OSError:
        return 0.0
