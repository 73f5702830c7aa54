"""What a sidecar says of its object store."""

from __future__ import annotations

from typing import Any

from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.contract.figures import runtime as figures
from sync_runtime.contract.traces import ATTR_BYTES, FETCH, PUT
from sync_runtime.sidecar.store_book import StoreBook, StoreBooks
from sync_runtime.transport.object_store.errors import StoreDeniedError, StoreError

LINEAGE = "ab" * 16


def books() -> tuple[StoreBook, list[tuple[Any, ...]]]:
    stages: list[tuple[Any, ...]] = []
    return StoreBook("put", lambda *stage: stages.append(stage)), stages


def read(book: StoreBook) -> dict[tuple[str, ...], object]:
    return {(reading.figure.name, *reading.labels): reading.value for reading in book.readings()}


def test_a_store_that_was_not_tried_is_not_spoken_of() -> None:
    book, _ = books()
    assert book.report() is None
    assert (figures.STORE_UP.name,) not in read(book)


def test_trouble_is_told_in_a_word_and_a_sentence_until_a_turn_ends_well() -> None:
    book, _ = books()
    book.failed(StoreDeniedError("the store does not let us in " + "x" * 500))
    report = book.report()
    assert report is not None
    assert report.trouble is not None
    assert report.trouble.reason == "StoreDenied"
    assert report.trouble.message.startswith("the store does not let us in")
    assert read(book)[figures.STORE_UP.name,] == 0.0
    book.failed(StoreError("away"))
    book.fine(4)
    report = book.report()
    assert report is not None
    assert (report.trouble, report.seq) == (None, 4)
    found = read(book)
    assert found[figures.STORE_UP.name,] == 1.0
    assert found[figures.STORE_FAILURES.name, "StoreDenied"] == found[figures.STORE_FAILURES.name, "StoreUnavailable"]


def test_a_turn_that_brought_nothing_keeps_the_newest_version() -> None:
    book, _ = books()
    book.fine(4)
    book.fine(None)
    report = book.report()
    assert report is not None
    assert report.seq == 4


def test_what_was_put_and_fetched_is_counted_and_becomes_a_stage_of_its_version() -> None:
    book, stages = books()
    book.put(VersionRef(LINEAGE, 3), 2_000_000, 2, 0.5)
    book.fetched(delta_key(LINEAGE, 3, 4), 1_000_000, 0.25)
    found = read(book)
    assert found[figures.STORE_OBJECTS.name, "put"] == 3
    assert found[figures.STORE_BYTES.name, "put"] == 3_000_000
    assert found[figures.STORE_SECONDS.name, "put"] == 0.75
    assert [(version.seq, stage, spent_us) for version, stage, spent_us, _ in stages] == [
        (3, PUT, 500_000),
        (4, FETCH, 250_000),
    ]
    assert stages[0][3][ATTR_BYTES] == 2_000_000
    book.fine(4)
    report = book.report()
    assert report is not None
    assert report.rate_bits_per_second == 32_000_000


def several() -> tuple[StoreBook, StoreBook, StoreBooks]:
    (one, _), (other, _) = books(), books()
    return one, other, StoreBooks([("s3://one/x", one), ("gs://other/x", other)])


def test_several_stores_are_not_spoken_of_as_well_before_all_were_tried() -> None:
    one, other, together = several()
    one.fine(3)
    assert together.report() is None
    other.fine(2)
    report = together.report()
    assert report is not None
    assert (report.address, report.seq, report.trouble) == ("gs://other/x", 2, None)  # the one furthest behind


def test_of_several_stores_the_one_with_trouble_is_told_of_at_once() -> None:
    one, _, together = several()
    one.failed(StoreDeniedError("no"))
    report = together.report()
    assert report is not None
    assert report.trouble is not None
    assert (report.address, report.trouble.reason) == ("s3://one/x", "StoreDenied")


def test_figures_of_several_stores_count_all_and_tell_the_worst() -> None:
    one, other, together = several()
    one.fine(3)
    other.fine(2)
    one.put(VersionRef(LINEAGE, 3), 100, 1, 0.5)
    other.put(VersionRef(LINEAGE, 2), 50, 1, 0.25)
    other.failed(StoreError("away"))
    found = {(reading.figure.name, *reading.labels): reading.value for reading in together.readings()}
    assert found[figures.STORE_UP.name,] == 0.0
    assert found[figures.STORE_SEQ.name,] == 2
    assert found[figures.STORE_BYTES.name, "put"] == 150
    assert found[figures.STORE_SECONDS.name, "put"] == 0.75
    assert len(list(together.readings())) == len(found)  # no figure twice


def test_one_store_is_reported_as_it_always_was() -> None:
    book, _ = books()
    book.fine(4)
    assert StoreBooks([("s3://one/x", book)]).report() == book.report()
