"""Terms grow, layouts and signers come back as they were, lineages keep their beginning."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import VersionRef, parse_key
from sync_runtime.bucket.limits import MAX_LAYOUTS, MAX_SIGNER_BYTES, MAX_SIGNERS
from sync_runtime.bucket.manifest import Version
from sync_runtime.bucket.versions import Lineage, parse_lineage, unbroken_from
from sync_runtime.errors import FormatError, LimitError, OldTermError, SpoolCorruptError, SpoolError
from sync_runtime.tensors.digest import Digest
from tests.unit.bucket.samples import LAYOUT_HASH, LINEAGE, OTHER_LINEAGE, link, open_spool, store

START = Lineage(LINEAGE, 3, "ef" * 16, Version(4, Digest(4, 7)), LAYOUT_HASH, VersionRef(OTHER_LINEAGE, 4), 12)


def test_every_start_gets_a_larger_term_and_another_incarnation(tmp_path: Path) -> None:
    seen = []
    for at_least in (1, 1, 40, 7):
        with open_spool(tmp_path) as spool:
            term = spool.next_term(at_least)
            seen.append((term, spool.incarnation(term)))
    assert [term for term, _ in seen] == [1, 2, 40, 41]
    assert len({incarnation for _, incarnation in seen}) == 4


def test_a_term_from_elsewhere_keeps_its_incarnation_over_restarts(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        first = spool.incarnation(9)
    with open_spool(tmp_path) as spool:
        assert spool.incarnation(9) == first
        assert spool.incarnation(10) != first
        with pytest.raises(OldTermError):
            spool.incarnation(9)


@pytest.mark.parametrize("content", [b"", b"7", b"7 xyz\n", b"0 " + b"a" * 32 + b"\n", b"9" * 200])
def test_a_term_that_cannot_be_read_is_an_error_not_a_new_beginning(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "term").write_bytes(content)
    with pytest.raises(SpoolCorruptError):
        open_spool(tmp_path)


@pytest.mark.parametrize("term", [0, -4, 2**63])
def test_a_term_outside_its_range_is_refused(term: int, tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool, pytest.raises((LimitError, OldTermError)):
        spool.incarnation(term) if term < 1 else spool.next_term(term)


def test_layouts_and_signers_come_back(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        name = spool.put_layout(b'{"a":1}')
        assert name == hashlib.sha256(b'{"a":1}').hexdigest()
        assert spool.put_layout(b'{"a":1}') == name
        spool.put_signer(b"first")
        spool.put_signer(b"second")
        spool.put_signer(b"first")
    with open_spool(tmp_path) as spool:
        assert spool.layout(name) == b'{"a":1}'
        assert spool.layout("0" * 64) is None
        assert spool.layout("../term") is None
        assert set(spool.signers()) == {b"first", b"second"}
    (tmp_path / "layouts" / f"{name}.json").write_bytes(b"{}")
    with open_spool(tmp_path) as spool, pytest.raises(SpoolCorruptError, match="altered"):
        spool.layout(name)


def test_layouts_that_nobody_uses_do_not_pile_up(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        spool.put_lineage(replace(START, layout_hash=spool.put_layout(b"used")))
        names = [spool.put_layout(str(at).encode()) for at in range(MAX_LAYOUTS + 5)]
        assert spool.layout(hashlib.sha256(b"used").hexdigest()) == b"used"
        assert spool.layout(names[0]) is None
        assert spool.layout(names[-1]) is not None
        for at in range(MAX_SIGNERS + 5):
            spool.put_signer(str(at).encode())
        assert len(spool.signers()) == MAX_SIGNERS
    assert len(list((tmp_path / "layouts").iterdir())) == MAX_LAYOUTS


def test_a_signer_above_the_limit_is_refused(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool, pytest.raises(LimitError):
        spool.put_signer(bytes(MAX_SIGNER_BYTES + 1))


def test_a_lineage_keeps_its_beginning(tmp_path: Path) -> None:
    later = replace(START, lineage=OTHER_LINEAGE, term=4, origin=None)
    with open_spool(tmp_path) as spool:
        spool.put_lineage(later)
        spool.put_lineage(START)
        spool.put_lineage(replace(START, term=5))  # known: what is written stays
        with pytest.raises(SpoolError, match="another beginning"):
            spool.put_lineage(replace(START, start=Version(5, Digest(4, 7))))
    with open_spool(tmp_path) as spool:
        assert spool.lineages() == (START, later)


def test_a_lineages_document_under_another_name_is_ignored(tmp_path: Path) -> None:
    open_spool(tmp_path).close()
    (tmp_path / "lineages" / f"{OTHER_LINEAGE}.json").write_bytes(START.to_json())
    (tmp_path / "lineages" / f"{LINEAGE}.json").write_bytes(b"{}")
    with open_spool(tmp_path) as spool:
        assert spool.lineages() == ()
        assert len(spool.problems) == 2


@given(st.binary(max_size=60), st.integers(0, 400))
def test_a_lineages_document_that_was_tampered_with_is_refused(noise: bytes, at: int) -> None:
    document = START.to_json()
    tampered = document[:at] + noise + document[at + len(noise) :]
    try:
        assert parse_lineage(tampered).to_json() == tampered
    except FormatError:
        return


def test_the_index_of_versions_follows_the_objects(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        spool.put_lineage(START)
        store(spool, link(6), label="")
        store(spool, link(5), label="step 5")
        store(spool, parse_key(f"{LINEAGE}/4-6.fast"), label="merged")
        store(spool, link(9, OTHER_LINEAGE))
        versions = spool.versions(LINEAGE)
        assert list(versions) == [4, 5, 6]
        assert versions[5].label == "step 5"
        assert versions[6].label == ""
        assert versions[4].digest == Digest(4, 7)
        assert list(spool.versions(OTHER_LINEAGE)) == [8, 9]
        spool.remove(link(6))
        spool.remove(parse_key(f"{LINEAGE}/4-6.fast"))
        assert list(spool.versions(LINEAGE)) == [4, 5]


def test_a_version_is_retained_while_links_lead_from_it_to_the_newest(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        spool.put_lineage(START)
        assert list(spool.retained(LINEAGE)) == [4]
        assert spool.retained(OTHER_LINEAGE) == {}
        for seq in (5, 6, 7):
            store(spool, link(seq))
        assert list(spool.retained(LINEAGE)) == [4, 5, 6, 7]
        spool.remove(link(6))
        assert list(spool.retained(LINEAGE)) == [6, 7]
        assert list(spool.versions(LINEAGE)) == [4, 5, 6, 7]


@pytest.mark.parametrize(("links", "oldest"), [([], 9), ([9], 8), ([9, 8, 6], 7), ([5, 6], 9), (range(10), -1)])
def test_the_oldest_version_of_an_unbroken_chain(links: list[int], oldest: int) -> None:
    assert unbroken_from(links, 9) == oldest
