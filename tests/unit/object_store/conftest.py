"""A folder as a store, and a trainer that publishes: what these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime.transport.object_store.folder import FolderStore
from tests.support.stores import TrainerSide


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[TrainerSide]:
    side = TrainerSide.make(tmp_path)
    with side.spool:
        yield side
