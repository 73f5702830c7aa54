"""The size of a bucket: computed from payload, rate and streams, not searched.

A bucket costs a fixed time at every hop, and a hop can pass on nothing before it has a whole one: small buckets waste
the first, large ones the second. Every stream needs several of them, or the last one decides when the payload ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sync_runtime.contract.plan import BucketPlan
from sync_runtime.contract.sync import BUCKET_STEP_BYTES

COST_PER_BUCKET_S = 0.0002
"""Framing, hashing call, queue and acknowledgement of one bucket in Python."""
BUCKETS_PER_STREAM = 4
MAX_SECONDS_OF_A_STREAM = 0.5
"""What a broken stream repeats, and what the controller waits for at least."""


def bucket_bytes(payload_bytes: float, rate_bytes_per_s: float, streams: int, bounds: BucketPlan) -> int:
    """The size for a payload that `streams` carry at a rate all together; unknown figures (zero) do not count."""
    limits: list[float] = []
    if payload_bytes > 0:
        limits.append(payload_bytes / (BUCKETS_PER_STREAM * max(streams, 1)))
    if rate_bytes_per_s > 0:
        limits.append(MAX_SECONDS_OF_A_STREAM * rate_bytes_per_s / max(streams, 1))
    if payload_bytes > 0 and rate_bytes_per_s > 0:
        limits.append(math.sqrt(payload_bytes * COST_PER_BUCKET_S * rate_bytes_per_s))
    else:
        limits.append(float(bounds.seed))
    wanted = min(limits)
    if not math.isfinite(wanted):
        return bounds.seed
    steps = max(int(min(wanted, float(bounds.max)) // BUCKET_STEP_BYTES), 1)
    # Powers of two, so that noise in the rate does not change the size with every payload.
    rounded = (1 << (steps.bit_length() - 1)) * BUCKET_STEP_BYTES
    return min(max(rounded, bounds.min), bounds.max)


def shared_bucket_bytes(wanted_by_links: Iterable[int], bounds: BucketPlan) -> int:
    """One size for an object that several links carry: boundaries are the same on all hops, so the finest wish wins."""
    return min(max(min(wanted_by_links, default=bounds.seed), bounds.min), bounds.max)
