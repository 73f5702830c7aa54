"""A region, a box of programs that are only names, and the plane they would make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.devcluster.components import Plane
from tools.devcluster.config import Region
from tools.kube.build import Toolbox
from tools.kube.catalog import SETS


@pytest.fixture
def region() -> Region:
    """The second region of a cluster."""
    return Region("eu-west", 2)


@pytest.fixture
def tools() -> Toolbox:
    """Every program by a path that does not exist."""
    return Toolbox({name: Path("/box") / name for names in SETS.values() for name in names})


@pytest.fixture
def plane(region: Region, tmp_path: Path) -> Plane:
    """A control plane at the level `planes`."""
    return Plane(
        region=region,
        folder=tmp_path / region.name,
        logs=tmp_path / "logs",
        bind="127.0.0.1",
        reach="127.0.0.1",
        advertise="127.0.0.1",
        api_port=6443,
        etcd_port=2379,
        etcd_peer_port=2380,
    )
