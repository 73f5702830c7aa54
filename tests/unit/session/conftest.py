"""The scene of a member that receives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.identities import Group
from tests.unit.session.receivers import Scene


@pytest.fixture
def pki(tmp_path: Path) -> Group:
    return Group(tmp_path / "pki")


@pytest.fixture
def scene(tmp_path: Path, pki: Group) -> Iterator[Scene]:
    made = Scene(tmp_path / "spool", pki.trainer())
    yield made
    made.spool.close()
