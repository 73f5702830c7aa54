"""How tests start dev clusters; skips with the reason where a level is impossible on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.devcluster import client, hostcheck
from tools.devcluster.client import Cluster
from tools.devcluster.config import ClusterConfig, Level, parse_link, parse_regions

MakeCluster = Callable[..., Cluster]


def start(
    level: Level, regions: str, *, kwok_nodes: int = 0, images: tuple[Path, ...] = (), links: tuple[str, ...] = ()
) -> Cluster:
    """A cluster in a fresh folder that dies with this process; KUBE chooses the Kubernetes release."""
    reason = hostcheck.why_impossible(level)
    if reason is not None:
        pytest.skip(reason)
    parsed = parse_regions(regions)
    config = ClusterConfig(
        directory=Path(tempfile.mkdtemp(prefix=f"devcluster-{level.value}-")),
        level=level,
        regions=parsed,
        kube=os.environ.get("KUBE", "default"),
        kwok_nodes=kwok_nodes,
        links=tuple(parse_link(link, parsed) for link in links),
        images=tuple(map(str, images)),
    )
    return client.start(config, die_with_caller=True)
