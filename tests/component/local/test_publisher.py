"""A trainer's library against a sidecar on a real socket; either end may die."""

import os
import signal
import threading
import time

import pytest
import torch

from sync_runtime.errors import (
    LayoutError,
    LocalError,
    SidecarLostError,
    SpoolFullError,
)
from sync_runtime.library.publisher import Publisher
from sync_runtime.local import messages as m
from tests.component.local.rig import Pair, eventually, small_state, train
from tests.support.toy_sidecar import toy_sidecar

pytestmark = pytest.mark.timeout(30)


def test_a_full_spool_leaves_training_going_and_the_next_version_whole(path: str, pair: Pair) -> None:
    weights = small_state()
    with Publisher(weights, socket=path) as publisher:
        train(weights)
        pair[0].fail[m.Publish] = SpoolFullError("no room")
        with pytest.raises(SpoolFullError, match="no room") as caught:
            publisher.publish()
        assert caught.value.retry_helps
        assert publisher.version is not None
        assert publisher.version.seq == 0
        train(weights)
        assert publisher.publish().seq == 1


def test_a_publish_that_fails_half_way_is_void(path: str, pair: Pair) -> None:
    weights = {"w": torch.zeros(100_000), "z": torch.zeros(100_000)}
    with Publisher(weights, socket=path) as publisher:
        good = weights["z"]
        weights["z"] = torch.zeros(3)
        with pytest.raises(LayoutError, match="'z' has become"):
            publisher.publish()
        weights["z"] = good
        assert publisher.publish(step=1).seq == 1
        assert not any(isinstance(message, m.Error) for message in pair[0].said)


def test_a_publisher_goes_on_when_its_sidecar_is_back(path: str) -> None:
    weights = small_state()
    with toy_sidecar(path) as (sidecar, _):
        publisher = Publisher(weights, socket=path, patience=0.3)
        train(weights)
        first = publisher.publish()
    train(weights)
    began = time.monotonic()
    with pytest.raises(SidecarLostError) as caught:
        publisher.publish()
    assert caught.value.retry_helps
    assert time.monotonic() - began < 3.0
    assert publisher.version == first
    with toy_sidecar(path, sidecar):
        with publisher:
            train(weights)
            publisher._patience_s = 5.0
            second = publisher.publish()
        assert (second.lineage, second.seq) == (first.lineage, first.seq + 1)
        assert [message.resume for message in sidecar.said if isinstance(message, m.Open)] == [False, True]


def test_a_publisher_starts_a_lineage_where_the_new_sidecar_knows_nothing(path: str) -> None:
    weights = small_state()
    with toy_sidecar(path):
        publisher = Publisher(weights, socket=path)
        first = publisher.publish()
    eventually(lambda: not publisher._session._connection.is_open)  # type: ignore[attr-defined]  # it has noticed
    with toy_sidecar(path) as (fresh, _), publisher:
        train(weights)
        second = publisher.publish(step=9)
        assert second.lineage != first.lineage
        opens = [(message.resume, message.state) for message in fresh.said if isinstance(message, m.Open)]
        assert opens == [(True, False), (False, True)]


def test_a_sidecar_that_dies_in_the_middle_of_a_publish_is_an_error_that_a_retry_mends(path: str, pair: Pair) -> None:
    weights = small_state()
    with Publisher(weights, socket=path) as publisher:
        train(weights)
        pair[0].hang_up_on = m.End
        with pytest.raises(SidecarLostError):
            publisher.publish()
        assert publisher.publish().seq == 1


@pytest.mark.usefixtures("pair")
def test_a_sidecar_that_was_gone_before_a_publish_began_is_waited_for(path: str) -> None:
    weights = small_state()
    with Publisher(weights, socket=path) as publisher:
        train(weights)
        connection = publisher._session._connection  # type: ignore[attr-defined]
        with connection.changed:  # until `publish` waits, the background thread cannot tell that it is gone
            connection.channel.close()
            assert publisher.publish().seq == 1


def test_a_publish_that_was_interrupted_while_it_waited_is_settled_by_opening_again(path: str, pair: Pair) -> None:
    sidecar, _ = pair
    weights = small_state()
    with Publisher(weights, socket=path) as publisher:
        sidecar.silent = True  # the version becomes durable and nobody is told
        # A shell's background job ignores SIGINT, and so would this process.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        train(weights)

        def interrupt() -> None:
            """Not before the version is durable: until then it would be none, and nobody here expects the signal."""
            eventually(lambda: len(sidecar.versions) == 2)
            time.sleep(0.1)  # it waits for the answer then
            os.kill(os.getpid(), signal.SIGINT)

        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 the signal comes while it waits
                threading.Thread(target=interrupt).start()
                publisher.publish()
        finally:
            signal.signal(signal.SIGINT, before)
        sidecar.silent = False
        train(weights)
        assert publisher.publish().seq == 2
        assert [one.resume for one in sidecar.said if isinstance(one, m.Open)] == [False, True]


def test_after_a_fork_the_child_is_told_and_the_parent_goes_on(path: str, pair: Pair) -> None:
    weights = small_state()
    with Publisher(weights, socket=path) as publisher:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                publisher.publish()
            except LocalError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read, "rb") as told:
            assert b"before a fork" in told.read()
        assert publisher.publish().seq == 1


def test_a_closed_publisher_and_a_missing_sidecar_say_so(path: str, pair: Pair) -> None:
    publisher = Publisher(small_state(), socket=path)
    assert publisher.close()
    with pytest.raises(LocalError, match="was closed"):
        publisher.publish()
    with pytest.raises(SidecarLostError, match=r"socket .*nowhere"):
        Publisher(small_state(), socket=path + "-nowhere", timeout=0.3)
