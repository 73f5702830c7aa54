"""The lease in a file."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from pathlib import Path

import pytest

from sync_runtime.membership.documents import read_lease
from sync_runtime.membership.errors import MembershipError
from sync_runtime.membership.file import FileLease
from tests.unit.membership.reports import NAME, NOW, report

SECOND = datetime.timedelta(seconds=1)


def renew(lease: FileLease, state: str = "Serving", seconds: int = 0) -> None:
    asyncio.run(lease.renew(report(state=state), 15, NOW + seconds * SECOND))


def test_every_renewal_replaces_the_file(tmp_path: Path) -> None:
    lease = FileLease(tmp_path / "leases", NAME)
    renew(lease)
    first = read_lease(lease.path.read_bytes())
    renew(lease, "Draining", 5)
    second = read_lease(lease.path.read_bytes())
    assert (first.report.state, second.report.state) == ("Serving", "Draining")
    assert first.renew_time != second.renew_time
    assert [path.name for path in lease.path.parent.iterdir()] == ["worker-0.json"]


def test_the_next_process_takes_over_and_counts(tmp_path: Path) -> None:
    renew(FileLease(tmp_path, NAME))
    renew(FileLease(tmp_path, NAME))
    successor = FileLease(tmp_path, dataclasses.replace(NAME, holder="second"))
    renew(successor)
    renew(successor, seconds=5)
    seen = read_lease(successor.path.read_bytes())
    assert (seen.holder, seen.transitions) == ("second", 1)


@pytest.mark.parametrize("left", [b"", b"nonsense", b"[]", b'{"spec": 3}', b'{"spec": {"leaseTransitions": "x"}}'])
def test_whatever_lies_there_does_not_stop_a_renewal(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "worker-0.json").write_bytes(left)
    lease = FileLease(tmp_path, NAME)
    renew(lease)
    assert read_lease(lease.path.read_bytes()).transitions == 0


def test_a_folder_that_cannot_be_written_is_a_failed_renewal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MembershipError, match="cannot write"):
        renew(FileLease(tmp_path / "file", NAME))
