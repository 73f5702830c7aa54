"""Helm for the tests of the chart; the programs skip where they are not built."""

from __future__ import annotations

import pytest

from tests.support import helm as support
from tests.support.helm import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 4, with which most of the tests are done."""
    return support.find("helm", tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def helm3(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 3, for what must be the same in both."""
    return support.find("helm3", tmp_path_factory.mktemp("helm3"))
