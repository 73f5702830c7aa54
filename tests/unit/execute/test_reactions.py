"""From a wake-up to the first request that it caused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sync_runtime.contract.names import GroupKey
from syncgroup_operator.execute.reactions import SPEC, Reactions
from syncgroup_operator.execute.timings import Timings
from syncgroup_operator.kube.connection import on_send

KEY = GroupKey("ml", "grpo")


class Clock:
    """Moves when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def asked(verb: str, kind: str, name: str) -> Callable[[], None]:
    """A request leaves; what is returned is its answer."""
    told = on_send.get()
    assert told is not None
    return told(verb, kind, name)


def send(verb: str = "apply", kind: str = "Service", name: str = "grpo-members") -> None:
    asked(verb, kind, name)()


def total(timings: Timings, name: str, **labels: str) -> list[float]:
    """How many, and their sum."""
    found = timings.registry.get_sample_value
    return [found(f"{name}_{part}", labels) or 0.0 for part in ("count", "sum")]


def test_the_first_request_of_a_pass_ends_the_reaction_and_later_ones_do_not_count() -> None:
    clock, timings = Clock(), Timings()
    reactions = Reactions(timings, clock)
    reactions.woken(KEY, SPEC)
    clock.now_s += 1.0
    reactions.woken(KEY, "pod")  # the first of several counts
    with reactions.timed(KEY, lambda: False):
        clock.now_s += 0.5
        send()
        clock.now_s += 5.0
        send()
    assert total(timings, "syncgroup_reaction_seconds", why=SPEC) == pytest.approx([1.0, 1.5])
    assert total(timings, "syncgroup_reaction_seconds", why="pod") == [0.0, 0.0]
    assert on_send.get() is None


def test_a_pass_that_only_waits_keeps_the_wake_up_and_one_without_work_ends_it() -> None:
    clock, timings = Clock(), Timings()
    reactions = Reactions(timings, clock)
    reactions.woken(KEY, SPEC)
    with reactions.timed(KEY, lambda: True):
        clock.now_s += 1.0
    assert reactions.is_woken(KEY)
    with reactions.timed(KEY, lambda: True):
        clock.now_s += 1.0
        send()
    assert total(timings, "syncgroup_reaction_seconds", why=SPEC) == pytest.approx([1.0, 2.0])
    reactions.woken(KEY, SPEC)
    with reactions.timed(KEY, lambda: False):
        clock.now_s += 1.0
    assert not reactions.is_woken(KEY)


def test_what_happens_during_a_pass_wakes_the_next() -> None:
    reactions = Reactions(Timings(), Clock())
    reactions.woken(KEY, SPEC)
    with reactions.timed(KEY, lambda: False):
        reactions.woken(KEY, "lease")
    assert reactions.is_woken(KEY)


def test_a_successor_is_timed_from_the_judgement_in_whatever_pass_it_is_asked_for() -> None:
    clock, timings = Clock(), Timings()
    reactions = Reactions(timings, clock)
    with reactions.timed(KEY, lambda: False):
        reactions.judged(KEY, "west-0")
        clock.now_s += 0.1
        send("delete", "Pod", "west-0")
        send("apply", "Pod", "west-1")
    assert total(timings, "syncgroup_replacement_seconds")[0] == 0.0
    with reactions.timed(KEY, lambda: False):
        clock.now_s += 0.1
        send("create", "Pod", "west-0")
        send("apply", "Pod", "west-0")
    assert total(timings, "syncgroup_replacement_seconds") == pytest.approx([1.0, 0.2])


def test_what_the_api_servers_take_is_told_apart_from_the_operator_s_own_share() -> None:
    clock, timings = Clock(), Timings()
    reactions = Reactions(timings, clock)
    with reactions.timed(KEY, lambda: False):
        before = asked("list", "Lease", "all")
        clock.now_s += 3.0
        before()  # before the verdict: nobody's wait
        reactions.judged(KEY, "west-0")
        clock.now_s += 0.1
        record, other = asked("apply", "ConfigMap", "record"), asked("apply", "Role", "members")
        clock.now_s += 1.0
        record()
        clock.now_s += 1.0
        other()  # side by side with the first: two seconds in all
        clock.now_s += 0.2
        asked("create", "Pod", "west-0")()
    assert total(timings, "syncgroup_replacement_seconds") == pytest.approx([1.0, 2.3])
    assert total(timings, "syncgroup_replacement_own_seconds") == pytest.approx([1.0, 0.3])


def test_only_what_somebody_asked_for_is_urgent() -> None:
    reactions = Reactions(Timings(), Clock())
    reactions.woken(KEY, "pod")
    assert not reactions.is_urgent(KEY)
    reactions.woken(KEY, SPEC)  # before the pass that the pod had caused
    assert reactions.is_urgent(KEY)
    with reactions.timed(KEY, lambda: True):
        assert not reactions.is_urgent(KEY)
    assert reactions.is_urgent(KEY)  # the pass only waited: what was asked for is still to do
    with reactions.timed(KEY, lambda: False):
        pass
    assert not reactions.is_urgent(KEY)
    reactions.woken(KEY, SPEC)
    reactions.forget(KEY)
    assert not reactions.is_urgent(KEY)
