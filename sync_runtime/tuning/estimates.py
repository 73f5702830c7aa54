"""What samples of a link add up to: cost of a byte, capacity, round-trip times, loss; and when that no longer holds.

Rates are averaged as seconds per byte (a harmonic mean), since that is what a payload's end is predicted with; capacity
is the largest of the last rates. Decides nothing about streams.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from sync_runtime.contract.status import PPM
from sync_runtime.tuning.samples import PayloadSample
from sync_runtime.tuning.state import MAX_MICROS, MAX_RATE, MAX_WINDOWS, LinkState, RememberedWindow

SMOOTHING = 0.3
CAPACITY_WINDOWS = 8
MIN_RTT_MEMORY_S = 60.0
MIN_RTT_ENTRIES = 64
SLOWER, FASTER = 0.7, 1.4
SLOWER_AT_ONCE, AT_ONCE_AFTER_S = 0.5, 2.0
"""A rate this low for so long needs no second sample: on a link that slow, that would be many seconds away."""
SLOWER_WITH_LOSS, LOSS_FACTOR, LOSS_FLOOR = 0.85, 4.0, 0.01
RTT_SHIFT = 1.5
SAMPLES_OF_A_CHANGE = 2
"""One odd sample is noise or an outage, two in a row are a changed link."""
_MICROS = 1_000_000
_PICOS = 1e12

Change = Literal["slower", "faster", "lossier", "rerouted"]


class Estimates:
    """What is believed of one link. Zero means unknown."""

    def __init__(self, state: LinkState | None = None) -> None:
        self.seconds_per_byte = 0.0
        self.rtt_s = 0.0
        self.loss = 0.0
        self.payload_bytes = 0.0
        self.payloads = 0
        self.windows: deque[RememberedWindow] = deque(maxlen=MAX_WINDOWS)
        self._rates: deque[float] = deque(maxlen=CAPACITY_WINDOWS)
        self._min_rtts: deque[tuple[float, float]] = deque(maxlen=MIN_RTT_ENTRIES)
        self._remembered_min_rtt_s = 0.0
        if state is not None:
            self._restore(state)

    def _restore(self, state: LinkState) -> None:
        self.seconds_per_byte = state.picoseconds_per_byte / _PICOS
        self.rtt_s = state.rtt_micros / _MICROS
        self.loss = state.loss_ppm / PPM
        self.payload_bytes = float(state.payload_bytes)
        self.payloads = state.payloads
        self.windows.extend(state.windows)
        if state.capacity_bytes_per_second:
            self._rates.append(float(state.capacity_bytes_per_second))
        self._remembered_min_rtt_s = state.min_rtt_micros / _MICROS

    @property
    def capacity_bytes_per_s(self) -> float:
        """The most that the link carried lately."""
        return max(self._rates, default=0.0)

    @property
    def min_rtt_s(self) -> float:
        """The least round-trip time of the last minute, or the last one known."""
        return min((rtt_s for _, rtt_s in self._min_rtts), default=self._remembered_min_rtt_s)

    @property
    def inflation(self) -> float:
        """Smoothed over least round-trip time; 1 where unknown."""
        return max(self.rtt_s / self.min_rtt_s, 1.0) if self.min_rtt_s > 0 and self.rtt_s > 0 else 1.0

    def take(self, sample: PayloadSample, now_s: float, *, rate_counts: bool = True) -> None:
        """Add a cleaned sample; without `rate_counts` its rate is the ramp's rather than the link's."""
        rate = sample.rate_bytes_per_s
        if sample.whole and sample.size_bytes:
            self.payload_bytes = _smooth(self.payload_bytes, sample.size_bytes)
            self.payloads += 1
        if sample.rtt_s:
            self.rtt_s = _smooth(self.rtt_s, sample.rtt_s)
        if sample.min_rtt_s:
            self._take_min_rtt(sample.min_rtt_s, now_s)
        if sample.sent_bytes:
            self.loss = (1 - SMOOTHING) * self.loss + SMOOTHING * sample.loss
        if rate > 0 and rate_counts and not sample.windowed:
            self.seconds_per_byte = _smooth(self.seconds_per_byte, 1 / rate)
            self.windows.append(_window(sample, rate))
            # A sender that had nothing to send shows what the link carries at least, never that it carries less.
            if not sample.app_limited or rate > self.capacity_bytes_per_s:
                self._rates.append(rate)

    def forget(self, rate_bytes_per_s: float) -> None:
        """The link is another one now: only its last rate and the newest round-trip time still hold."""
        self._rates.clear()
        self._rates.append(rate_bytes_per_s)
        self.seconds_per_byte = 1 / rate_bytes_per_s
        newest = self._min_rtts[-1] if self._min_rtts else None
        self._min_rtts.clear()
        if newest:
            self._min_rtts.append(newest)

    def predicted_s(self, size_bytes: int) -> float:
        """Time from first byte to last acknowledgement of a payload of this size; zero where nothing is known."""
        return max(size_bytes, 0) * self.seconds_per_byte + (self.rtt_s if self.seconds_per_byte else 0.0)

    def _take_min_rtt(self, min_rtt_s: float, now_s: float) -> None:
        self._min_rtts.append((now_s, min_rtt_s))
        # Entries of the future are left over from a clock that was set back.
        fresh = [entry for entry in self._min_rtts if now_s - MIN_RTT_MEMORY_S <= entry[0] <= now_s]
        self._min_rtts = deque(fresh, maxlen=MIN_RTT_ENTRIES)
        self._remembered_min_rtt_s = self.min_rtt_s


class ChangeDetector:
    """Notices that the link is no longer the one that was tuned for: a step in rate, loss or least round-trip time."""

    def __init__(self) -> None:
        self._seconds_per_byte = 0.0
        self._loss = 0.0
        self._min_rtt_s = 0.0
        self._last: Change | None = None
        self._in_a_row = 0

    @property
    def expected_bytes_per_s(self) -> float:
        """What the tuned count of streams carries; zero while unknown."""
        return 1 / self._seconds_per_byte if self._seconds_per_byte else 0.0

    def reset(self) -> None:
        """Expect nothing: streams were re-tuned or the link changed."""
        self._seconds_per_byte = self._loss = self._min_rtt_s = 0.0
        self.interrupt()

    def interrupt(self) -> None:
        """Nothing came through for a while: what was odd before says nothing about what comes after."""
        self._last, self._in_a_row = None, 0

    def judge(self, sample: PayloadSample, share: float) -> Change | None:
        """Take a cleaned sample with a rate; `share`: of the tuned count of streams, the part that carried it."""
        rate = sample.rate_bytes_per_s
        change = self._oddity(sample, rate, min(share, 1.0)) if self._seconds_per_byte else None
        self._in_a_row = self._in_a_row + 1 if change and change == self._last else int(change is not None)
        self._last = change
        if change and (self._in_a_row >= SAMPLES_OF_A_CHANGE or self._is_plain(sample, rate, share)):
            return change
        if change is None and share == 1.0 and not sample.cold:
            self._seconds_per_byte = _smooth(self._seconds_per_byte, 1 / rate)
            self._loss = (1 - SMOOTHING) * self._loss + SMOOTHING * sample.loss if self._loss else sample.loss
            self._min_rtt_s = _smooth(self._min_rtt_s, sample.min_rtt_s) if sample.min_rtt_s else self._min_rtt_s
        return None

    def _is_plain(self, sample: PayloadSample, rate: float, share: float) -> bool:
        fell = rate < SLOWER_AT_ONCE * self.expected_bytes_per_s * share
        return fell and sample.duration_s >= AT_ONCE_AFTER_S and not sample.cold

    def _oddity(self, sample: PayloadSample, rate: float, share: float) -> Change | None:
        expected = self.expected_bytes_per_s
        if rate > FASTER * expected and share == 1.0:
            return "faster"
        if sample.cold:  # its streams are still speeding up
            return None
        if rate < SLOWER * expected * share:
            return "slower"
        if rate < SLOWER_WITH_LOSS * expected * share and sample.loss > max(LOSS_FACTOR * self._loss, LOSS_FLOOR):
            return "lossier"
        if sample.min_rtt_s and self._min_rtt_s:
            shift = sample.min_rtt_s / self._min_rtt_s
            if not 1 / RTT_SHIFT <= shift <= RTT_SHIFT:
                return "rerouted"
        return None


def _smooth(old: float, new: float) -> float:
    return (1 - SMOOTHING) * old + SMOOTHING * new if old else float(new)


def _window(sample: PayloadSample, rate: float) -> RememberedWindow:
    return RememberedWindow(
        streams=sample.streams,
        bytes_per_second=min(int(rate), MAX_RATE),
        rtt_micros=min(int(sample.rtt_s * _MICROS), MAX_MICROS),
        loss_ppm=min(int(sample.loss * PPM), PPM),
    )
