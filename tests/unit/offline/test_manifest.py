"""Manifests: one spelling, room for a signature, contradictions refused."""

import json

import pytest

from sync_runtime.bucket.manifest import open_envelope, pack_envelope, parse_manifest
from sync_runtime.errors import FormatError, LimitError, SyncError, TruncatedError, UnknownFormatError
from sync_runtime.offline import diff
from sync_runtime.offline.deltafile import Delta, parse
from sync_runtime.tensors.layout import canonical_json
from tests.support.states import next_state, small_state


@pytest.fixture(scope="module")
def delta() -> Delta:
    before = small_state()
    return diff(before, next_state(before, 3, 40), seqs=(41, 42), lineage="ab" * 16, label="step 7")


def test_a_manifest_is_read_back_as_it_was_written(delta: Delta) -> None:
    found = parse_manifest(delta.manifest.to_json())
    assert found == delta.manifest
    assert (found.base and found.base.seq, found.target.seq, found.label) == (41, 42, "step 7")


def test_a_signature_travels_beside_the_signed_bytes(delta: Delta) -> None:
    document, signature = delta.manifest.to_json(), bytes(range(64))
    assert open_envelope(pack_envelope(document, signature)) == (document, signature)
    assert open_envelope(pack_envelope(document)) == (document, b"")
    signed = Delta(delta.layout, delta.manifest, delta.object, signature)
    assert parse(memoryview(signed.to_bytes())).signature == signature


def test_a_signature_of_another_length_is_refused(delta: Delta) -> None:
    with pytest.raises(FormatError):
        pack_envelope(delta.manifest.to_json(), b"short")


def test_every_truncation_and_flip_of_an_envelopes_frame_is_refused(delta: Delta) -> None:
    envelope = pack_envelope(delta.manifest.to_json())
    for size in range(len(envelope)):
        with pytest.raises(SyncError):
            parse_manifest(open_envelope(envelope[:size])[0])
    for at in (*range(8), *range(len(envelope) - 4, len(envelope))):
        for bit in range(8):
            damaged = bytearray(envelope)
            damaged[at] ^= 1 << bit
            with pytest.raises(SyncError):
                parse_manifest(open_envelope(bytes(damaged))[0])


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("format", "syncgroup-manifest/2", UnknownFormatError),
        ("codec", "zip", UnknownFormatError),
        ("codec", "anchor", FormatError),
        ("base", None, FormatError),
        ("bytes", 1, FormatError),
        ("blocks", -1, FormatError),
        ("blocks", 1.5, FormatError),
        ("changed", True, FormatError),
        ("buckets", [[1, "xyz"]], FormatError),
        ("buckets", [1], FormatError),
        ("digest_changes", "00", FormatError),
        ("digest_changes", 5, FormatError),
        ("label", "x" * 257, FormatError),
        ("layout", "00", FormatError),
        ("lineage", "A" * 32, FormatError),
        ("target", {"digest": "0" * 32, "seq": 42}, FormatError),
        ("target", [], FormatError),
    ],
)
def test_a_wrong_field_is_refused(delta: Delta, field: str, value: object, error: type[SyncError]) -> None:
    content = json.loads(delta.manifest.to_json())
    content[field] = value
    with pytest.raises(error):
        parse_manifest(canonical_json(content))


def test_missing_and_unknown_fields_are_refused(delta: Delta) -> None:
    content = json.loads(delta.manifest.to_json())
    with pytest.raises(FormatError):
        parse_manifest(canonical_json(content | {"extra": 1}))
    del content["label"]
    with pytest.raises(FormatError):
        parse_manifest(canonical_json(content))


def test_another_spelling_is_refused(delta: Delta) -> None:
    document = delta.manifest.to_json()
    with pytest.raises(FormatError, match="canonical"):
        parse_manifest(document.replace(b",", b", ", 1))


def test_sizes_in_an_envelope_are_checked_before_use() -> None:
    with pytest.raises(TruncatedError):
        open_envelope(b"SGM1" + (2**32 - 1).to_bytes(4, "little") + bytes(20))


def test_a_manifest_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, delta: Delta) -> None:
    monkeypatch.setattr("sync_runtime.bucket.manifest.MAX_ENVELOPE_BYTES", 100)
    with pytest.raises(LimitError):
        open_envelope(pack_envelope(delta.manifest.to_json()))


def test_a_manifest_for_another_layout_is_refused(delta: Delta) -> None:
    other = diff({"x": small_state()["codes"]}, {"x": small_state()["codes"]})
    with pytest.raises(FormatError):
        parse(memoryview(Delta(other.layout, delta.manifest, delta.object).to_bytes()))
