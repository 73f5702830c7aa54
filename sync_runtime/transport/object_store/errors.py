"""What can go wrong with a store, as a tree below the runtime's own.

    TransportError
    └── StoreError               the store or the way to it is away; the same request can succeed later
        ├── StoreDeniedError     it does not let us in: credentials that it does not know, or no longer
        ├── StoreClockError      it does not believe our clock
        ├── StoreMissingError    there is nothing under this key
        ├── StoreConflictError   a conditional put whose condition does not hold
        ├── StoreDamagedError    what lies there is not what its name or its seal promises
        ├── StoreUnfitError      it does not keep what STORE.md asks of a store
        ├── StoreForeignError    its pointer is not one that this group may replace
        └── StoreAheadError      it has what the spool has not: the spool is an old copy

Fences are the runtime's `OldTermError` and its like. Exceptions of the library are translated where they are caught.
"""

from __future__ import annotations

from typing import ClassVar

from sync_runtime.errors import TransportError


class StoreError(TransportError):
    """The store or the way to it is away, or it asks us to slow down."""


class StoreDeniedError(StoreError):
    """The store refuses the credentials at hand; a rotated Secret mends it."""


class StoreClockError(StoreError):
    """The store refuses signatures of a clock that is wrong."""

    retry_helps: ClassVar[bool] = False


class StoreMissingError(StoreError):
    """There is nothing under a key."""

    retry_helps: ClassVar[bool] = False


class StoreConflictError(StoreError):
    """Somebody else wrote first, or the answer to our own write was lost: read before anything else."""

    retry_helps: ClassVar[bool] = False


class StoreDamagedError(StoreError):
    """Bytes from the store do not have the hash, the seal or the form that they should."""

    retry_helps: ClassVar[bool] = False


class StoreUnfitError(StoreError):
    """The store does not do what every publisher and reader rests on."""

    retry_helps: ClassVar[bool] = False


class StoreForeignError(StoreError):
    """The pointer in the store is of somebody else, or cannot be read."""

    retry_helps: ClassVar[bool] = False


class StoreAheadError(StoreError):
    """The store holds a later or another version of the lineage than the spool."""

    retry_helps: ClassVar[bool] = False
