"""Formulas: what one TCP stream can carry, how many streams fill a link, how long they take to speed up, pacing.

The operator seeds plans with them before anything was measured; the controller paces with them. They are seeds:
what is measured wins. Total functions: any figures give a finite answer inside its range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sync_runtime.contract.plan import StreamPlan

MSS_BYTES = 1448
INITIAL_WINDOW_BYTES = 10 * MSS_BYTES
BUFFER_SHARE = 0.7
"""Of a send buffer's maximum, what TCP really has in flight; the rest is the kernel's own bookkeeping."""
HEADROOM = 1.25
"""Streams for a quarter more than the link carries: loss never hits all of them alike."""
BBR_LOSS_COST = 18.0
"""BBR does not slow down for loss but pauses to repair it: about 1/(1 + 18·√loss) of its window's rate remains."""
FEW_STREAMS = 4
SNDBUF_LIMIT = 0.3
"""Share of busy time above which send buffers are the limit: more streams bring more of them."""
PACING_HEADROOM = 1.15
REMEMBERED_PACING_HEADROOM = 1.25
"""A remembered rate may be out of date, so that it holds back less."""
MIN_PACING_BITS_PER_SECOND = 1_000_000
"""A pace is a cap, never a stop: what was measured in an outage must not keep the link from coming back."""
PACE_ABOVE_LOSS, PACE_BELOW_LOSS = 0.005, 0.0025
PACE_ABOVE_INFLATION, PACE_BELOW_INFLATION = 1.5, 1.2
_MIN_RTT_S = 1e-5
_MIN_LOSS = 1e-7
_MAX_RATE = 1e12


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What is known of a path before any payload went over it."""

    capacity_bytes_per_s: float
    rtt_s: float
    loss: float = 0.0
    send_buffer_bytes: int = 4 * 2**20
    congestion_control: str = "cubic"


def bandwidth_delay_bytes(capacity_bytes_per_s: float, rtt_s: float) -> int:
    """Bytes on their way when the link is full."""
    return int(min(max(capacity_bytes_per_s, 0.0) * max(rtt_s, 0.0), _MAX_RATE))


def stream_rate_bytes_per_s(path: PathFacts) -> float:
    """The most that one warm stream carries there, whatever the link's capacity."""
    rtt_s = max(path.rtt_s, _MIN_RTT_S)
    loss = min(max(path.loss, 0.0), 1.0)
    window = BUFFER_SHARE * max(path.send_buffer_bytes, INITIAL_WINDOW_BYTES) / rtt_s
    if path.congestion_control.startswith("bbr"):
        return min(window / (1 + BBR_LOSS_COST * math.sqrt(loss)), _MAX_RATE)
    if loss < _MIN_LOSS:
        return min(window, _MAX_RATE)
    reno_packets = 1.22 / math.sqrt(loss)
    cubic_packets = 1.054 * (rtt_s / loss) ** 0.75 if path.congestion_control == "cubic" else 0.0
    return min(window, max(reno_packets, cubic_packets) * MSS_BYTES / rtt_s, _MAX_RATE)


def streams_to_fill(capacity_bytes_per_s: float, stream_rate: float, bounds: StreamPlan) -> int:
    """Streams that fill the link with some to spare, inside the bounds; the plan's seed where nothing is known."""
    if not (capacity_bytes_per_s > 0 and stream_rate > 0):
        return bounds.seed
    wanted = min(HEADROOM * capacity_bytes_per_s / stream_rate, float(bounds.max))
    return max(bounds.min, math.ceil(wanted)) if math.isfinite(wanted) else bounds.seed


def seed_streams(path: PathFacts, bounds: StreamPlan) -> int:
    """Where a link without memory starts."""
    return streams_to_fill(path.capacity_bytes_per_s, stream_rate_bytes_per_s(path), bounds)


def fills_already(congestion_control: str | None, streams: int, loss: float, sndbuf_limited: float) -> bool:
    """Whether so many streams surely fill their link, so that more need not be tried at once.

    BBR follows the path's own rate unless buffers or repairs hold it back: four of them fill a link, eight a lossy one.
    A new stream of it takes several payloads to find its share on a long way, and slows the others until then.
    """
    if congestion_control is None or not congestion_control.startswith("bbr") or sndbuf_limited > SNDBUF_LIMIT:
        return False
    return streams >= (FEW_STREAMS if loss <= PACE_ABOVE_LOSS else 2 * FEW_STREAMS)


def ramp_s(capacity_bytes_per_s: float, rtt_s: float, streams: int) -> float:
    """Time that cold streams take to fill the link: they double every round trip."""
    started = max(streams, 1) * INITIAL_WINDOW_BYTES
    return max(rtt_s, 0.0) * math.log2(max(bandwidth_delay_bytes(capacity_bytes_per_s, rtt_s) / started, 1.0))


def pacing_bits_per_second(capacity_bytes_per_s: float, *, loss: float, inflation: float, paced: bool) -> int | None:
    """The rate that all streams together must not exceed, or None: let congestion control decide.

    Loss alone is the path's, inflation alone is a deep buffer; both together are our own overshoot, and only that is
    mended by pacing. `inflation` is smoothed over least round-trip time. What switches off lies below what switches on.
    """
    if capacity_bytes_per_s <= 0:
        return None
    least_loss = PACE_BELOW_LOSS if paced else PACE_ABOVE_LOSS
    least_inflation = PACE_BELOW_INFLATION if paced else PACE_ABOVE_INFLATION
    if loss <= least_loss or inflation <= least_inflation:
        return None
    return _bits(PACING_HEADROOM * capacity_bytes_per_s)


def remembered_pacing_bits_per_second(capacity_bytes_per_s: float) -> int | None:
    """Until the first payload after a restart is measured: cold streams must not overshoot a rate that is known."""
    return _bits(REMEMBERED_PACING_HEADROOM * capacity_bytes_per_s) if capacity_bytes_per_s > 0 else None


def _bits(bytes_per_s: float) -> int:
    return max(int(8 * min(bytes_per_s, _MAX_RATE)), MIN_PACING_BITS_PER_SECOND)
