"""Links between places: what was learned about them, and codec, streams and bucket size that follow. Pure.

Reports are figures of the last payloads and move all the time; a plan that moved with them would be a new plan every
few seconds. So the operator remembers figures per pair of places, and replaces them only by ones that differ by a
factor and go on to differ over several payloads. Seeds and codec follow the memory, never a report. A group's links are
measured one after the other, and each would be a plan of its own: new figures wait, and go into one plan together.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sync_runtime.contract.plan import BucketPlan, LinkPlan, StreamPlan
from sync_runtime.contract.reports import LinkReport
from sync_runtime.contract.status import PPM, LinkCodec
from sync_runtime.contract.sync import BUCKET_STEP_BYTES, MIB, Sync
from sync_runtime.tuning.buckets import bucket_bytes
from sync_runtime.tuning.codec import coded, tight_pays
from sync_runtime.tuning.model import PathFacts, seed_streams
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.leases import Life
from syncgroup_operator.planning.observation import Place
from syncgroup_operator.planning.state import MAX_LINK_MEMORIES, LinkMemory

MOVES_BY = 1.5
"""A figure within this factor of what is remembered is the same figure."""
CONFIRMED_BY_PAYLOADS = 3
ADOPT_EVERY_S = 30.0
"""At most so often new figures of links make a new plan; the senders' own tuning does not wait for it."""
NEAR = PathFacts(capacity_bytes_per_s=1.25e9, rtt_s=0.0005)
"""Assumed of members of one place until something is measured: 10 Gbit/s."""
FAR = PathFacts(capacity_bytes_per_s=1.25e8, rtt_s=0.1)
"""Assumed between places: 1 Gbit/s over an ocean."""
SEED_BUCKET_BYTES = MIB
_ELEMENTS = 1e6
_FAST_BYTES, _TIGHT_BYTES = 2.0 * _ELEMENTS, 1.0 * _ELEMENTS
"""`tight` needs about half the bytes of `fast`."""
_FAST_ELEMENTS_PER_S, _TIGHT_ELEMENTS_PER_S = 1e9, 1e8
"""Assumed: the trainer's sidecar knows the real costs, and refuses where the plan's `Tight` does not pay."""
_MAX_FIGURE = 2**53 - 1


class Pair(NamedTuple):
    """A directed link."""

    sender: Place
    receiver: Place


def read_links(memories: Iterable[LinkMemory]) -> dict[Pair, LinkMemory]:
    """What the state remembers, by link."""
    return {pair_of(memory): memory for memory in memories}


def pair_of(link: LinkMemory | LinkReport) -> Pair:
    """Which link these figures are of."""
    return Pair(Place(link.from_cluster, link.from_region), Place(link.to_cluster, link.to_region))


def reported_links(
    lives: Iterable[Life], places: Iterable[Place], relays: Container[str] = ()
) -> dict[Pair, LinkReport]:
    """One report per link between places of the group, from a member that is not lost.

    The one to a relay if there is one, since that is what the link is for; then the one with most payloads.
    """
    known = set(places)
    found: dict[Pair, LinkReport] = {}
    for life in lives:
        if life.report is None or life.lost:
            continue
        for link in life.report.links:
            pair = pair_of(link)
            if pair.sender not in known or pair.receiver not in known:
                continue
            best = found.get(pair)
            if best is None or _weight(link, relays) > _weight(best, relays):
                found[pair] = link
    return found


def learn(
    memories: Mapping[Pair, LinkMemory],
    reports: Mapping[Pair, LinkReport],
    sync: Sync,
    places: Iterable[Place],
    now: datetime.datetime,
) -> dict[Pair, LinkMemory]:
    """What is remembered after these reports; links between places that left the group are forgotten."""
    known = set(places)
    learned: dict[Pair, LinkMemory] = {}
    for pair in sorted({*memories, *reports}):
        if pair.sender not in known or pair.receiver not in known:
            continue
        memory = _taught(memories.get(pair), reports.get(pair), sync, now)
        if memory is not None:
            learned[pair] = _with_codec(memory, sync)
    if len(learned) > MAX_LINK_MEMORIES:
        newest = sorted(learned.items(), key=lambda item: (item[1].measured_time or "", item[0]), reverse=True)
        learned = dict(sorted(newest[:MAX_LINK_MEMORIES]))
    return learned


@dataclass(frozen=True, slots=True)
class Adoption:
    """Which figures plans may rest on from now on."""

    links: Mapping[Pair, LinkMemory]
    since: datetime.datetime | None
    """For the state: when this was last done, or when the first figures began to wait."""
    wait_s: float | None = None
    """After how long those that had to wait will be taken; None: nobody waits."""


def adopt(
    before: Mapping[Pair, LinkMemory],
    learned: Mapping[Pair, LinkMemory],
    since: datetime.datetime | None,
    now: datetime.datetime,
) -> Adoption:
    """All new figures together, or none of them yet; what is forgotten and what the spec decides never waits."""
    fresh = {pair for pair, memory in learned.items() if not _same_figures(before.get(pair), memory)}
    if not fresh:
        return Adoption(learned, since)
    begun = now if since is None else since
    waited_s = clock.seconds_since(begun, now)
    if waited_s >= ADOPT_EVERY_S:
        return Adoption(learned, now)
    # Who must wait is judged again later, by the reports of that moment: nothing is lost but an older figure.
    held = {pair: before[pair] if pair in fresh else memory for pair, memory in learned.items() if pair in before}
    return Adoption(held, begun, ADOPT_EVERY_S - waited_s)


def link_plan(pair: Pair, memory: LinkMemory | None, sync: Sync) -> LinkPlan:
    """How a link is used, inside the spec's bounds, with the reason."""
    streams, sizes = sync.streams, sync.bucket_bytes
    if memory is None:
        stream_seed, bucket_seed = assumed_seeds(pair, sync)
    else:
        stream_seed, bucket_seed = memory.streams, memory.bucket_bytes
    codec, why = _codec(memory, sync)
    return LinkPlan(
        from_cluster=pair.sender.cluster,
        from_region=pair.sender.region,
        codec=codec,
        streams=StreamPlan(seed=_within(stream_seed, streams.min, streams.max), min=streams.min, max=streams.max),
        bucket_bytes=BucketPlan(seed=_within(bucket_seed, sizes.min, sizes.max), min=sizes.min, max=sizes.max),
        message=f"{_figures(pair, memory)}; {why}"[:256],
    )


def assumed_seeds(pair: Pair, sync: Sync) -> tuple[int, int]:
    """Streams and bucket size for a link that nothing was measured of."""
    path = NEAR if pair.sender == pair.receiver else FAR
    return _modelled(path, sync)


def _taught(
    memory: LinkMemory | None, report: LinkReport | None, sync: Sync, now: datetime.datetime
) -> LinkMemory | None:
    if report is None or not report.payloads or not report.capacity_bits_per_second:
        return memory
    if memory is None:
        return _remembered(report, None, sync, now)
    if not _differs(memory, report):
        return memory if memory.doubted_payloads is None else _doubted(memory, None)
    doubted = memory.doubted_payloads
    if doubted is None or report.payloads < doubted:  # fewer than before: the sender began to count anew
        return _doubted(memory, report.payloads)
    if report.payloads - doubted < CONFIRMED_BY_PAYLOADS:
        return memory
    return _remembered(report, memory, sync, now)


def _differs(memory: LinkMemory, report: LinkReport) -> bool:
    pairs = (
        (memory.capacity_bits_per_second, report.capacity_bits_per_second),
        (memory.rate_bits_per_second, report.rate_bits_per_second),
        (memory.min_rtt_micros, report.min_rtt_micros),
        (memory.streams, report.streams),
        (memory.bucket_bytes, report.bucket_bytes),
    )
    return any(before and after and max(before, after) > MOVES_BY * min(before, after) for before, after in pairs)


def _remembered(report: LinkReport, before: LinkMemory | None, sync: Sync, now: datetime.datetime) -> LinkMemory:
    capacity = _smoothed(before.capacity_bits_per_second if before else None, report.capacity_bits_per_second)
    rtt_micros = _smoothed(before.rtt_micros if before else None, report.rtt_micros)
    min_rtt_micros = min(
        _smoothed(before.min_rtt_micros if before else None, report.min_rtt_micros), rtt_micros or _MAX_FIGURE
    )
    path = PathFacts(
        capacity / 8, min_rtt_micros / 1e6, (report.loss_ppm or 0) / PPM, congestion_control=report.congestion_control
    )
    streams, size_bytes = _modelled(path, sync)
    step_bytes = report.bucket_bytes // BUCKET_STEP_BYTES * BUCKET_STEP_BYTES
    return LinkMemory(
        from_cluster=report.from_cluster,
        from_region=report.from_region,
        to_cluster=report.to_cluster,
        to_region=report.to_region,
        payloads=report.payloads,
        rate_bits_per_second=_smoothed(before.rate_bits_per_second if before else None, report.rate_bits_per_second),
        capacity_bits_per_second=capacity,
        rtt_micros=rtt_micros,
        min_rtt_micros=min_rtt_micros,
        loss_ppm=report.loss_ppm or 0,
        streams=report.streams or streams,
        bucket_bytes=step_bytes or size_bytes,
        codec=before.codec if before else "Fast",
        measured_time=clock.written(now),
    )


def _smoothed(before: int | None, after: int | None) -> int:
    """Half-way in ratios: what was confirmed counts, what was known too. 0: nothing is known."""
    if not before or not after:
        return after or before or 0
    # A change by more than one step is no noise: half-way would take many plans to arrive.
    if max(before, after) > MOVES_BY**2 * min(before, after):
        return after
    return min(round(math.sqrt(before) * math.sqrt(after)), _MAX_FIGURE)


def _same_figures(before: LinkMemory | None, after: LinkMemory) -> bool:
    """Whether only doubts about them, or the codec that the spec asks for, changed."""
    if before is None:
        return False
    return before.model_copy(update={"codec": after.codec, "doubted_payloads": after.doubted_payloads}) == after


def _doubted(memory: LinkMemory, payloads: int | None) -> LinkMemory:
    return memory.model_copy(update={"doubted_payloads": payloads})


def _with_codec(memory: LinkMemory, sync: Sync) -> LinkMemory:
    codec, _ = _codec(memory, sync)
    return memory if codec == memory.codec else memory.model_copy(update={"codec": codec})


def _codec(memory: LinkMemory | None, sync: Sync) -> tuple[LinkCodec, str]:
    if sync.codec != "Auto":
        return sync.codec, f"{sync.codec.lower()}, as the spec says"
    if memory is None or not memory.capacity_bits_per_second:
        return "Fast", "fast until it is measured"
    fast = coded(_ELEMENTS, _FAST_BYTES, encode_per_s=_FAST_ELEMENTS_PER_S, decode_per_s=_FAST_ELEMENTS_PER_S)
    tight = coded(_ELEMENTS, _TIGHT_BYTES, encode_per_s=_TIGHT_ELEMENTS_PER_S, decode_per_s=_TIGHT_ELEMENTS_PER_S)
    if tight_pays(fast, tight, memory.capacity_bits_per_second / 8, in_use=memory.codec):
        return "Tight", "tight: it is slow enough that fewer bytes are worth the coding"
    return "Fast", "fast: it carries the bytes sooner than tight could save them"


def _modelled(path: PathFacts, sync: Sync) -> tuple[int, int]:
    streams, sizes = sync.streams, sync.bucket_bytes
    bounds = StreamPlan(seed=streams.min, min=streams.min, max=streams.max)
    count = seed_streams(path, bounds)
    seed = BucketPlan(seed=_within(SEED_BUCKET_BYTES, sizes.min, sizes.max), min=sizes.min, max=sizes.max)
    return count, bucket_bytes(0, path.capacity_bytes_per_s, count, seed)


def _figures(pair: Pair, memory: LinkMemory | None) -> str:
    if memory is None:
        near = pair.sender == pair.receiver
        return f"not measured yet, assumed {'10 Gbit/s within the place' if near else '1 Gbit/s and 100 ms'}"
    millis = memory.min_rtt_micros / 1e3
    return f"measured {_rate(memory.capacity_bits_per_second)}, {millis:.3g} ms, {memory.loss_ppm} ppm loss"


def _rate(bits_per_second: int) -> str:
    scale, unit = (1e9, "Gbit/s") if bits_per_second >= 1e9 else (1e6, "Mbit/s")
    return f"{bits_per_second / scale:.3g} {unit}"


def _weight(link: LinkReport, relays: Container[str]) -> tuple[bool, int, int, str]:
    return link.peer in relays, link.payloads, link.capacity_bits_per_second or 0, link.peer


def _within(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
