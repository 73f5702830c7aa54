"""One lab of three regions for a whole module; every test starts with perfect links and fresh counters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from tests.component.linkemu.traffic import drain
from tools.errors import HostError
from tools.linkemu import Lab, LinkShape


def start_lab_or_skip(num_regions: int) -> Lab:
    """A lab, or a skipped test with the reason why this machine cannot have one."""
    try:
        return Lab.start(num_regions)
    except HostError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Lab]:
    with start_lab_or_skip(3) as lab:
        yield lab


@pytest.fixture
def lab(module_lab: Lab) -> Lab:
    for source, destination in permutations(module_lab.regions, 2):
        module_lab.emulator.mend(source, destination)
        module_lab.emulator.set(source, destination, LinkShape())
    for region in module_lab.regions:
        module_lab.emulator.set_uplink(region, 0)
    drain(module_lab)
    module_lab.emulator.reset()
    return module_lab
