"""The worst thing that a pod says about itself: what a user would find with `kubectl describe pod`, in one sentence.

Pure. Statuses come from kubelets of clusters that we do not run: every value may be missing or of another type, and no
text of theirs is taken as a reason unless it is one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sync_runtime.contract import patterns
from syncgroup_operator import reasons
from syncgroup_operator.planning.observation import PodTrouble

MAX_MESSAGE_CHARACTERS: Final = 256
OUT_OF_MEMORY: Final = "OOMKilled"
CRASHING: Final = "CrashLoopBackOff"
_HARMLESS: Final = frozenset({"ContainerCreating", "PodInitializing", "Completed"})
# Worst first: what ends a container comes before what keeps it from starting, and what a user must mend before what
# may pass by itself.
_ORDER: Final = (
    OUT_OF_MEMORY,
    CRASHING,
    "RunContainerError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "ErrImagePull",
)
_RANK: Final = {reason: rank for rank, reason in enumerate(_ORDER)}
_ONE_WORD: Final = re.compile(patterns.CAMEL_REASON)

Status = Mapping[str, Any]


def trouble_of(status: Status, *, ready: bool) -> PodTrouble | None:
    """What is wrong with a pod of this status; None where nothing is, or nothing yet."""
    if status.get("phase") == "Failed":
        return _failed(status)
    if ready:
        return None
    found = [trouble for container in containers_of(status) if (trouble := _container_trouble(container)) is not None]
    if found:
        return min(found, key=lambda trouble: _RANK.get(trouble.reason, len(_RANK)))
    return unschedulable(status)


def unschedulable(status: Status) -> PodTrouble | None:
    """The scheduler's own words where it finds no node."""
    for condition in _mappings(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = word(condition.get("reason"), reasons.UNSCHEDULABLE)
            return PodTrouble(reason, sentence(condition.get("message"), "no node takes the pod"))
    return None


def containers_of(status: Status) -> Iterator[Status]:
    """The statuses of all containers; sidecars are among the init containers."""
    for field in ("initContainerStatuses", "containerStatuses"):
        yield from _mappings(status.get(field))


def word(value: object, otherwise: str) -> str:
    """A reason, if it is one."""
    return value if isinstance(value, str) and len(value) <= 128 and _ONE_WORD.fullmatch(value) else otherwise


def sentence(value: object, otherwise: str = "") -> str:
    """A message of somebody else, in one short line."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return (text or otherwise)[:MAX_MESSAGE_CHARACTERS]


def _failed(status: Status) -> PodTrouble:
    reason = word(status.get("reason"), "")
    if reason:  # the kubelet or a controller ended it: Evicted, NodeLost, Preempting, DeadlineExceeded …
        return PodTrouble(reason, sentence(status.get("message"), "the pod failed"))
    ended = [
        (container, state)
        for container in containers_of(status)
        if (state := _state(container, "state", "terminated")) is not None and state.get("exitCode") != 0
    ]
    if not ended:
        return PodTrouble(reasons.POD_FAILED, sentence(status.get("message"), "the pod failed"))
    container, state = min(ended, key=lambda pair: _RANK.get(word(pair[1].get("reason"), ""), len(_RANK)))
    return _terminated(container, state)


def _container_trouble(container: Status) -> PodTrouble | None:
    last = _state(container, "lastState", "terminated")
    if last is not None and last.get("reason") == OUT_OF_MEMORY and container.get("ready") is not True:
        return _terminated(container, last)
    waiting = _state(container, "state", "waiting")
    if waiting is not None:
        reason = word(waiting.get("reason"), "")
        if not reason or reason in _HARMLESS:
            return None
        message = sentence(waiting.get("message"), "the container waits")
        if reason == CRASHING and last is not None:
            message = sentence(f"{_how_it_ended(last)}; {message}")
        return PodTrouble(reason, message, _name(container))
    ended = _state(container, "state", "terminated")
    if ended is not None and ended.get("exitCode") != 0:
        return _terminated(container, ended)
    return None


def _terminated(container: Status, state: Status) -> PodTrouble:
    reason = word(state.get("reason"), "Error")
    message = _how_it_ended(state)
    if reason == OUT_OF_MEMORY:
        message = f"ran out of memory: raise its limit; {message}"
    return PodTrouble(reason, sentence(message), _name(container))


def _how_it_ended(state: Status) -> str:
    code, signal = state.get("exitCode"), state.get("signal")
    ended = f"ended with exit code {code}" if isinstance(code, int) else "ended"
    if isinstance(signal, int) and signal:
        ended += f" by signal {signal}"
    said = sentence(state.get("message"))
    return f"{ended}: {said}" if said else ended


def _state(container: Status, when: str, what: str) -> Status | None:
    states = container.get(when)
    state = states.get(what) if isinstance(states, dict) else None
    return state if isinstance(state, dict) else None


def _name(container: Status) -> str:
    return sentence(container.get("name"))[:63]


def _mappings(value: object) -> Iterator[Status]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
