from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sync_runtime.links.memory import MAX_MEMORY_BYTES, MAX_REMEMBERED_LINKS, LinkKey, LinkMemory
from sync_runtime.tuning.state import MAX_WINDOWS, LinkState, RememberedWindow

KEY = LinkKey("hub", "home", "spoke", "away")


def state(streams: int = 7) -> LinkState:
    return LinkState(streams=streams, settled=True, capacity_bytes_per_second=10_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "links.json"


def test_what_was_learned_is_there_after_a_restart(path: Path) -> None:
    memory = LinkMemory(path)
    assert memory.load() is None
    memory.put(KEY, state())
    assert memory.save() is None
    again = LinkMemory(path)
    assert again.load() is None
    assert again.get(KEY) == state()
    assert again.get(LinkKey("spoke", "away", "hub", "home")) is None


def test_the_file_is_for_its_owner_alone_and_nothing_lies_beside_it(path: Path) -> None:
    memory = LinkMemory(path)
    memory.put(KEY, state())
    for _ in range(3):
        assert memory.save() is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_longest_unused_link_gives_way(path: Path) -> None:
    memory = LinkMemory(path)
    keys = [LinkKey("hub", "home", "spoke", f"region-{number}") for number in range(MAX_REMEMBERED_LINKS + 1)]
    for key in keys:
        memory.put(key, state())
        memory.put(keys[0], state(3))
    assert memory.get(keys[0]) == state(3)
    assert memory.get(keys[1]) is None
    assert memory.get(keys[-1]) is not None


def test_as_many_full_memories_as_allowed_fit_into_the_file(path: Path) -> None:
    window = RememberedWindow(streams=64, bytes_per_second=10**12, rtt_micros=10**12, loss_ppm=10**6)
    full = LinkState(
        streams=64, settled=True, capacity_bytes_per_second=10**12, picoseconds_per_byte=10**15, payloads=2**53 - 1,
        windows=[window] * MAX_WINDOWS,
    )  # fmt: skip
    memory = LinkMemory(path)
    for number in range(MAX_REMEMBERED_LINKS):
        memory.put(LinkKey(*(f"{letter * 55}-{number:03}" for letter in "abcd")), full)
    assert memory.save() is None
    assert path.stat().st_size <= MAX_MEMORY_BYTES
    assert LinkMemory(path).load() is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        b'{"formatVersion":2,"links":[]}',
        b'{"formatVersion":1,"links":[{}]}',
        b'{"formatVersion":1,"links":[],"links":[]}',
        b"[" * 5000,
        b" " * (MAX_MEMORY_BYTES + 2),
    ],
    ids=["empty", "no version", "no text", "newer", "no fields", "twice", "deep", "long"],
)
def test_a_damaged_file_is_told_of_and_replaced(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    memory = LinkMemory(path)
    problem = memory.load()
    assert problem is not None
    assert str(path) in problem
    assert memory.get(KEY) is None
    memory.put(KEY, state())
    assert memory.save() is None
    assert LinkMemory(path).load() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.binary(max_size=300))
def test_no_bytes_make_loading_fail(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert LinkMemory(path).load() is not None


def test_links_and_pipes_are_not_followed(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    memory = LinkMemory(elsewhere)
    memory.put(KEY, state())
    memory.save()
    path.symlink_to(elsewhere)
    assert LinkMemory(path).load() is not None
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in (LinkMemory(path).load() or "")
    path.unlink()
    path.mkdir()
    assert LinkMemory(path).load() is not None


def test_a_disk_that_takes_nothing_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = LinkMemory(path)
    memory.put(KEY, state(3))
    assert memory.save() is None

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    memory.put(KEY, state(9))
    problem = memory.save()
    assert problem is not None
    assert "No space left" in problem
    monkeypatch.undo()
    again = LinkMemory(path)
    assert again.load() is None
    assert again.get(KEY) == state(3)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_folder_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    memory = LinkMemory(tmp_path / "missing" / "links.json")
    memory.put(KEY, state())
    assert memory.load() is None
    assert memory.save() is not None
