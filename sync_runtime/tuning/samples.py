"""What was measured of one payload, or of a window inside a long one. The only input of the link controller.

Figures come from clocks that jump and from kernels that know less than ours, so nothing here raises: a figure that
cannot be is read as "unknown" (zero).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sync_runtime.contract.sync import MAX_STREAMS

MAX_BYTES = 2**53 - 1
MAX_SECONDS = 1e6
MAX_RATE_BYTES_PER_S = 1e12
MIN_SECONDS = 1e-4
"""Shorter measurements say more about the clock than about the link."""


@dataclass(frozen=True, slots=True)
class PayloadSample:
    """One payload, first byte to last acknowledgement, or one window inside a payload. Zero means unknown."""

    size_bytes: int
    duration_s: float
    streams: int
    """Streams that carried it."""
    whole: bool = True
    """A whole payload; otherwise a window inside one. The two are never compared with each other."""
    windowed: bool = False
    """A whole payload whose windows came as samples of their own before: its rate is known already."""
    cold: bool = False
    """At least one of the streams carried its first payload: its congestion window was still small."""
    app_limited: bool = False
    """The queue ran empty, so that the sender and not the link set the pace."""
    rtt_s: float = 0.0
    min_rtt_s: float = 0.0
    sent_bytes: int = 0
    """Bytes that TCP sent in that time, repeated ones included."""
    retransmitted_bytes: int = 0
    busy_s: float = 0.0
    """Summed over streams: time in which TCP had data to send."""
    rwnd_limited_s: float = 0.0
    send_buffer_bytes: int = 0
    """The largest send buffer that the kernel lets one stream have."""

    def cleaned(self) -> PayloadSample:
        """The same sample with every figure finite and inside its range."""
        size_bytes = _whole(self.size_bytes)
        sent_bytes = _whole(self.sent_bytes)
        busy_s = _seconds(self.busy_s)
        rtt_s = _seconds(self.rtt_s)
        min_rtt_s = _seconds(self.min_rtt_s) or rtt_s
        return PayloadSample(
            size_bytes=size_bytes,
            duration_s=_seconds(self.duration_s),
            streams=min(_whole(self.streams), MAX_STREAMS),
            whole=self.whole,
            windowed=self.windowed and self.whole,
            cold=self.cold,
            app_limited=self.app_limited,
            rtt_s=max(rtt_s, min_rtt_s),
            min_rtt_s=min_rtt_s,
            sent_bytes=sent_bytes,
            retransmitted_bytes=min(_whole(self.retransmitted_bytes), sent_bytes),
            busy_s=busy_s,
            rwnd_limited_s=min(_seconds(self.rwnd_limited_s), busy_s),
            send_buffer_bytes=_whole(self.send_buffer_bytes),
        )

    @property
    def rate_bytes_per_s(self) -> float:
        """Goodput; zero where it cannot be known.

        A whole payload ends with the round trip of its last acknowledgement, whatever the streams do: it is taken off,
        so that payloads of different sizes compare.
        """
        if self.size_bytes <= 0 or not self.duration_s >= MIN_SECONDS:
            return 0.0
        wait_s = min(self.min_rtt_s, self.duration_s / 2) if self.whole else 0.0
        return min(self.size_bytes / (self.duration_s - wait_s), MAX_RATE_BYTES_PER_S)

    @property
    def loss(self) -> float:
        """Retransmitted bytes as a share of those sent."""
        return self.retransmitted_bytes / self.sent_bytes if self.sent_bytes else 0.0

    @property
    def rwnd_limited(self) -> float:
        """Share of the busy time in which the receiver's window held the streams back."""
        return self.rwnd_limited_s / self.busy_s if self.busy_s else 0.0


def _whole(value: float) -> int:
    return int(min(max(value, 0), MAX_BYTES)) if math.isfinite(value) else 0


def _seconds(value: float) -> float:
    return min(max(float(value), 0.0), MAX_SECONDS) if math.isfinite(value) else 0.0
