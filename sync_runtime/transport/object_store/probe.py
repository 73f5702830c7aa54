"""Whether a store keeps conditions: what a publisher has proved to it before it rests on them (STORE.md, section 5)."""

from __future__ import annotations

from collections.abc import Callable

from sync_runtime.transport.object_store.errors import StoreConflictError, StoreError, StoreUnfitError
from sync_runtime.transport.object_store.latest import is_hash_of
from sync_runtime.transport.object_store.names import probe_path
from sync_runtime.transport.object_store.patience import Patience, may_pass
from sync_runtime.transport.object_store.ports import Objects

_ADVICE = "use a store with conditional writes (If-None-Match, If-Match), or switch them on"


def prove_conditions(store: Objects, place: str, patience: Patience) -> bool:
    """Raises StoreUnfitError where a conditional put is done although its condition does not hold.

    Returns whether tags are hashes of what they stand for.
    `place` is the opening's own, so that two that prove at once do not meet. A proof that was disturbed begins anew,
    under another key: a put without an answer may have been done; what it leaves is garbage of the next opening.
    """
    trouble: StoreError | None = None
    for number, _ in enumerate(patience.attempts()):
        path = probe_path(place, number)
        try:
            hashes = _prove(store, path)
            store.remove([path])
        except StoreConflictError as error:
            trouble = error
        except StoreError as error:
            if not may_pass(error):
                raise
            trouble = error
        else:
            return hashes
    raise StoreError(f"the store could not be tried out: {trouble}")


def _prove(store: Objects, path: str) -> bool:
    first = store.swap(path, b"1", None)
    _must_refuse(lambda: store.swap(path, b"2", None), "puts over what is there when told to put where nothing is")
    second = store.swap(path, b"3", first)
    if second == first:
        raise StoreUnfitError(f"the store gives two states of a key one tag: {_ADVICE}")
    _must_refuse(lambda: store.swap(path, b"4", first), "puts in place of another state than it was told")
    return is_hash_of(second, b"3")


def _must_refuse(act: Callable[[], str], fault: str) -> None:
    try:
        act()
    except StoreConflictError:
        return
    raise StoreUnfitError(f"the store {fault}, so that two trainers could overwrite each other: {_ADVICE}")
