"""LinkMeter: what acknowledgements and streams of one directed link add up to.

Payloads are the probe. Each gives one sample, first byte to last acknowledgement; a long one gives windows before, so
that a changed link is noticed while it runs. Times are of the caller's monotonic clock. Not thread-safe: one owner.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from sync_runtime.contract.fields import MAX_SAFE_INTEGER
from sync_runtime.contract.reports import LinkReport
from sync_runtime.contract.status import PPM
from sync_runtime.links.tcp_info import TcpInfo, largest_send_buffer_bytes, parse_tcp_info
from sync_runtime.tuning.controller import LinkController
from sync_runtime.tuning.samples import PayloadSample
from sync_runtime.tuning.state import UNKNOWN_CONGESTION_CONTROL, is_congestion_control

MIN_WINDOW_S = 1.0
WINDOW_RTTS = 8
WINDOW_BUCKETS = 16
PAYLOAD_WINDOWS = 3
"""A payload of so many windows or fewer is one sample: what counts is its end, and the count of streams stays."""
APP_LIMITED_SHARE = 0.1
"""Of a payload's time: above it the sender, not the link, set the pace."""
WARM_AFTER_BYTES = 256 * 1024
"""A stream that had less acknowledged before a payload comes out of its handshake, with the smallest of windows."""
MAX_OPEN_TRANSFERS = 64
"""More than a link may have; beyond it the oldest is forgotten, whatever became of it."""
MESSAGE_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """Which link it is, as reports name it."""

    from_cluster: str
    from_region: str
    to_cluster: str
    to_region: str
    peer: str


@dataclass(slots=True)
class _Streams:
    """What the streams of one transfer said, summed."""

    rtts_s: list[float] = field(default_factory=list)
    min_rtts_s: list[float] = field(default_factory=list)
    sent_bytes: int = 0
    retransmitted_bytes: int = 0
    busy_s: float = 0.0
    rwnd_limited_s: float = 0.0
    cold: bool = False


@dataclass(slots=True)
class _Open:
    """A transfer under way."""

    streams: _Streams = field(default_factory=_Streams)
    others_bytes: int = 0
    """Acknowledged for other transfers meanwhile: the link carried them too."""
    windows: int = 0
    """Windows over, given out as samples or not."""


class LinkMeter:
    """Measures one directed link from its sending end."""

    def __init__(self, ends: LinkEnds, *, send_buffer_bytes: int | None = None) -> None:
        self.ends = ends
        self._send_buffer_bytes = largest_send_buffer_bytes() if send_buffer_bytes is None else send_buffer_bytes
        self.congestion_control = UNKNOWN_CONGESTION_CONTROL
        """Of the streams, as the kernel told last."""
        self._open: dict[int, _Open] = {}
        self._rtt_s = 0.0
        self._window_from_s: float | None = None
        self._window_bytes = 0
        self._window_buckets = 0
        self._window_streams = 0
        self._window_cold = False

    def acknowledged(
        self, transfer: int, size_bytes: int, now_s: float, *, streams: int, buckets: int = 1
    ) -> PayloadSample | None:
        """Buckets of a transfer were acknowledged. Gives a sample when a window is over."""
        opened = self._opened(transfer)
        for number, other in self._open.items():
            if number != transfer:
                other.others_bytes += max(size_bytes, 0)
        if self._window_from_s is None or now_s < self._window_from_s or streams != self._window_streams:
            # What this acknowledgement tells was sent before the window: it only opens it.
            self._window_cold = self._window_from_s is not None and streams > self._window_streams
            self._start_window(now_s, streams)
            return None
        self._window_bytes += max(size_bytes, 0)
        self._window_buckets += buckets
        return self._close_window(opened, now_s)

    def idle(self, now_s: float) -> PayloadSample | None:
        """To be called now and then while transfers run: a window in which nothing came through is an outage."""
        if self._window_from_s is None or not self._open or self._window_bytes:
            return None
        quiet_s = now_s - self._window_from_s
        if quiet_s < self._window_s():
            return None
        streams = self._window_streams
        self._start_window(now_s, streams)
        return PayloadSample(0, quiet_s, streams, whole=False)

    def stream(
        self, transfer: int, stream_bytes: int, tcp_info_before: bytes, tcp_info: bytes, congestion_control: str = ""
    ) -> None:
        """What one stream carried of a transfer; comes before `payload_done`."""
        before, after = parse_tcp_info(tcp_info_before), parse_tcp_info(tcp_info)
        if is_congestion_control(congestion_control):
            self.congestion_control = congestion_control
        if stream_bytes <= 0:
            return
        _add(self._opened(transfer).streams, before, after)

    def payload_done(
        self, transfer: int, size_bytes: int, *, streams: int, started_s: float, ended_s: float, waited_s: float = 0.0
    ) -> PayloadSample:
        """Every bucket of a transfer was acknowledged."""
        opened = self._open.pop(transfer, None) or _Open()
        if not self._open:
            self._window_from_s = None
        seen = opened.streams
        duration_s = ended_s - started_s
        rtt_s = statistics.median(seen.rtts_s) if seen.rtts_s else 0.0
        self._rtt_s = rtt_s or self._rtt_s
        return PayloadSample(
            size_bytes=size_bytes + opened.others_bytes,
            duration_s=duration_s,
            streams=streams,
            windowed=opened.windows > PAYLOAD_WINDOWS,
            cold=seen.cold,
            app_limited=waited_s > APP_LIMITED_SHARE * duration_s,
            rtt_s=rtt_s,
            min_rtt_s=min(seen.min_rtts_s, default=0.0),
            sent_bytes=seen.sent_bytes,
            retransmitted_bytes=seen.retransmitted_bytes,
            busy_s=seen.busy_s,
            rwnd_limited_s=seen.rwnd_limited_s,
            send_buffer_bytes=self._send_buffer_bytes,
        )

    def abandoned(self, transfer: int) -> None:
        """A transfer ended without all its bytes: it says nothing."""
        self._open.pop(transfer, None)
        if not self._open:
            self._window_from_s = None

    def report(self, controller: LinkController) -> LinkReport:
        """The link as the operator is told of it."""
        estimates, decision = controller.estimates, controller.decision
        rate = 1 / estimates.seconds_per_byte if estimates.seconds_per_byte else 0.0
        capacity = max(estimates.capacity_bytes_per_s, rate)
        return LinkReport(
            from_cluster=self.ends.from_cluster,
            from_region=self.ends.from_region,
            to_cluster=self.ends.to_cluster,
            to_region=self.ends.to_region,
            peer=self.ends.peer,
            payloads=min(estimates.payloads, MAX_SAFE_INTEGER),
            rate_bits_per_second=_known(8 * rate),
            capacity_bits_per_second=_known(8 * capacity),
            rtt_micros=_known(estimates.rtt_s * 1e6),
            min_rtt_micros=_known(estimates.min_rtt_s * 1e6),
            loss_ppm=min(round(estimates.loss * PPM), PPM) if estimates.payloads else None,
            streams=decision.streams,
            bucket_bytes=decision.bucket_bytes,
            utilisation_percent=min(round(100 * rate / capacity), 100) if capacity else None,
            codec=decision.codec,
            congestion_control=self.congestion_control,
            message=decision.reason[:MESSAGE_CHARACTERS],
        )

    # --------------------------------------------------------------------------------------------------------- windows

    def _window_s(self) -> float:
        return max(MIN_WINDOW_S, WINDOW_RTTS * self._rtt_s)

    def _start_window(self, now_s: float, streams: int) -> None:
        self._window_from_s, self._window_streams = now_s, streams
        self._window_bytes = self._window_buckets = 0

    def _close_window(self, opened: _Open, now_s: float) -> PayloadSample | None:
        duration_s = now_s - (self._window_from_s or 0.0)
        if duration_s < self._window_s() or self._window_buckets < WINDOW_BUCKETS:
            return None
        sample = PayloadSample(
            self._window_bytes, duration_s, self._window_streams, whole=False, cold=self._window_cold
        )
        opened.windows += 1
        self._window_cold = False
        self._start_window(now_s, self._window_streams)
        return sample if opened.windows > PAYLOAD_WINDOWS else None

    def _opened(self, transfer: int) -> _Open:
        if transfer not in self._open and len(self._open) >= MAX_OPEN_TRANSFERS:
            del self._open[next(iter(self._open))]
        return self._open.setdefault(transfer, _Open())


def _known(figure: float) -> int | None:
    """A figure for a report; an estimate of zero means that nothing is known, which is no figure."""
    return round(figure) or None


def _add(streams: _Streams, before: TcpInfo, after: TcpInfo) -> None:
    streams.cold |= before.acked_bytes is not None and before.acked_bytes < WARM_AFTER_BYTES
    if after.rtt_s:
        streams.rtts_s.append(after.rtt_s)
    if after.min_rtt_s:
        streams.min_rtts_s.append(after.min_rtt_s)
    sent = _grown(before.sent_bytes, after.sent_bytes)
    streams.sent_bytes += int(sent)
    streams.retransmitted_bytes += int(min(_retransmitted(before, after), sent))
    streams.busy_s += _grown(before.busy_s, after.busy_s)
    streams.rwnd_limited_s += _grown(before.rwnd_limited_s, after.rwnd_limited_s)


def _retransmitted(before: TcpInfo, after: TcpInfo) -> float:
    if after.retransmitted_bytes is not None:
        return _grown(before.retransmitted_bytes, after.retransmitted_bytes)
    return _grown(before.total_retransmits, after.total_retransmits) * (after.mss_bytes or 0)


def _grown(before: float | None, after: float | None) -> float:
    """How much a counter grew; one that went back belongs to another connection and started from zero."""
    if after is None:
        return 0.0
    return after - before if before is not None and before <= after else after
