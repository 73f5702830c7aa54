"""The guided fuzzer itself: it repeats from its seed, gets further than blind damage, and judges memory."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.hostile.filestructure import split_file
from tests.hostile.guided import Campaign, MemoryFoundError
from tests.hostile.sites import UNMET, Site, all_sites
from tests.hostile.structure import split
from tests.hostile.targets import AnchorTarget, Attacked, FileTarget, Target

TARGETS: list[Callable[[], Attacked]] = [lambda: Target("fast"), lambda: Target("tight"), AnchorTarget, FileTarget]
MUTANTS = 2_000


def met(make: Callable[[], Attacked], *, blind: bool, count: int = MUTANTS) -> set[Site]:
    campaign = Campaign(make(), 11, blind=blind)
    for _ in range(count):
        campaign.run(campaign.attack())
    return campaign.findings.sites


@pytest.mark.timeout(120)
def test_guided_damage_meets_more_checks_than_blind_damage() -> None:
    guided = set().union(*(met(make, blind=False) for make in TARGETS))
    blind = set().union(*(met(make, blind=True) for make in TARGETS))
    assert guided <= all_sites()
    assert len(guided) > len(blind) + 10
    assert not {site for site in guided if site.unmet_because}, "a check that is said to be out of reach was met"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", TARGETS, ids=["fast", "tight", "anchor", "file"])
def test_the_same_seed_gives_the_same_mutants(make: Callable[[], Attacked]) -> None:
    first, second = Campaign(make(), 5), Campaign(make(), 5)
    for _ in range(100):
        mutant = first.attack()
        assert second.attack() == mutant
        first.run(mutant)
        second.run(mutant)
    assert first.corpus == second.corpus
    assert len(first.corpus) > 10


def test_every_check_that_is_said_to_be_out_of_reach_exists() -> None:
    assert {site.unmet_because for site in all_sites()} - {""} == set(UNMET.values())
    assert len([site for site in all_sites() if site.unmet_because]) == len(UNMET)


@pytest.mark.parametrize("make", TARGETS[:3], ids=["fast", "tight", "anchor"])
def test_an_object_survives_being_taken_apart(make: Callable[[], Attacked]) -> None:
    data = make().seeds[0]
    parts = split(data)
    assert parts is not None
    assert len(parts.records) >= 3
    assert parts.joined() == data


def test_a_file_survives_being_taken_apart() -> None:
    for data in FileTarget().seeds:
        parts = split_file(data)
        assert parts is not None
        assert parts.joined() == data


class Greedy(Attacked):
    """Trusts a size that it was told."""

    name, seeds, limit_bytes = "greedy", (b"\0" * 64,), 1 << 20

    def trial(self, damaged: bytes) -> None:
        """Reserves what the first bytes ask for."""
        np.empty(int.from_bytes(damaged[:4], "little") % (1 << 26), np.uint8)


def test_memory_above_the_limit_is_a_find() -> None:
    campaign = Campaign(Greedy(), 1)
    campaign.run(bytes(64))
    campaign.findings.tried = 0  # the next one is measured
    with pytest.raises(MemoryFoundError):
        campaign.run(b"\0\0\0\3" + bytes(60))
