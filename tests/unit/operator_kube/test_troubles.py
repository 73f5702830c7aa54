"""The worst thing that a pod says about itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncgroup_operator.kube.troubles import trouble_of
from syncgroup_operator.planning.observation import PodTrouble


def waiting(reason: str, name: str = "main", message: str = "why", **changes: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "state": {"waiting": {"reason": reason, "message": message}}} | changes


def terminated(reason: str, code: int, name: str = "main") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"reason": reason, "exitCode": code}}}


def trouble(*containers: dict[str, Any], ready: bool = False, **status: Any) -> PodTrouble | None:
    return trouble_of({"phase": "Pending", "containerStatuses": list(containers)} | status, ready=ready)


@pytest.mark.parametrize(
    "reason",
    ["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName", "Odd"],
)
def test_a_waiting_reason_is_shown_with_its_container(reason: str) -> None:
    assert trouble(waiting(reason)) == PodTrouble(reason, "why", "main")
    assert trouble(initContainerStatuses=[waiting(reason, "sync-runtime")]) == PodTrouble(reason, "why", "sync-runtime")


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", "", "two words", "x" * 200])
def test_what_is_harmless_or_no_reason_is_no_trouble(reason: str) -> None:
    assert trouble(waiting(reason)) is None


def test_the_worst_of_several_wins() -> None:
    found = trouble(waiting("ErrImagePull", "a"), waiting("CrashLoopBackOff", "b"), waiting("Odd", "c"))
    assert found is not None
    assert (found.reason, found.container) == ("CrashLoopBackOff", "b")


def test_memory_is_named_as_the_cause_of_a_crash_loop() -> None:
    last = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    found = trouble(waiting("CrashLoopBackOff", lastState=last))
    assert found is not None
    assert found.reason == "OOMKilled"
    assert "raise its limit" in found.message
    assert "137" in found.message


def test_a_crash_loop_says_how_it_ended() -> None:
    last = {"terminated": {"reason": "Error", "exitCode": 3, "message": "no\nsuch file"}}
    found = trouble(waiting("CrashLoopBackOff", lastState=last))
    assert found is not None
    assert found.message == "ended with exit code 3: no such file; why"


def test_a_container_that_recovered_from_memory_is_no_trouble() -> None:
    last = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    assert trouble({"name": "main", "ready": True, "state": {"running": {}}, "lastState": last}) is None
    assert trouble(waiting("CrashLoopBackOff"), ready=True) is None


def test_an_unschedulable_pod_quotes_the_scheduler() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert trouble(conditions=[condition]) == PodTrouble("Unschedulable", "0/3 nodes")
    assert trouble(conditions=[condition | {"status": "True"}]) is None


def test_a_failed_pod_says_who_ended_it_or_which_container_did() -> None:
    assert trouble(phase="Failed", reason="Evicted", message="disk") == PodTrouble("Evicted", "disk")
    found = trouble(terminated("Completed", 0), terminated("Error", 2, "b"), phase="Failed")
    assert found == PodTrouble("Error", "ended with exit code 2", "b")
    assert trouble(phase="Failed") == PodTrouble("PodFailed", "the pod failed")


def test_long_messages_are_cut_to_one_line() -> None:
    found = trouble(waiting("ErrImagePull", message="a\n" * 5000))
    assert found is not None
    assert len(found.message) == 256
    assert "\n" not in found.message


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["phase", "reason", "state", "lastState", "waiting", "terminated", "conditions", "type", "name", "ready",
             "containerStatuses", "initContainerStatuses", "status", "exitCode", "message"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@given(status=st.dictionaries(st.sampled_from(["phase", "containerStatuses", "conditions", "reason"]), anything))
def test_no_status_is_an_error(status: dict[str, Any]) -> None:
    for phase in ("Failed", "Pending"):
        found = trouble_of(status | {"phase": phase}, ready=False)
        assert found is None or (found.reason and len(found.message) <= 256)
