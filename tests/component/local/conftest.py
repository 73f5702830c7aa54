"""A sidecar in memory on a real socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.local.rig import Pair
from tests.support.toy_sidecar import toy_sidecar


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "sidecar.sock")


@pytest.fixture
def pair(path: str) -> Iterator[Pair]:
    with toy_sidecar(path) as running:
        yield running
