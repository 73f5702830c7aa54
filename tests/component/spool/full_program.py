"""`full_program.py FOLDER small|disk`: fills a spool until there is no room and shows that nothing of it stays.

`small`: a file may not grow above 1 MiB (the caller set that limit). `disk`: the folder's whole file system has few
MiB, so that even a small manifest may not fit. Ends with a sentence and status 1 where a promise is broken.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from sync_runtime.bucket.spool import Spool
from sync_runtime.errors import SpoolFullError
from tests.unit.bucket.samples import (
    BUCKET_BYTES,
    LAYOUT_HASH,
    cut,
    envelope_for,
    files,
    finished,
    link,
    named,
    open_spool,
    payload,
    put,
    store,
)

SMALL, LARGE = payload(100_000), payload(16 << 20)


def main(folder: Path, kind: str) -> None:
    with open_spool(folder) as spool:
        _show(spool, folder)
        if kind == "disk":
            _show_full_disk(spool, folder)
        before = {stored.key: stored.envelope for stored in spool.objects()}
    with open_spool(folder) as spool:
        _expect({stored.key: stored.envelope for stored in spool.objects()} == before, "objects changed in a restart")
        _expect(not spool.problems, f"problems after a restart: {spool.problems}")
        for stored in spool.objects():
            _expect(bytes(stored.view()) == SMALL, f"{stored.key} has wrong bytes")


def _show(spool: Spool, folder: Path) -> None:
    store(spool, link(1), SMALL)
    kept = files(folder)
    writer = spool.create(link(2), LAYOUT_HASH, BUCKET_BYTES)
    _refused(lambda: writer.write(LARGE), "a large object was stored")
    _expect(files(folder) == kept, f"the failed object left something: {files(folder)}")
    store(spool, link(2), SMALL)  # what is not too large goes on, also while the failed writer is still held
    pieces = cut(LARGE)
    receiver = spool.receive(link(3))
    _refused(lambda: put(receiver, pieces), "a large object was received")
    count = receiver.have()[0][1]
    _expect(0 < count < len(pieces), "no bucket was kept before the disk was full")
    for index in range(count):
        _expect(bytes(receiver.read(index)[1]) == pieces[index][1], f"bucket {index} was damaged by a full disk")
    receiver.abort()
    store(spool, link(3), SMALL)


def _show_full_disk(spool: Spool, folder: Path) -> None:
    term = spool.next_term()
    writer = finished(spool, link(4), SMALL)
    pieces = cut(SMALL)
    receiver = spool.receive(link(5))
    put(receiver, pieces)
    kept = files(folder)
    for action in (
        lambda: writer.commit(envelope_for(link(4), writer.buckets)),
        lambda: receiver.commit(envelope_for(link(5), named(pieces))),
        spool.next_term,
        lambda: spool.receive(link(6)),
        lambda: store(spool, link(6), SMALL),
    ):
        with _filled(folder):
            _refused(action, "something was written where no byte was free")
    _expect(len(files(folder)) == len(kept) - 1, f"something stayed: {files(folder)}")
    _expect(spool.next_term() == term + 1, "the term jumped")
    receiver.commit(envelope_for(link(5), named(pieces)))
    store(spool, link(4), SMALL)


@contextlib.contextmanager
def _filled(folder: Path) -> Iterator[None]:
    """A file system without a free page."""
    filler = folder.parent / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def _refused(action: Callable[[], object], otherwise: str) -> None:
    try:
        action()
    except SpoolFullError:
        return
    raise SystemExit(otherwise)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(otherwise)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
