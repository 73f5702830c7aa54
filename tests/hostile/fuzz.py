"""Hostile bytes without end: `python -m tests.hostile.fuzz [--count 1000000] [--seed N] [--blind]`.

Attacks deltas, anchors and files in turn, guided by what was reached (`guided`); `--blind` damages the sound bytes
only, for comparison. A crash, a foreign exception, a wrong state or memory above the declared limit ends the run with
its bytes. At the end it prints which checks of the readers were met and which were not.

Two watches on memory: tracemalloc against the format's limit for a share of the mutants, and for all of them a bound on
the process's address space, which every allocator meets. With NUMBA_BOUNDSCHECK=1 (and its own NUMBA_CACHE_DIR) an
index outside an array is an exception too, instead of silence.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence

from tests.hostile.guided import Campaign
from tests.hostile.sites import Site, all_sites
from tests.hostile.targets import CODECS, AnchorTarget, Attacked, FileTarget, Target
from tests.support.states import compile_loops

BATCH = 2_500
ADDRESS_SPACE_MARGIN_BYTES = 256 << 20


def targets() -> list[Attacked]:
    """Everything that reads bytes from elsewhere."""
    return [*(Target(codec) for codec in CODECS), AnchorTarget(), FileTarget()]


def main() -> int:
    """Fuzz the targets in turn; one line per round."""
    parser = argparse.ArgumentParser(description="Hostile bytes without end.")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--blind", action="store_true", help="damage the sound bytes only, learn nothing")
    options = parser.parse_args()
    compile_loops()
    campaigns = [Campaign(target, options.seed + at, blind=options.blind) for at, target in enumerate(targets())]
    _bound_address_space()
    tried, started_s = 0, time.monotonic()
    while tried < options.count:
        campaign = campaigns[tried // BATCH % len(campaigns)]
        _batch(campaign, min(BATCH, options.count - tried), options.seed)
        tried = sum(campaign.findings.tried for campaign in campaigns)
        if tried % (BATCH * len(campaigns)) == 0:
            sys.stderr.write(f"{tried} tried, {len(_met(campaigns))} of {len(all_sites())} checks met\n")
    _say(campaigns, options.seed, time.monotonic() - started_s)
    return 0


def _batch(campaign: Campaign, count: int, seed: int) -> None:
    for _ in range(count):
        damaged = campaign.attack()
        try:
            campaign.run(damaged)
        except BaseException:
            sys.stderr.write(f"seed {seed}, {campaign.target.name}: {damaged.hex()}\n")
            raise


def _bound_address_space() -> None:
    """From here on an allocation far above any limit fails, whoever asks for it."""
    with open("/proc/self/statm", encoding="ascii") as file:
        in_use_bytes = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (in_use_bytes + ADDRESS_SPACE_MARGIN_BYTES, hard))


def _met(campaigns: Sequence[Campaign]) -> set[Site]:
    return set().union(*(campaign.findings.sites for campaign in campaigns))


def _say(campaigns: Sequence[Campaign], seed: int, spent_s: float) -> None:
    for campaign in campaigns:
        found, limit = campaign.findings, campaign.target.limit_bytes
        sys.stdout.write(
            f"{campaign.target.name}: {found.tried} tried, {found.taken} taken and right, "
            f"{len(campaign.corpus)} seeds, {len(found.reached)} ways to end, "
            f"{found.peak_bytes} bytes in use at most, {limit} allowed\n"
        )
    met, every = _met(campaigns), all_sites()
    sys.stdout.write(f"seed {seed}, {spent_s:.0f} s: {len(met)} of {len(every)} checks met\n")
    sys.stdout.write("".join(f"met: {site}\n" for site in sorted(met)))
    for site in sorted(every - met):
        sys.stdout.write(f"never met: {site}{', as ' * bool(site.unmet_because)}{site.unmet_because}\n")


if __name__ == "__main__":
    sys.exit(main())
