"""Damaged `.sgd` files: truncated, flipped, mutated in every part, the description included."""

from pathlib import Path

import pytest

from sync_runtime.errors import DigestError, FormatError, SyncError
from sync_runtime.offline import apply, load
from sync_runtime.offline.deltafile import parse
from tests.hostile.mutations import bit_flips, random_mutations, truncations
from tests.hostile.targets import Target
from tests.support.states import copied, same_bits

MUTATIONS = 4_000


@pytest.fixture(scope="module")
def target() -> Target:
    return Target("tight")


@pytest.fixture(scope="module")
def file(target: Target) -> bytes:
    return target.delta.to_bytes()


def is_harmless(target: Target, damaged: bytes) -> bool:
    """Whether a damaged file was taken and then led to the right state; anything else must be our error."""
    state = copied(target.before)
    try:
        apply(state, parse(memoryview(damaged)), threads=1)
    except SyncError:
        assert same_bits(state, target.before)
        return False
    assert same_bits(state, target.after)
    return True


def test_the_undamaged_file_is_taken(target: Target, file: bytes) -> None:
    assert is_harmless(target, file)


@pytest.mark.timeout(20)
def test_every_truncation_is_refused(target: Target, file: bytes) -> None:
    assert not any(is_harmless(target, damaged) for damaged in truncations(file))


def test_extra_bytes_are_refused(target: Target, file: bytes) -> None:
    assert not any(is_harmless(target, damaged) for damaged in (file + b"\0", b"\0" + file))


@pytest.mark.timeout(60)
def test_every_flipped_bit_is_refused_unless_it_is_a_mere_remark(target: Target, file: bytes) -> None:
    manifest = file.index(b"SGM1")
    for at, damaged in enumerate(bit_flips(file)):
        if is_harmless(target, damaged):
            assert at >= 8 * manifest, "object and layout are bound by hashes"


@pytest.mark.timeout(30)
def test_random_mutations_are_refused_or_right(target: Target, file: bytes) -> None:
    for damaged in random_mutations(file, MUTATIONS, 5):
        is_harmless(target, damaged)


def test_an_altered_object_is_named_as_such(file: bytes) -> None:
    damaged = bytearray(file)
    damaged[100] ^= 1
    with pytest.raises(DigestError, match="altered"):
        parse(memoryview(bytes(damaged)))


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 24, b"SGDFILE1" * 3], ids=["empty", "one", "zeros", "magic"])
def test_files_of_something_else_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sgd"
    path.write_bytes(content)
    with pytest.raises(FormatError):
        load(path)
