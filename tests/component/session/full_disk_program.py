"""A trainer whose spool is on a small disk of its own: full in the middle of training, then with room again.

python -m tests.component.session.full_disk_program FOLDER        FOLDER/state/trainer-0 is that disk
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import SpoolFullError
from tests.support.following import follow
from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

LEAF = Member("eu-0", "eu", ("trainer-0",))


def main() -> None:
    """Raises where a promise is broken."""
    folder = Path(sys.argv[1])
    disk = folder / "state/trainer-0"
    with InsideGroup(folder, [TRAINER, LEAF], ringBytes=1 << 20, spoolBytes=1 << 30) as group:
        group.start_all()
        trained, member = small_model(), small_model()
        with (
            Publisher(trained, socket=group.socket("trainer-0")) as publisher,
            Subscriber(member, socket=group.socket("eu-0")) as subscriber,
        ):
            nudge(trained, 0)
            first = publisher.publish(step=1)
            follow(subscriber, first.seq)
            for room_bytes in (0, 4096, 100 << 10):  # for nothing, for a file, for a delta but not for the new state
                before = listing(disk)
                fill(disk, room_bytes)
                nudge(trained, room_bytes + 1)
                refused(publisher)
                (disk / "ballast").unlink()
                check(listing(disk) == before, f"{listing(disk)} was {before}")
            nudge(trained, 7)
            version = publisher.publish(step=9)
            check((version.lineage, version.seq) == (first.lineage, first.seq + 1), f"{version} follows {first}")
            follow(subscriber, version.seq)
            check(same_bits(member, trained), "the member's bits are others")


def refused(publisher: Publisher) -> None:
    """A clear error that says that trying again can help, and training goes on."""
    try:
        publisher.publish(step=2)
    except SpoolFullError as error:
        check(error.retry_helps, "a full disk is said to stay full")
    else:
        raise AssertionError("a version was published onto a full disk")


def fill(disk: Path, room_bytes: int) -> None:
    """Leaves so much room."""
    with (disk / "ballast").open("wb") as ballast:
        found = os.statvfs(disk)
        os.posix_fallocate(ballast.fileno(), 0, max(1, found.f_bavail * found.f_bsize - room_bytes))


def listing(disk: Path) -> list[str]:
    """Everything on it but what changes by itself; the mirror in use has a new name after every version."""
    names = [str(path.relative_to(disk)) for path in disk.rglob("*")]
    return sorted(name for name in names if "links.json" not in name)


def check(holds: bool, sentence: str) -> None:
    """An assertion that optimisation does not remove."""
    if not holds:
        raise AssertionError(sentence)


if __name__ == "__main__":
    main()
