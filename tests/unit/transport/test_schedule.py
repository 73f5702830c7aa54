"""The queue of a link: every bucket is delivered once, whatever streams and acknowledgements do."""

from __future__ import annotations

import random

import pytest

from sync_runtime.errors import FrameError
from sync_runtime.transport.schedule import Assignment, SendQueue

KIB = 1024


def queue_with(num_buckets: int, window_bytes: int = 1 << 30) -> tuple[SendQueue, int]:
    queue = SendQueue(window_bytes)
    transfer = queue.begin(priority=0)
    queue.add(transfer, range(num_buckets))
    return queue, transfer


def send(queue: SendQueue, stream: int, now_s: float = 0.0, size_bytes: int = KIB) -> Assignment | None:
    assignment = queue.take(stream, now_s)
    if assignment is not None:
        assert queue.started(stream, assignment, size_bytes, now_s)
    return assignment


def test_buckets_go_in_order_to_whoever_asks() -> None:
    queue, transfer = queue_with(3)
    assert [send(queue, stream) for stream in (5, 1, 5, 5)] == [
        Assignment(transfer, 0),
        Assignment(transfer, 1),
        Assignment(transfer, 2),
        None,
    ]


def test_a_fresh_delta_overtakes_an_anchor_bucket_by_bucket() -> None:
    queue = SendQueue(1 << 30)
    anchor = queue.begin(priority=2)
    queue.add(anchor, range(3))
    first = send(queue, 0)
    fresh = queue.begin(priority=0)
    queue.add(fresh, [0])
    assert [first, send(queue, 0), send(queue, 0)] == [
        Assignment(anchor, 0),
        Assignment(fresh, 0),
        Assignment(anchor, 1),
    ]


def test_no_bucket_is_given_while_the_window_is_full() -> None:
    queue, transfer = queue_with(4, window_bytes=2 * KIB)
    assert send(queue, 0)
    assert send(queue, 1)
    assert send(queue, 2) is None
    queue.ack(transfer, [0], 1.0)
    assert send(queue, 2) == Assignment(transfer, 2)


def test_a_transfer_is_finished_when_it_is_closed_and_everything_is_acknowledged() -> None:
    queue, transfer = queue_with(2)
    send(queue, 0)
    send(queue, 1)
    assert queue.ack(transfer, [0, 1], 1.0).finished is None
    finished = queue.close(transfer)
    assert finished is not None
    assert finished.acked_bytes == 2 * KIB
    assert queue.transfers == ()
    assert queue.unacked_bytes == 0


def test_the_buckets_of_a_broken_stream_go_first_again_and_are_counted() -> None:
    queue, transfer = queue_with(4)
    for stream in (0, 1, 0):
        send(queue, stream)
    assert queue.lose_stream(0) == 2
    assert [send(queue, 1), send(queue, 1), send(queue, 1)] == [
        Assignment(transfer, 0),
        Assignment(transfer, 2),
        Assignment(transfer, 3),
    ]
    assert queue.totals.repeated_bytes == 2 * KIB


def test_acknowledged_buckets_of_a_broken_stream_are_not_repeated() -> None:
    queue, transfer = queue_with(2)
    send(queue, 0)
    send(queue, 0)
    queue.ack(transfer, [0, 1], 1.0)
    assert queue.lose_stream(0) == 0
    assert send(queue, 1) is None
    assert queue.totals.repeated_bytes == 0


def test_a_stuck_streams_buckets_go_on_others_but_never_on_itself() -> None:
    queue, transfer = queue_with(1)
    send(queue, 0)
    assert queue.reissue(0) == 1
    assert send(queue, 0) is None
    assert send(queue, 1) == Assignment(transfer, 0)
    assert queue.unacked_bytes == 2 * KIB
    queue.close(transfer)
    assert queue.ack(transfer, [0], 1.0).finished
    assert queue.unacked_bytes == 0


def test_a_stuck_stream_that_delivers_after_all_makes_the_copy_needless() -> None:
    queue, transfer = queue_with(1)
    send(queue, 0)
    queue.reissue(0)
    queue.ack(transfer, [0], 1.0)
    assert send(queue, 1) is None
    assert queue.totals.repeated_bytes == 0


def test_a_damaged_bucket_goes_first_again_and_three_of_them_close_the_stream() -> None:
    queue, transfer = queue_with(5)
    closes = []
    for _ in range(3):
        assignment = send(queue, 0)
        assert assignment is not None
        closes.append(queue.nack(transfer, assignment.index))
        assert send(queue, 1) == assignment
    assert closes == [None, None, 0]


def test_a_child_that_refuses_one_bucket_for_ever_is_at_fault() -> None:
    queue, transfer = queue_with(1)
    for stream in range(4):
        send(queue, stream)
        queue.nack(transfer, 0)
    send(queue, 9)
    with pytest.raises(FrameError, match="refused 5 times"):
        queue.nack(transfer, 0)


@pytest.mark.parametrize("index", [1, 99])
def test_an_acknowledgement_for_what_was_never_sent_is_refused(index: int) -> None:
    queue, transfer = queue_with(2)
    send(queue, 0)
    with pytest.raises(FrameError, match="never sent"):
        queue.ack(transfer, [index], 1.0)
    with pytest.raises(FrameError, match="never began"):
        queue.ack(transfer + 1, [0], 1.0)
    with pytest.raises(FrameError, match="never began"):
        queue.nack(transfer + 1, 0)


def test_late_words_about_a_transfer_that_is_over_are_ignored() -> None:
    queue, transfer = queue_with(2)
    assignment = queue.take(0, 0.0)
    assert assignment
    assert queue.cancel(transfer)
    assert not queue.started(0, assignment, KIB, 0.0)
    assert queue.ack(transfer, [0], 1.0).indices == ()
    assert queue.nack(transfer, 0) is None
    assert not queue.add(transfer, [7])
    assert queue.unacked_bytes == 0


def test_duplicated_acknowledgements_count_once() -> None:
    queue, transfer = queue_with(1)
    send(queue, 0)
    assert queue.ack(transfer, [0, 0], 1.0).indices == (0,)
    assert queue.ack(transfer, [0], 1.0).indices == ()
    assert queue.totals.acked_bytes == KIB


def test_time_without_a_bucket_to_send_is_told_apart() -> None:
    queue, transfer = queue_with(1)
    send(queue, 0, now_s=10.0)
    assert send(queue, 0, now_s=11.0) is None
    queue.add(transfer, [1])
    send(queue, 0, now_s=14.0)
    state = queue.transfer(transfer)
    assert state
    assert state.waited_s == 3.0


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_to_streams_every_bucket_arrives_and_nothing_stays_counted(seed: int) -> None:
    """A model of a bad day: streams break, get stuck, damage; messages of the child come late and twice."""
    dice = random.Random(seed)  # noqa: S311 a seed to replay
    queue = SendQueue(20 * KIB)
    transfers = [queue.begin(dice.randrange(3)) for _ in range(4)]
    for transfer in transfers:
        queue.add(transfer, range(25))
        queue.close(transfer)
    wires: dict[int, list[Assignment]] = {stream: [] for stream in range(4)}
    arrived: set[Assignment] = set()
    next_stream = 4
    finished = 0
    for _ in range(20_000):
        if not queue.transfers:
            break
        stream = dice.choice(sorted(wires))
        what = dice.random()
        if what < 0.5:
            assignment = queue.take(stream, 0.0)
            if assignment and queue.started(stream, assignment, KIB, 0.0):
                wires[stream].append(assignment)
        elif what < 0.93 and wires[stream]:
            assignment = wires[stream].pop(0)
            arrived.add(assignment)
            for _ in range(dice.choice([1, 1, 2])):
                finished += queue.ack(assignment.transfer, [assignment.index], 0.0).finished is not None
        elif what < 0.95:
            queue.reissue(stream)
        elif what < 0.97:
            queue.lose_stream(stream)
            del wires[stream]
            wires[next_stream] = []
            next_stream += 1
    assert not queue.transfers
    assert finished == 4
    assert len(arrived) == 100
    assert queue.unacked_bytes == 0
    assert queue.totals.acked_bytes == 100 * KIB
    assert queue.totals.sent_bytes == queue.totals.repeated_bytes + 100 * KIB
