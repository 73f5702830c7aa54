"""Members, prompts and workers of the tests of work leases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sync_runtime import PromptGroup, Subscriber, Worker
from sync_runtime.errors import SyncError, WorkRefusedError
from sync_runtime.library.worker import Task
from tests.support.groups import Group, Member
from tests.support.models import small_model

EU, ASIA = Member("eu-0", "eu", ("trainer-0",)), Member("asia-0", "asia", ("trainer-0",))


def groups(*ids: str) -> list[PromptGroup]:
    """Groups with a prompt of their own."""
    return [PromptGroup(one, f"prompt {one}".encode(), samples=2) for one in ids]


def do(task: Task) -> None:
    """The work: a function of prompt and version."""
    task.complete(b"%s under %d" % (task.payload, task.version.seq), tokens=10)


@contextmanager
def engine(group: Group, name: str) -> Iterator[tuple[Subscriber, Worker]]:
    """An engine and its worker, at a member's sidecar."""
    with (
        Subscriber(small_model(), socket=group.socket(name)) as subscriber,
        Worker(subscriber, socket=group.socket(name)) as worker,
    ):
        yield subscriber, worker


@contextmanager
def working(group: Group, *names: str) -> Iterator[dict[str, list[str]]]:
    """Workers that work until the end; what each has done."""
    stop = threading.Event()
    done: dict[str, list[str]] = {name: [] for name in names}

    def work(name: str) -> None:
        with engine(group, name) as (_, worker):
            while not stop.is_set():
                try:
                    task = worker.take(timeout=0.2, activate=True)
                    if task is not None:
                        do(task)
                        done[name].append(task.id)
                except WorkRefusedError:
                    continue
                except SyncError:
                    if not stop.wait(0.05):
                        continue

    threads = [threading.Thread(target=work, args=(name,), name=f"worker {name}") for name in names]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
