"""`kill_program.py FOLDER [URL CREDENTIALS PREFIX]`: kills a publisher before and after every single write, and looks.

Each life is a forked child that opens the store, collects garbage, publishes two versions with their skip deltas and
retires old ones, and dies by SIGKILL at the n-th write it makes; n grows until a life reaches its end. After each the
parent checks what is visible, without the server where there is one: it keeps plain files. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.lines import layouts_of, rows_of
from sync_runtime.transport.object_store.names import parse_listed
from sync_runtime.transport.object_store.ports import Fetched, Objects
from tests.support.stores import LINEAGE, Member, TrainerSide, payload

KEEP = 5
SIZE_BYTES = 100_000


class DeadlyObjects:
    """A store in whose n-th write this process dies, before or after it was done."""

    def __init__(self, store: Objects, count: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, count, after
        self._lock = threading.Lock()

    def get(self, key: str, limit_bytes: int) -> Fetched:
        return self._store.get(key, limit_bytes)

    def get_if_changed(self, key: str, tag: str | None, limit_bytes: int) -> Fetched | None:
        return self._store.get_if_changed(key, tag, limit_bytes)

    def put(self, key: str, data: bytes | memoryview) -> None:
        is_last = self._count()
        self._store.put(key, data)
        self._die(is_last)

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        is_last = self._count()
        try:
            return self._store.swap(key, data, tag)
        finally:
            self._die(is_last)  # one that is refused is a moment too

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:  # one by one, so that every moment in between is met
            is_last = self._count()
            self._store.remove([key])
            self._die(is_last)

    def list(self, prefix: str) -> Iterator[str]:
        return self._store.list(prefix)

    def _count(self) -> bool:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        return is_last

    def _die(self, is_last: bool) -> None:
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, store_folder: Path, remote: list[str]) -> dict[str, object]:
    trainer = TrainerSide.make(folder)
    lives = deaths = 0
    acknowledged = 0
    for count in range(1, 1000):
        ended = True
        for after in (False, True):
            head = _head(trainer, store_folder)
            _make_objects(trainer, head)
            status, said = _one_life(trainer, store_folder, remote, count, after=after)
            lives += 1
            ended = ended and status == 0
            deaths += status != 0
            acknowledged = max(acknowledged, said)
            _check(trainer, store_folder, folder / f"member-{lives}", acknowledged, f"write {count}, after={after}")
        if ended:
            left = _garbage(trainer, store_folder)
            return {"lives": lives, "deaths": deaths, "acknowledged": acknowledged, "garbage": left}
    raise SystemExit("no life came to its end")


def _one_life(
    trainer: TrainerSide, store_folder: Path, remote: list[str], count: int, *, after: bool
) -> tuple[int, int]:
    """(wait status, the last version that it called published)."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _live(trainer, DeadlyObjects(_open(store_folder, remote), count, after=after), writer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        said = [int(line) for line in lines if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) not in {0, -signal.SIGKILL}:
        raise SystemExit(f"write {count}, after={after}: the publisher failed instead of dying")
    return status, max(said, default=0)


def _live(trainer: TrainerSide, store: Objects, writer: int) -> None:
    publisher = trainer.publisher(store, keep=KEEP)
    pointer = publisher.open()
    publisher.collect()
    if not pointer.lines:
        pointer = trainer.begin(publisher)
    head = pointer.lines[0].head.seq
    for seq in (head + 1, head + 2):
        trainer.publish(publisher, seq, size_bytes=SIZE_BYTES)
        os.write(writer, f"{seq}\n".encode())
        trainer.add_skips(publisher)
        publisher.retire()
    publisher.close()


def _open(store_folder: Path, remote: list[str]) -> Objects:
    if not remote:
        return FolderStore(store_folder)
    from sync_runtime.transport.object_store.remote import RemoteStore  # its threads must not be forked

    return RemoteStore(remote[0], remote[2], Path(remote[1]))


def _head(trainer: TrainerSide, store_folder: Path) -> int:
    member = Member.of(trainer, FolderStore(store_folder), store_folder.with_name("looking"))
    pointer = member.reader.poll()
    member.reader.close()
    member.spool.close()
    return pointer.lines[0].head.seq if pointer is not None and pointer.lines else 0


def _make_objects(trainer: TrainerSide, head: int) -> None:
    """Everything that a life may publish: makers are not what is killed here."""
    for seq in (head + 1, head + 2):
        trainer.link(seq, size_bytes=SIZE_BYTES)
        for span in (2, 4):
            if seq % span == 0 and seq >= span:
                trainer.make_object(delta_key(LINEAGE, seq - span, seq), 1000)


def _check(trainer: TrainerSide, store_folder: Path, folder: Path, acknowledged: int, moment: str) -> None:
    member = Member.of(trainer, FolderStore(store_folder), folder)
    pointer = member.reader.poll()
    head = pointer.lines[0].head.seq if pointer is not None and pointer.lines else 0
    if head < acknowledged:
        raise SystemExit(f"{moment}: version {acknowledged} was published, and the store shows {head}")
    if pointer is not None:
        for row in rows_of(pointer.lines):
            stored = member.reader.fetch(pointer, row, member.spool)
            if bytes(stored.view()) != payload(row.key, row.size_bytes):
                raise SystemExit(f"{moment}: {row.key} has wrong bytes")
        if pointer.lines:
            member.held = VersionRef(LINEAGE, pointer.lines[0].base.seq)
            member.follow()
    member.reader.close()
    member.spool.close()


def _garbage(trainer: TrainerSide, store_folder: Path) -> int:
    """After one more opening: keys that no pointer names. The opening's own place is empty."""
    store = FolderStore(store_folder)
    publisher = trainer.publisher(store, keep=KEEP)
    lines = publisher.open().lines
    publisher.collect()
    publisher.close()
    kept = {(row.place, row.key.file_stem) for row in rows_of(lines)}
    kept |= {(layout.place, layout.layout_hash) for layout in layouts_of(lines)}
    listed = [parse_listed(path) for path in store.list("places/")]
    unnamed = sum(one is None or (one.place, one.name) not in kept for one in listed)
    return unnamed + len(list(store.list("probe/")))


if __name__ == "__main__":
    where = Path(sys.argv[1])
    arguments = sys.argv[2:]
    at = Path(arguments.pop()) if arguments else where / "store"
    sys.stdout.write(json.dumps(main(where, at, arguments)) + "\n")
