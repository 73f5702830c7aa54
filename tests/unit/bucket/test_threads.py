"""Many threads on one spool: makers, receivers, readers and eviction at once, without a stall or a wrong byte."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sync_runtime.bucket.spool import Spool
from sync_runtime.errors import SpoolError
from tests.unit.bucket.samples import cut, envelope_for, files, link, named, open_spool, payload, put, store

SECONDS = 1.0
SEQS = range(1, 7)
DATA = {seq: payload(150_000, seed=seq) for seq in SEQS}
PIECES = {seq: cut(DATA[seq]) for seq in SEQS}


def make(spool: Spool, seq: int) -> None:
    store(spool, link(seq), DATA[seq])


def receive(spool: Spool, seq: int) -> None:
    receiver = spool.receive(link(seq))
    put(receiver, PIECES[seq])
    receiver.commit(envelope_for(link(seq), named(PIECES[seq])))


def read(spool: Spool, seq: int) -> None:
    for stored in spool.objects():
        if bytes(stored.view()) != DATA[stored.key.target_seq]:
            raise AssertionError(f"{stored.key} has wrong bytes")


def evict(spool: Spool, seq: int) -> None:
    spool.remove(link(seq))
    spool.retain()


def abandon(spool: Spool, seq: int) -> None:
    receiver = spool.receive(link(seq))
    put(receiver, PIECES[seq], 0)
    receiver.abort()


@pytest.mark.timeout(20)
def test_a_second_of_everything_at_once(tmp_path: Path) -> None:
    wrong: list[str] = []
    with open_spool(tmp_path, max_versions=4) as spool:
        end = time.monotonic() + SECONDS

        def run(action: Callable[[Spool, int], None], first: int) -> None:
            seq = first
            while time.monotonic() < end and not wrong:
                seq = seq % len(SEQS) + 1
                try:
                    action(spool, seq)
                except SpoolError:
                    time.sleep(0.001)  # somebody else has it, made it, or gave it up
                except AssertionError as error:
                    wrong.append(str(error))

        actions = (make, make, receive, receive, read, evict, abandon)
        threads = [threading.Thread(target=run, args=(action, at)) for at, action in enumerate(actions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []
        for stored in spool.objects():
            assert bytes(stored.view()) == DATA[stored.key.target_seq]
        assert len(files(tmp_path)) == 2 * len(spool.objects()) + 2 * len(spool.partial())
    with open_spool(tmp_path) as spool:
        assert spool.problems == ()
