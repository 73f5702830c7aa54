"""How fast a link really is at its best, from acknowledgements; and how a payload after a pause starts from that.

Pure: no sockets, no clock (`now_s` is an argument). A payload's mean says little of a link, since it holds the ramp and
the tail; its best moments do.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MEASURE_EVERY_S: Final = 0.02
WINDOW_S: Final = 0.2
WINDOW_RTTS: Final = 2.0
REMEMBERED_PAYLOADS: Final = 4
SETTLED_HEADROOM, UNSETTLED_HEADROOM = 1.02, 2.0
"""Streams that start anew may send so much more than the link carried: room to find a faster link, no flood."""
SMALL_LOSS, LOSS_ROOM, MAX_LOSS_HEADROOM = 0.002, 10.0, 1.1
"""What is lost is sent again, and while one stream repairs its loss the others have to carry its share. For a small
loss the settled headroom has room enough; more would only wait in the link's queue."""
SETTLED_GROWTH: Final = 1.04
"""A payload that beat all before it by more has not seen the link's limit yet."""
REMEMBERED_GROWTH: Final = 1.2
"""What is remembered is the mean of whole payloads, ramp and tail included: the same link beats it by less."""
CAPPED_S: Final = 4.0
CAPPED_RTTS: Final = 20.0
"""So long after its start a payload is held to the known rate; then congestion control knows for itself."""


SHORT_RTT_S: Final = 0.015
"""Below it every start is fast anyway, and a moment in which we get no core looks like a slow link to a start."""
UNSENT_S: Final = 0.02
MIN_UNSENT_BYTES, MAX_UNSENT_BYTES = 128 << 10, 4 << 20
"""What may wait unsent in the kernel: enough to bridge our own scheduling, little enough to share out the tail."""


MAX_WARMING_LINK_BYTES: Final = 24 << 20
WARMING_FRAME_BYTES: Final = 16 << 10


class PeakRate:
    """The best rate of the last payloads, over windows that are long against the gaps between acknowledgements."""

    def __init__(self) -> None:
        self._window: deque[tuple[float, int]] = deque()
        self._window_bytes = 0
        self._peak = 0.0
        self._peaks: deque[float] = deque(maxlen=REMEMBERED_PAYLOADS)
        self._remembered: float | None = None
        self.loss = 0.0
        """The share of bytes that the link loses, as far as it is known."""

    @property
    def bytes_per_s(self) -> float:
        """Zero until a payload was long enough to tell."""
        return max((*self._peaks, self._peak), default=0.0)

    @property
    def headroom(self) -> float:
        """How far above that rate a payload may start."""
        *earlier, last = self._peaks or (0.0,)
        growth = REMEMBERED_GROWTH if self._remembered in earlier else SETTLED_GROWTH
        settled = bool(earlier) and last <= growth * max(earlier)
        if not settled:
            return UNSETTLED_HEADROOM
        return min(SETTLED_HEADROOM + LOSS_ROOM * max(0.0, self.loss - SMALL_LOSS), MAX_LOSS_HEADROOM)

    def remember(self, bytes_per_s: float) -> None:
        """What an earlier process knew; a payload that is faster corrects it."""
        if bytes_per_s > 0 and not self._peaks:
            self._remembered = bytes_per_s
            self._peaks.extend((bytes_per_s, bytes_per_s))

    def delivered(self, size_bytes: int, now_s: float, rtt_s: float) -> None:
        """Bytes that came to the other end since the last call."""
        length_s = max(WINDOW_S, WINDOW_RTTS * rtt_s)
        self._window.append((now_s, size_bytes))
        self._window_bytes += size_bytes
        while now_s - self._window[0][0] > length_s:
            # The first entry only opens the window: its bytes came before it.
            began_s, came_before = self._window[0]
            span_s = now_s - began_s
            self._peak = max(self._peak, (self._window_bytes - came_before) / span_s)
            self._window_bytes -= came_before
            self._window.popleft()

    def payload_over(self) -> None:
        """What follows is another payload."""
        if self._peak:
            self._peaks.append(self._peak)
        self._window.clear()
        self._window_bytes = 0
        self._peak = 0.0


def starting_rate(peak: PeakRate, cap_bytes_per_s: float | None) -> float | None:
    """What all streams together may send while a payload starts; None where nothing is known."""
    if not peak.bytes_per_s:
        return cap_bytes_per_s
    rate = peak.headroom * peak.bytes_per_s
    return rate if cap_bytes_per_s is None else min(rate, cap_bytes_per_s)


def capped_for_s(rtt_s: float) -> float:
    """How long a payload is held to its starting rate."""
    return max(CAPPED_S, CAPPED_RTTS * rtt_s)


def unsent_bytes(peak_bytes_per_s: float, streams: int) -> int:
    """How much of one stream may wait unsent in the kernel."""
    wanted = int(UNSENT_S * peak_bytes_per_s / max(1, streams))
    return max(MIN_UNSENT_BYTES, min(wanted, MAX_UNSENT_BYTES))


def warming_bytes(peak_bytes_per_s: float, rtt_s: float) -> int:
    """What all streams together send before their first payload, so that it finds open windows.

    A window doubles with every round trip: the bytes that open it are twice what it then holds.
    """
    if rtt_s < SHORT_RTT_S:
        return 0
    return min(int(2 * peak_bytes_per_s * rtt_s), MAX_WARMING_LINK_BYTES)
