"""A trainer whose ledger is on a small disk of its own: full while prompts and results come, then with room again.

python -m tests.component.work.full_disk_program FOLDER        FOLDER/state/trainer-0 is that disk
"""

from __future__ import annotations

import sys
from pathlib import Path

from sync_runtime import Publisher, Work, Worker
from sync_runtime.errors import SpoolFullError
from sync_runtime.library.work import WorkResult
from tests.component.session.full_disk_program import check, fill
from tests.component.work.crew import EU, do, engine, groups
from tests.support.groups import TRAINER
from tests.support.inside import InsideGroup
from tests.support.models import small_model


def main() -> None:
    """Raises where a promise is broken."""
    folder = Path(sys.argv[1])
    disk = folder / "state/trainer-0"
    with InsideGroup(folder, [TRAINER, EU], ringBytes=1 << 20, spoolBytes=1 << 30) as group:
        group.start_all()
        with (
            Publisher(small_model(), socket=group.socket("trainer-0")),
            Work(socket=group.socket("trainer-0"), order="fixed") as work,
            engine(group, "eu-0") as (_, worker),
        ):
            work.submit(groups("a", "b"))
            task = worker.take(timeout=20, activate=True)
            check(task is not None and task.id == "a", "no task came")
            fill(disk, 0)
            big = [one for at in range(40) for one in groups(f"{at}-{'x' * 100}")]
            try:
                work.submit(big)
            except SpoolFullError as error:
                check(error.retry_helps, "a full disk is said to stay full")
            else:
                raise AssertionError("prompts were taken in on a full disk")
            if task is not None:
                task.complete(b"r" * (64 << 10), tokens=5)  # waits at the worker
            (disk / "ballast").unlink()
            check([one.id for one in _take_rest(work, worker)] == ["a", "b"], "results are missing")
            check(work.submit(big) == 40, "prompts were taken in though submit said no")
        group.stop("trainer-0")
        group.start("trainer-0")
        with Work(socket=group.socket("trainer-0"), order="fixed") as work:
            check(work.pending == 40, "a restart lost prompts")


def _take_rest(work: Work, worker: Worker) -> list[WorkResult]:
    results = work.results(timeout=30)
    found = [next(results)]
    task = worker.take(timeout=20)
    if task is not None:
        do(task)
    return [*found, *results]


if __name__ == "__main__":
    main()
