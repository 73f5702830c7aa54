"""The pointer as bytes from anywhere, the fences around it, the seal, and the patience of requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import FormatError, OldTermError, SettingsError, SyncError, TermConflictError, WrongGroupError
from sync_runtime.tensors.layout import canonical_json
from sync_runtime.transport.object_store.errors import (
    StoreDamagedError,
    StoreDeniedError,
    StoreError,
    StoreMissingError,
    StoreUnfitError,
)
from sync_runtime.transport.object_store.fences import Claim, Found, Seen, check_claimable, is_news, judge_found
from sync_runtime.transport.object_store.names import parse_listed, place_name, term_of
from sync_runtime.transport.object_store.patience import Patience, PatientObjects
from sync_runtime.transport.object_store.pointer import Pointer, open_pointer, pack_pointer, parse_pointer
from sync_runtime.transport.object_store.ports import Fetched
from sync_runtime.transport.object_store.probe import prove_conditions
from sync_runtime.transport.object_store.seal import Seal, parse_group_key
from tests.support.stores import INCARNATION
from tests.unit.object_store.test_lines_and_routes import PLACE, history, pointer

OTHER = "ef" * 16


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pointer(history(5)).to_json())
    return found


def at(term: int, revision: int, *, incarnation: str = INCARNATION, opening: str = "0" * 16) -> Pointer:
    return Pointer("group", term, incarnation, "ab" * 64, ("PEM",), revision, place_name(term, opening))


def _set(*path: str | int) -> Callable[[dict[str, Any], object], None]:
    def put(document: dict[str, Any], value: object) -> None:
        inner: Any = document
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value

    return put


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("format",), "syncgroup-store/2"),
        (("term",), -1),
        (("term",), 2),  # its place is of term 1
        (("term",), True),
        (("incarnation",), "x"),
        (("place",), "../../etc"),
        (("places",), ["../x"]),
        (("manifest",), "not base64!"),
        (("signers",), [7]),
        (("lines",), [{}]),
        (("lines", 0, "lineage"), "../"),
        (("lines", 0, "versions", 2, 0), 9),  # a gap
        (("lines", 0, "versions", 2, 3), 5),  # a place that is not named
        (("lines", 0, "skips", 0, 1), 99),
        (("lines", 0, "anchor"), [77, 1, 0]),
        (("lines", 0, "way"), ["x", 1, 0]),
        (("lines", 0, "label"), "x" * 300),
        (("surplus",), 1),
    ],
)
def test_a_malformed_pointer_is_refused(where: tuple[str | int, ...], value: object) -> None:
    document = content()
    assert parse_pointer(canonical_json(document)) == pointer(history(5))
    _set(*where)(document, value)
    with pytest.raises(FormatError):
        parse_pointer(canonical_json(document))


@given(st.binary(max_size=300), st.integers(0, 200), st.integers(1, 40))
def test_damaged_envelopes_never_pass_and_never_surprise(noise: bytes, begin: int, size: int) -> None:
    whole = pack_pointer(pointer(history(2)).to_json(), bytes(64))
    damaged = whole[:begin] + noise + whole[begin + size :]
    for data in (noise, damaged, whole[:begin]):
        try:
            found = parse_pointer(open_pointer(data)[0])
        except SyncError:
            continue
        assert found.to_json() == open_pointer(data)[0]  # whatever passes is canonical


def test_who_may_claim_a_pointer() -> None:
    claim = Claim("group", 2, INCARNATION, place_name(2, "1" * 16))
    check_claimable(at(1, 9, incarnation=OTHER), claim)
    check_claimable(at(2, 9), claim)
    with pytest.raises(OldTermError):
        check_claimable(at(3, 1), claim)
    with pytest.raises(TermConflictError):
        check_claimable(at(2, 1, incarnation=OTHER), claim)
    with pytest.raises(WrongGroupError):
        check_claimable(at(1, 1), Claim("other", 2, INCARNATION, claim.place))


def test_what_a_publisher_makes_of_a_pointer_it_did_not_expect() -> None:
    put = at(2, 5)
    assert judge_found(at(2, 5), put) is Found.MINE
    assert judge_found(at(2, 4), put) is Found.OLDER
    assert judge_found(at(1, 40, incarnation=OTHER), put) is Found.OLDER
    with pytest.raises(TermConflictError):
        judge_found(at(2, 4, opening="1" * 16), put)
    with pytest.raises(TermConflictError):
        judge_found(at(2, 6), put)
    with pytest.raises(OldTermError):
        judge_found(at(3, 1), put)


def test_a_reader_never_goes_back() -> None:
    seen = Seen(2, INCARNATION, 5)
    assert is_news(at(2, 6), "group", seen)
    assert is_news(at(3, 1, incarnation=OTHER), "group", seen)
    assert not is_news(at(2, 5), "group", seen)
    assert not is_news(at(2, 4), "group", seen)
    with pytest.raises(OldTermError):
        is_news(at(1, 99), "group", seen)
    with pytest.raises(TermConflictError):
        is_news(at(2, 6, incarnation=OTHER), "group", seen)


@pytest.mark.parametrize("place", ["", "0-" + "0" * 16, "1-0", "1-" + "G" * 16, f"{2**63}-" + "0" * 16, 7, None])
def test_only_true_places_are_places(place: object) -> None:
    with pytest.raises(FormatError):
        term_of(place)


def test_only_our_own_keys_are_ever_called_garbage() -> None:
    stem = history(1)[0].links[0].key.file_stem
    ours = parse_listed(f"places/{PLACE}/objects/{stem}/manifest")
    assert ours is not None
    assert (ours.place, ours.kind, ours.name) == (PLACE, "objects", stem)
    for path in ("latest", "notes.txt", f"places/{PLACE}/notes.txt", f"places/{PLACE}/objects/my-notes/manifest",
                 f"places/x/objects/{stem}/manifest", f"places/{PLACE}/objects/{stem}/a/b"):  # fmt: skip
        assert parse_listed(path) is None


@given(st.binary(max_size=2000), st.binary(min_size=32, max_size=32))
def test_a_seal_opens_to_what_was_closed_and_to_nothing_else(data: bytes, key: bytes) -> None:
    seal = Seal("group", key)
    path = f"places/{PLACE}/layouts/x"
    closed = bytes(seal.close(path, data))
    assert len(closed) == len(data) + seal.overhead_bytes
    assert seal.open(path, closed) == data
    assert seal.close(path, data) != closed  # another nonce every time
    altered = closed[:-1] + bytes([closed[-1] ^ 1])
    other_place = path.replace(PLACE, "2" + PLACE[1:])
    for wrong, where, what in (
        (seal, path, altered), (seal, other_place, closed), (seal, path + "y", closed), (seal, path, data),
        (Seal("other", key), path, closed), (Seal("group", bytes(32)), path, closed), (Seal("group"), path, closed),
    ):  # fmt: skip
        if wrong is not seal and key == bytes(32):
            continue
        with pytest.raises(StoreDamagedError):
            wrong.open(where, what)


def test_a_group_key_is_64_hexadecimal_digits() -> None:
    assert parse_group_key("ab" * 32 + "\n") == b"\xab" * 32
    for wrong in ("", "ab" * 31, "zz" * 32):
        with pytest.raises(SettingsError, match="openssl rand"):
            parse_group_key(wrong)


class Flaky:
    """A store that fails so many times before it answers, and one that keeps no conditions."""

    def __init__(self, errors: Iterable[StoreError] = ()) -> None:
        self._errors = iter(errors)
        self.asked = 0

    def _fail(self) -> None:
        self.asked += 1
        error = next(self._errors, None)
        if error is not None:
            raise error

    def get(self, key: str, limit_bytes: int) -> Fetched:
        self._fail()
        return Fetched(b"x", "1")

    def get_if_changed(self, key: str, tag: str | None, limit_bytes: int) -> Fetched | None:
        return self.get(key, limit_bytes)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._fail()

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        self._fail()
        return f"{self.asked}"

    def remove(self, keys: Iterable[str]) -> None:
        self._fail()

    def list(self, prefix: str) -> Iterator[str]:
        self._fail()
        return iter(())


def test_what_can_pass_is_asked_again_with_longer_pauses() -> None:
    slept: list[float] = []
    patience = Patience(sleep=slept.append, clock=lambda: sum(slept), jitter=lambda: 1.0)
    flaky = Flaky([StoreError("503")] * 3)
    assert PatientObjects(flaky, patience).get("k", 1).data == b"x"
    assert slept == pytest.approx([0.1, 0.2, 0.4])


def test_patience_ends_and_never_repeats_what_cannot_pass() -> None:
    slept: list[float] = []
    patience = Patience(sleep=slept.append, clock=lambda: sum(slept), jitter=lambda: 1.0, give_up_after_s=20)
    with pytest.raises(StoreError):
        PatientObjects(Flaky([StoreError("503")] * 99), patience).put("k", b"")
    assert 15 < sum(slept) <= 20
    for error in (StoreMissingError("gone"), StoreDeniedError("403")):
        flaky = Flaky([error])
        with pytest.raises(type(error)):
            PatientObjects(flaky, patience).get("k", 1)
        assert flaky.asked == 1
    flaky = Flaky([StoreError("503")])
    with pytest.raises(StoreError):
        PatientObjects(flaky, patience).swap("latest", b"", None)  # may have been done: whoever asked reads first
    assert flaky.asked == 1


def test_a_store_that_keeps_no_conditions_is_refused() -> None:
    with pytest.raises(StoreUnfitError, match="conditional writes"):
        prove_conditions(Flaky(), PLACE, Patience())


def test_credentials_that_are_refused_are_told_as_such_and_not_as_a_store_that_is_away() -> None:
    """Also while a publisher opens, which asks by conditional puts alone: nobody waits a minute for a wrong word."""
    flaky = Flaky([StoreDeniedError("403")])
    with pytest.raises(StoreDeniedError):
        prove_conditions(flaky, PLACE, Patience())
    assert flaky.asked == 1
