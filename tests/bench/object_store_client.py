"""The client of `bench_object_store`: one payload into a store and out of it, four ways. Runs where the link begins.

    python -m tests.bench.object_store_client URL CREDENTIALS FOLDER SIZE_BYTES BUCKET_BYTES PARALLEL ROUNDS

Prints one line of JSON for every way and round: `{way, publish_s, fetch_s}`. *Publish* ends when a reader could see the
version, *fetch* begins when a reader looks and ends when all bytes are there and proved, as far as that way proves any.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sync_runtime.bucket.keys import delta_key
from sync_runtime.bucket.manifest import pack_envelope, parse_manifest
from sync_runtime.bucket.spool import StoredObject
from sync_runtime.transport.object_store.patience import Patience
from sync_runtime.transport.object_store.ports import Objects
from sync_runtime.transport.object_store.publisher import Publication
from sync_runtime.transport.object_store.remote import RemoteStore
from tests.support.stores import LAYOUT_HASH, LINEAGE, Member, TrainerSide


class Sizes(NamedTuple):
    """What is sent, and how."""

    size_bytes: int
    bucket_bytes: int
    parallel: int


def main(url: str, credentials: Path, folder: Path, sizes: Sizes, rounds: int) -> None:
    """All ways in turn, so that what disturbs one disturbs all."""
    store = RemoteStore(url, f"bench-{os.getpid()}", credentials, timeout_s=600)
    ours = Ours(store, folder, sizes)
    ways: dict[str, Callable[[int], tuple[float, float]]] = {
        "plain library": lambda at: plain(store, sizes, at),
        "plain library that proves and keeps": lambda at: plain(store, sizes, at, keep_in=folder),
        "ours": ours.round,
        "one put": lambda at: one_file(store, sizes, at, marked=False),
        "one safetensors file": lambda at: one_file(store, sizes, at, marked=True),
    }
    for at in range(1, rounds + 1):
        for way, act in ways.items():
            publish_s, fetch_s = act(at)
            sys.stdout.write(json.dumps({"way": way, "publish_s": publish_s, "fetch_s": fetch_s}) + "\n")
            sys.stdout.flush()
    ours.close()


class Ours:
    """The store as the sidecars use it."""

    def __init__(self, store: Objects, folder: Path, sizes: Sizes) -> None:
        self._sizes = sizes
        self._trainer = TrainerSide.make(folder)
        self._publisher = self._trainer.publisher(store, patience=Patience(), streams=sizes.parallel)
        self._publisher.open()
        self._trainer.begin(self._publisher)
        self._member = Member.of(self._trainer, store, folder / "member", patience=Patience(), streams=sizes.parallel)
        self._member.follow()

    def round(self, at: int) -> tuple[float, float]:
        """Version `at`."""
        link = self._made(at)
        started = time.perf_counter()
        self._publisher.publish([Publication(link)])
        published = time.perf_counter()
        self._member.reader.poll()
        pointer = self._member.reader.pointer
        if pointer is None:
            raise SystemExit("the pointer did not move")
        self._member.reader.fetch(pointer, pointer.lines[0].links[-1], self._member.spool)
        return published - started, time.perf_counter() - published

    def close(self) -> None:
        self._publisher.close()
        self._member.reader.close()

    def _made(self, seq: int) -> StoredObject:
        """A version of random bytes: the codec's time is not what is measured."""
        key = delta_key(LINEAGE, seq - 1, seq)
        sample = self._trainer.make_object(key, 1000)
        manifest = parse_manifest(sample.manifest.to_json())
        self._trainer.spool.remove(key)
        writer = self._trainer.spool.create(key, LAYOUT_HASH, self._sizes.bucket_bytes)
        writer.write(os.urandom(self._sizes.size_bytes))
        writer.finish()
        document = replace(manifest, buckets=writer.buckets).to_json()
        return writer.commit(pack_envelope(document, self._trainer.signer.sign(document)))


def plain(store: RemoteStore, sizes: Sizes, at: int, keep_in: Path | None = None) -> tuple[float, float]:
    """The library alone, with as many requests at a time, and nothing but the pieces.

    `keep_in`: every piece that was got is hashed and written to a file there, which is synced at the end. That is the
    least that anybody does who believes no store and survives a restart.
    """
    data = os.urandom(sizes.bucket_bytes)
    count = -(-sizes.size_bytes // sizes.bucket_bytes)
    names = [f"plain/{at}/{keep_in is not None}/{index}" for index in range(count)]
    with ThreadPoolExecutor(sizes.parallel) as pool, _file(keep_in) as handle:

        def get(index: int) -> None:
            found = store.get(names[index], sizes.bucket_bytes)
            if handle is not None:
                hashlib.sha256(found.data).digest()
                os.pwrite(handle, found.data, index * sizes.bucket_bytes)

        started = time.perf_counter()
        list(pool.map(lambda name: store.put(name, data), names))
        published = time.perf_counter()
        list(pool.map(get, range(count)))
        if handle is not None:
            os.fsync(handle)
        return published - started, time.perf_counter() - published


@contextmanager
def _file(folder: Path | None) -> Iterator[int | None]:
    """A fresh file, gone at the end; None where there is no folder."""
    if folder is None:
        yield None
        return
    with tempfile.TemporaryFile(dir=folder) as kept:
        yield kept.fileno()


def one_file(store: RemoteStore, sizes: Sizes, at: int, *, marked: bool) -> tuple[float, float]:
    """The whole as one object; `marked`: with a marker last that readers list for, and a hash over the file."""
    data = os.urandom(sizes.size_bytes)
    folder = f"deltas/step_{at:06d}" if marked else f"big/{at}"
    started = time.perf_counter()
    store.put(f"{folder}/delta.safetensors", data)
    if marked:
        store.put(f"{folder}/READY", b"{}")
    published = time.perf_counter()
    if marked and not any(name.endswith("READY") for name in store.list(folder)):
        raise SystemExit("the marker is not there")
    found = store.get(f"{folder}/delta.safetensors", sizes.size_bytes)
    if marked:
        hashlib.sha256(found.data).digest()
    return published - started, time.perf_counter() - published


if __name__ == "__main__":
    words = sys.argv[1:]
    main(words[0], Path(words[1]), Path(words[2]), Sizes(*map(int, words[3:6])), int(words[6]))
