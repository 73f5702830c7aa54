"""What one sidecar did with its object store, and what is wrong with it: for the report, for metrics and for traces.

Written by the threads that put and fetch, read by the sidecar's loop. Knows no store: it is told.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, cast

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.contract.figures import Figure
from sync_runtime.contract.figures import runtime as figures
from sync_runtime.contract.reports import StoreReport, Trouble
from sync_runtime.contract.traces import ATTR_BYTES, ATTR_CODEC, ATTR_PEER, FETCH, PUT
from sync_runtime.control.exposition import Reading
from sync_runtime.telemetry.surface import Attributes
from sync_runtime.transport.object_store.parent import STORE_NAME

Way = Literal["put", "fetched"]
OnStage = Callable[[VersionRef, str, int, Attributes], None]
"""Told of a version, a stage, microseconds and attributes; on any thread."""

_UNNAMED: Final = "StoreUnavailable"
"""A store that is away has no error type of its own: it is the root of them."""
_MESSAGE_LENGTH: Final = 200


def reason_of(error: Exception) -> str:
    """The error's type in one word: `StoreDenied`."""
    word = type(error).__name__.removesuffix("Error")
    return _UNNAMED if word == "Store" else word


class StoreBook:
    """Thread-safe."""

    def __init__(self, way: Way, on_stage: OnStage) -> None:
        self._way, self._on_stage = way, on_stage
        self._lock = threading.Lock()
        self._was_tried = False
        self._seq: int | None = None
        self._objects = self._bytes = 0
        self._busy_s = 0.0
        self._rate: int | None = None
        self._trouble: tuple[str, str] | None = None
        self._failures: Counter[str] = Counter()

    def fine(self, seq: int | None) -> None:
        """A turn at the store ended well; the newest version in it, where there is one."""
        with self._lock:
            self._was_tried, self._trouble = True, None
            self._seq = self._seq if seq is None else seq

    def failed(self, error: Exception) -> None:
        """A turn at the store failed, after all repetitions."""
        with self._lock:
            self._was_tried = True
            self._trouble = (reason_of(error), str(error))
            self._failures[reason_of(error)] += 1

    def put(self, version: VersionRef, size_bytes: int, objects: int, spent_s: float) -> None:
        """Versions up to this one are visible in the store."""
        self._count(size_bytes, objects, spent_s)
        self._on_stage(version, PUT, int(spent_s * 1e6), {ATTR_BYTES: size_bytes, ATTR_PEER: STORE_NAME})

    def fetched(self, key: ObjectKey, size_bytes: int, spent_s: float) -> None:
        """All of an object came, and is proved."""
        self._count(size_bytes, 1, spent_s)
        attributes: Attributes = {ATTR_BYTES: size_bytes, ATTR_PEER: STORE_NAME, ATTR_CODEC: key.codec}
        self._on_stage(key.target, FETCH, int(spent_s * 1e6), attributes)

    def report(self) -> StoreReport | None:
        """For the operator; None until the store was tried."""
        with self._lock:
            if not self._was_tried:
                return None
            trouble = self._trouble
            return StoreReport(
                seq=self._seq,
                objects=self._objects,
                rate_bits_per_second=self._rate,
                trouble=None if trouble is None else Trouble(reason=trouble[0], message=trouble[1][:_MESSAGE_LENGTH]),
            )

    def readings(self) -> Iterator[Reading]:
        """For metrics."""
        with self._lock:
            found = [
                Reading(figures.STORE_OBJECTS, self._objects, (self._way,)),
                Reading(figures.STORE_BYTES, self._bytes, (self._way,)),
                Reading(figures.STORE_SECONDS, self._busy_s, (self._way,)),
                *(Reading(figures.STORE_FAILURES, count, (word,)) for word, count in sorted(self._failures.items())),
            ]
            if self._seq is not None:
                found.insert(0, Reading(figures.STORE_SEQ, self._seq))
            if self._was_tried:
                found.insert(0, Reading(figures.STORE_UP, float(self._trouble is None)))
        yield from found

    def _count(self, size_bytes: int, objects: int, spent_s: float) -> None:
        with self._lock:
            self._objects += objects
            self._bytes += size_bytes
            self._busy_s += spent_s
            if spent_s > 0 and size_bytes:
                self._rate = min(int(8 * size_bytes / spent_s), 2**53 - 1)


class StoreBooks:
    """Several stores of one trainer as one: the worst of them is told of."""

    def __init__(self, books: Sequence[tuple[str, StoreBook]]) -> None:
        """Every store by its address."""
        self._books = books

    def report(self) -> StoreReport | None:
        """For the operator; None until every store was tried, or one failed."""
        found = [(address, book.report()) for address, book in self._books]
        told = [(address, report) for address, report in found if report is not None]
        ill = next(((address, report) for address, report in told if report.trouble is not None), None)
        if not told or (ill is None and len(told) < len(found)):
            return None
        address, worst = ill or min(told, key=lambda one: -1 if one[1].seq is None else one[1].seq)
        if len(self._books) == 1:
            return worst
        return worst.model_copy(update={"address": address, "objects": sum(report.objects for _, report in told)})

    def readings(self) -> Iterator[Reading]:
        """For metrics: what was done in all of them together, and how the worst of them is."""
        together: dict[tuple[Figure, tuple[str, ...]], float] = {}
        for reading in (one for _, book in self._books for one in book.readings()):
            key, value = (reading.figure, reading.labels), cast("float", reading.value)
            known = together.get(key)
            if known is None:
                together[key] = value
            else:
                is_worst = reading.figure in (figures.STORE_UP, figures.STORE_SEQ)
                together[key] = min(known, value) if is_worst else known + value
        yield from (Reading(figure, value, labels) for (figure, labels), value in together.items())
