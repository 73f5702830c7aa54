"""The state machines: every listed move, and that nothing else moves."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import IllegalEventError
from sync_runtime.session.machine import (
    PUBLISHING,
    SERVICE,
    TRANSFER,
    Machine,
    PublishEffect,
    PublishEvent,
    PublishState,
    ServiceEffect,
    ServiceEvent,
    ServiceState,
    TransferEffect,
    TransferEvent,
    TransferState,
    publisher_machine,
    service_machine,
    transfer_machine,
)

MACHINES: dict[str, tuple[Any, Any, Any, Any]] = {
    "publisher": (PUBLISHING, PublishState, PublishEvent, publisher_machine),
    "service": (SERVICE, ServiceState, ServiceEvent, service_machine),
    "transfer": (TRANSFER, TransferState, TransferEvent, transfer_machine),
}
FINAL = {TransferState.DONE, TransferState.DROPPED}


@pytest.mark.parametrize("name", MACHINES)
def test_an_event_that_is_not_listed_raises_and_moves_nothing(name: str) -> None:
    table, states, events, _ = MACHINES[name]
    for state, event in itertools.product(states, events):
        machine: Machine[Any, Any, Any] = Machine(table, state)
        if (state, event) in table:
            assert machine.allows(event)
            assert machine.feed(event) == table[state, event].effects
            assert machine.state is table[state, event].state
        else:
            with pytest.raises(IllegalEventError, match=event.name):
                machine.feed(event)
            assert machine.state is state


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_can_be_reached_and_left(name: str) -> None:
    table, states, _, make = MACHINES[name]
    reached, edge = {make().state}, {make().state}
    while edge:
        edge = {step.state for (state, _), step in table.items() if state in edge} - reached
        reached |= edge
    assert reached == set(states)
    assert {state for state, _ in table} == set(states) - FINAL


@pytest.mark.parametrize("name", ["publisher", "service"])
def test_a_library_may_die_in_every_state_but_the_first(name: str) -> None:
    _, states, events, make = MACHINES[name]
    first, gone = make().state, events["LIBRARY_GONE"]
    for state in states:
        machine: Machine[Any, Any, Any] = Machine(MACHINES[name][0], state)
        assert machine.allows(gone) == (state is not first)
        if state is not first:
            machine.feed(gone)
            assert machine.state is first


def test_nothing_of_a_failed_publish_stays() -> None:
    for state in (PublishState.WRITING, PublishState.COMMITTING):
        assert PublishEffect.ABORT_OBJECT in Machine(PUBLISHING, state).feed(PublishEvent.FAILED)
    assert PublishEffect.ABORT_OBJECT in Machine(PUBLISHING, PublishState.WRITING).feed(PublishEvent.LIBRARY_GONE)


@given(st.lists(st.sampled_from(list(PublishEvent)), max_size=40))
def test_a_version_is_announced_only_after_it_became_durable(events: list[PublishEvent]) -> None:
    machine = publisher_machine()
    durable = False
    for event in events:
        if not machine.allows(event):
            continue
        durable = event is PublishEvent.DURABLE
        if PublishEffect.ADVANCE in machine.feed(event):
            assert durable


@given(st.lists(st.sampled_from(list(ServiceEvent)), max_size=40))
def test_results_are_trusted_only_after_a_scrub_or_a_full_digest(events: list[ServiceEvent]) -> None:
    machine = service_machine()
    for event in events:
        if machine.allows(event) and ServiceEffect.TRUST in machine.feed(event):
            assert event in (ServiceEvent.SCRUB_PASSED, ServiceEvent.LEVEL)


@given(st.lists(st.sampled_from(list(TransferEvent)), max_size=30))
def test_a_list_reaches_the_library_only_with_the_right_digest_and_from_a_durable_object(
    events: list[TransferEvent],
) -> None:
    machine = transfer_machine()
    committed = False
    for event in events:
        if not machine.allows(event):
            continue
        effects = machine.feed(event)
        committed |= TransferEffect.COMMIT in effects
        if TransferEffect.HAND_OVER in effects:
            assert event is TransferEvent.LIST_RIGHT
            assert committed


def test_a_staged_list_that_died_with_its_process_is_decoded_again() -> None:
    machine = transfer_machine()
    for event in (TransferEvent.ALL_KEPT, TransferEvent.BASE_READY, TransferEvent.LIST_RIGHT):
        machine.feed(event)
    machine.feed(TransferEvent.LIBRARY_GONE)
    assert machine.feed(TransferEvent.BASE_READY) == (TransferEffect.DECODE,)
