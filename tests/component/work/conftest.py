"""A trainer and two workers in different regions, inside the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.work.crew import ASIA, EU
from tests.support.groups import TRAINER
from tests.support.inside import InsideGroup


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(
        tmp_path, [TRAINER, EU, ASIA], ringBytes=1 << 20, maxStaleness=2, work={"mode": "Leased", "leaseSeconds": 600}
    ) as made:
        made.start_all()
        yield made
