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
DEFAULT_SEND_BUFFER_BYTES = 4 * 2**20
"""Linux's, where nobody raised it."""
FULL_BUFFER_SHARE = 0.6
"""Of what a buffer lets be in flight; a stream that has as much there is likely held back by it."""
PACING_HEADROOM = 1.25
"""Over the best rate measured lately: a link that was slow for a while comes back by this much with every payload."""
MIN_PACING_BITS_PER_SECOND = 1_000_000
"""A pace is a cap, never a stop: what was measured in an outage must not keep the link from coming back."""
PACE_ABOVE_LOSS, PACE_ABOVE_INFLATION = 0.005, 1.5
HEAVY_LOSS = 0.05
_MIN_RTT_S = 1e-5
_MIN_LOSS = 1e-7
_MAX_RATE = 1e12


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What is known of a path before any payload went over it."""

    capacity_bytes_per_s: float
    rtt_s: float
    loss: float = 0.0
    send_buffer_bytes: int = DEFAULT_SEND_BUFFER_BYTES
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


def fills_already(congestion_control: str | None, streams: int, *, buffers_full: bool) -> bool:
    """Whether so many streams surely fill their link, so that more need not be tried at once.

    BBR follows the path's own rate unless buffers hold it back: a few of them fill a link. A new stream of it takes
    several payloads to find its share on a long way, and slows the others until then.
    """
    follows_path = congestion_control is not None and congestion_control.startswith("bbr")
    return follows_path and streams >= FEW_STREAMS and not buffers_full


def buffers_full(send_buffer_bytes: int, stream_rate: float, rtt_s: float) -> bool:
    """Whether streams are likely held back by their send buffers, so that more of them would carry more.

    The kernel's own count of that time cannot tell: our cap on unsent data looks the same to it.
    """
    usable = BUFFER_SHARE * (send_buffer_bytes or DEFAULT_SEND_BUFFER_BYTES)
    return stream_rate * rtt_s >= FULL_BUFFER_SHARE * usable


def ramp_s(capacity_bytes_per_s: float, rtt_s: float, streams: int) -> float:
    """Time that cold streams take to fill the link: they double every round trip."""
    started = max(streams, 1) * INITIAL_WINDOW_BYTES
    return max(rtt_s, 0.0) * math.log2(max(bandwidth_delay_bytes(capacity_bytes_per_s, rtt_s) / started, 1.0))


def pacing_bits_per_second(capacity_bytes_per_s: float, *, loss: float, inflation: float, paced: bool) -> int | None:
    """The rate that all streams together must not exceed, or None: let congestion control decide.

    Some loss alone is the path's, inflation alone is a deep buffer; both together are our own overshoot, which pacing
    mends. Heavy loss needs no second witness: at a payload's end the queue is empty again. `inflation` is smoothed over
    least round-trip time. A paced link stays paced: that it loses nothing any more is the pace's doing, and the pace
    follows a rate that grows.
    """
    overshoots = loss > HEAVY_LOSS or (loss > PACE_ABOVE_LOSS and inflation > PACE_ABOVE_INFLATION)
    if capacity_bytes_per_s <= 0 or not (paced or overshoots):
        return None
    return _bits(PACING_HEADROOM * capacity_bytes_per_s)


def remembered_pacing_bits_per_second(capacity_bytes_per_s: float) -> int | None:
    """Until the first payload after a restart is measured: cold streams must not overshoot a rate that is known."""
    return _bits(PACING_HEADROOM * capacity_bytes_per_s) if capacity_bytes_per_s > 0 else None


def _bits(bytes_per_s: float) -> int:
    return max(int(8 * min(bytes_per_s, _MAX_RATE)), MIN_PACING_BITS_PER_SECOND)
