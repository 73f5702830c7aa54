"""Clusters for tests: started once per test run, a fresh namespace for every test."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Iterator

import pytest

from tests.cluster import crd_fixtures
from tests.support import clusters
from tests.support.clusters import MakeCluster
from tests.support.operators import OperatorHub
from tools.devcluster.client import Cluster, RegionHandle
from tools.devcluster.config import Level
from tools.errors import ClusterError

TIMEOUT_S = 180


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that asks for a cluster also waits for its start.

    A file runs in one process, and everything with real nodes in the same one: kubelets and containerds take many of
    the inotify instances that a user has, and clusters side by side would run out of them.
    """
    for item in items:
        if "tests/cluster" in item.path.as_posix():
            on_nodes = item.get_closest_marker("bubble") is not None
            item.add_marker(pytest.mark.xdist_group("nodes" if on_nodes else item.path.stem))
        if "tests/cluster" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


def _running(cluster: Cluster) -> Iterator[Cluster]:
    """Hand a cluster out; its logs stay where a failed test says they are, everything else goes."""
    yield cluster
    with contextlib.suppress(ClusterError):  # the test may have ended it
        cluster.down()


@pytest.fixture(scope="session")
def planes() -> Iterator[Cluster]:
    """Two regions of control planes with kwok nodes, for the whole run."""
    yield from _running(clusters.start(Level.PLANES, "2", kwok_nodes=2))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Two regions with real nodes in the bubble, for one file."""
    yield from _running(clusters.start(Level.NODES, "2"))


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """Starts further clusters for one test: `make_cluster("planes", "1")`. They end with the test."""
    with contextlib.ExitStack() as stack:

        def make(level: str, regions: str, *, kwok_nodes: int = 0) -> Cluster:
            cluster = clusters.start(Level(level), regions, kwok_nodes=kwok_nodes)
            stack.callback(shutil.rmtree, cluster.config.directory, ignore_errors=True)
            return stack.enter_context(contextlib.contextmanager(_running)(cluster))

        yield make


@pytest.fixture(scope="session")
def region(planes: Cluster) -> RegionHandle:
    """One region's control plane."""
    return next(iter(planes.regions.values()))


@pytest.fixture(scope="session")
def hub(planes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> OperatorHub:
    """The other region, prepared for the operator; whoever needs one starts it."""
    return OperatorHub(list(planes.regions.values())[1], tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="session")
def crds(region: RegionHandle) -> None:
    """Our custom resources, established in `region`."""
    crd_fixtures.apply_crds(region)


_numbers = iter(range(1_000_000))


@pytest.fixture
def namespace(region: RegionHandle) -> Iterator[str]:
    """A fresh namespace in `region`."""
    name = f"test-{next(_numbers)}"
    region.kubectl("create", "namespace", name)
    yield name
    region.kubectl("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing cluster test says where the logs are."""
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            found = fixture.cluster if isinstance(fixture, RegionHandle) else fixture
            if isinstance(found, Cluster):
                report.sections.append(("dev cluster", f"logs are in {found.config.logs}"))
    return report
