"""Whether `tight` pays on a link: fewer bytes against more time to code them.

Both codecs are lossless, so that only time decides. Knows neither codec: sizes and seconds come in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sync_runtime.contract.status import LinkCodec

SWITCH_GAIN = 0.10
"""`tight` is made beside `fast`, which costs the trainer's time: it must save this share of the whole."""


@dataclass(frozen=True, slots=True)
class CodedObject:
    """One version in one codec: how large, how long to make and to read."""

    size_bytes: float
    encode_s: float
    decode_s: float
    streamed: bool = True
    """Buckets leave while later ones are still being made, and are read as they come."""


def coded(elements: float, size_bytes: float, *, encode_per_s: float, decode_per_s: float) -> CodedObject:
    """From coding rates in changed elements per second; a rate of zero never ends."""
    return CodedObject(size_bytes, _time_s(elements, encode_per_s), _time_s(elements, decode_per_s))


def time_to_member_s(thing: CodedObject, rate_bytes_per_s: float) -> float:
    """From the start of coding to the decoded version at the far end."""
    stages = (thing.encode_s, _time_s(thing.size_bytes, rate_bytes_per_s), thing.decode_s)
    return max(stages) if thing.streamed else sum(stages)


def tight_pays(fast: CodedObject, tight: CodedObject, rate_bytes_per_s: float, *, in_use: LinkCodec = "Fast") -> bool:
    """Whether the link should carry `tight`. To change to it takes a gain of SWITCH_GAIN, to stay with it any gain."""
    if not rate_bytes_per_s > 0:
        return False
    fast_s, tight_s = time_to_member_s(fast, rate_bytes_per_s), time_to_member_s(tight, rate_bytes_per_s)
    if not math.isfinite(tight_s):
        return False
    return tight_s < fast_s * (1.0 if in_use == "Tight" else 1 - SWITCH_GAIN)


def _time_s(amount: float, rate: float) -> float:
    if amount <= 0:
        return 0.0
    return amount / rate if rate > 0 else math.inf
