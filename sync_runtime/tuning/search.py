"""The search for the smallest count of streams that carries what the link can: double, then paired trials, then hold.

    Climbing   doubles while a doubling gains at least CLIMB_GAIN
    Holding    leaves the count alone for some samples; longer after every refused trial, so that it comes to rest
    Trying     compares the count with one step up or down (`trial`)

Sees only samples that compare: not small, not starved of data. Knows neither clocks nor estimates.
"""

from __future__ import annotations

from typing import Literal

from sync_runtime.contract.plan import StreamPlan
from sync_runtime.tuning.samples import PayloadSample
from sync_runtime.tuning.trial import DOWN_LOSS, UP_GAIN, Trial, larger, smaller

Phase = Literal["Climbing", "Holding", "Trying"]

CLIMB_GAIN = 0.10
HOLD_SAMPLES = 10
HOLD_AFTER_ACCEPTED = 2
MAX_REFUSALS = 4
"""Pauses stop doubling here: 160 samples."""
QUEUEING_HASTE = 3
"""How much faster a pause runs while our own streams fill the link's queue."""
LONG_PAYLOAD_WINDOWS = 8
"""From here on the windows of one payload are taken for payloads: an anchor may last for minutes."""
MAX_STRAYS = 3
"""So many samples in a row that do not fit the comparison (other streams, other kind, cold) end it."""
COLD_GAIN = 1.10
"""Cold streams carry less than warm ones: where they gain this much, warm ones would."""


class StreamSearch:
    """Where the search for one link stands. `streams` is what the next payload should use."""

    def __init__(self, streams: int, *, settled: bool, refusals: int = 0) -> None:
        self.base = self.streams = streams
        self.refusals = min(refusals, MAX_REFUSALS)
        self._phase: Phase = "Holding" if settled else "Climbing"
        self._hold_left = HOLD_SAMPLES << self.refusals
        self._upward_next = False
        self._climb_rate: float | None = None
        self._trial: Trial | None = None
        self._strays = 0
        self._windows = 0
        self._given_up = 0.0  # share of the best rate that accepted steps down have cost so far

    @property
    def phase(self) -> Phase:
        """What it is doing."""
        return self._phase

    @property
    def open_streams(self) -> int:
        """Streams to hold open: a trial goes back and forth, and a stream that was closed comes back cold."""
        tried = self._trial.trial_streams if self._trial else self.streams
        return max(self.base, self.streams, tried)

    @property
    def at_base(self) -> bool:
        """Whether the best count known is also the one in use."""
        return self.streams == self.base

    def restart(self) -> None:
        """The link changed: climb again from the count at hand. On a plateau that costs nothing."""
        self._phase, self._trial, self._climb_rate = "Climbing", None, None
        self._strays = self.refusals = 0
        self._given_up = 0.0
        self.streams = self.base

    def set_base(self, streams: int) -> None:
        """Take a count from outside (bounds, failing streams) and hold it."""
        self.base = streams
        self._settle(HOLD_SAMPLES)

    def confine(self, bounds: StreamPlan) -> None:
        """Stay inside bounds that may have moved."""
        inside = min(max(self.base, bounds.min), bounds.max)
        if inside != self.base or not bounds.min <= self.streams <= bounds.max:
            self.set_base(inside)

    def observe(
        self,
        sample: PayloadSample,
        bounds: StreamPlan,
        *,
        may_grow: bool,
        queueing: bool,
        buffers_full: bool = False,
        few: int = 1,
    ) -> str | None:
        """Take a cleaned sample with a rate; gives the reason where the count for the next one changes.

        `few`: so many streams or fewer are left alone unless they fill the link's queue.
        """
        self._windows = 0 if sample.whole else self._windows + 1
        if self._phase == "Climbing" and not sample.windowed:
            return self._climb(sample, bounds, may_grow=may_grow)
        if self._phase == "Trying" and self._trial is not None:
            return self._try(self._trial, sample, bounds)
        # Whole payloads are what counts; windows stand in for them only inside a payload that does not end.
        if self._phase == "Climbing" or 0 < self._windows < LONG_PAYLOAD_WINDOWS:
            return None
        # Full send buffers speak for more streams, until a trial spoke against them.
        self._upward_next |= buffers_full and not self.refusals
        return self._hold(sample, bounds, may_grow=may_grow, queueing=queueing, few=few)

    # -------------------------------------------------------------------------------------------------------- climbing

    def _climb(self, sample: PayloadSample, bounds: StreamPlan, *, may_grow: bool) -> str | None:
        rate = sample.rate_bytes_per_s
        if self._climb_rate is None:
            # Streams that stay cold for several payloads are as warm as they get.
            too_cold = sample.cold and self._strays + 1 < MAX_STRAYS
            if sample.streams != self.base or too_cold:
                return self._stray(sample, bounds)
            next_step = self._double(sample, bounds, may_grow=may_grow)
            return f"{self.base} streams carry {_mbit(rate)}: {next_step}"
        if sample.streams != self.streams:
            return self._stray(sample, bounds)
        gain = rate / self._climb_rate - 1
        if gain >= CLIMB_GAIN:
            before, self.base = self.base, self.streams
            next_step = self._double(sample, bounds, may_grow=may_grow)
            return f"{self.base} streams carry {_mbit(rate)}, {_percent(gain)} more than {before}: {next_step}"
        if sample.cold:
            return self._stray(sample, bounds)
        # A window does not show ramp and tail as a whole payload does, but that hides no gain as large as CLIMB_GAIN.
        tried, self._upward_next = self.streams, gain >= UP_GAIN
        self._settle(HOLD_AFTER_ACCEPTED)
        gained = _percent(gain, signed=True)
        return f"{tried} streams carry {_mbit(rate)}, {gained} against {self.base}: hold {self.base}"

    def _double(self, sample: PayloadSample, bounds: StreamPlan, *, may_grow: bool) -> str:
        self._strays = 0
        self._climb_rate = sample.rate_bytes_per_s
        doubled = min(2 * self.base, bounds.max)
        if doubled == self.base:
            self._settle(HOLD_AFTER_ACCEPTED)
            return "hold, the plan allows no more"
        if not may_grow:
            self._settle(HOLD_SAMPLES)
            return "hold, the receiver's window is the limit"
        self.streams = doubled
        return f"try {doubled}"

    # --------------------------------------------------------------------------------------------------------- holding

    def _hold(
        self, sample: PayloadSample, bounds: StreamPlan, *, may_grow: bool, queueing: bool, few: int
    ) -> str | None:
        if bounds.min <= sample.streams < self.base:
            return self._stray(sample, bounds)
        if sample.cold or sample.streams != self.base:
            return None
        self._strays = 0
        can_up, can_down = may_grow and self.base < bounds.max, self.base > bounds.min and (queueing or self.base > few)
        # A queue of our own making shortens the pause, but keeps its doubling after refused trials.
        in_haste = queueing and can_down
        self._hold_left -= QUEUEING_HASTE if in_haste else 1
        if self._hold_left > 0:
            return None
        if can_up and not in_haste and (self._upward_next or not can_down):
            return self._start_trial(larger(self.base, bounds.max), sample, "more may carry more")
        if can_down:
            why = "round trips take twice their least time" if in_haste else "fewer may do"
            fewest = bounds.min if queueing else max(bounds.min, few)
            return self._start_trial(smaller(self.base, fewest), sample, why)
        self._hold_left = HOLD_SAMPLES
        return None

    def _start_trial(self, streams: int, sample: PayloadSample, why: str) -> str:
        allowed_loss = max(DOWN_LOSS - self._given_up, 0.0)
        self._trial = Trial(self.base, streams, (sample.rate_bytes_per_s,), sample.whole, allowed_loss)
        self._phase, self.streams = "Trying", streams
        return f"hold is over, {why}: try {streams} streams against {self.base}"

    # ---------------------------------------------------------------------------------------------------------- trying

    def _try(self, trial: Trial, sample: PayloadSample, bounds: StreamPlan) -> str | None:
        rate = sample.rate_bytes_per_s
        clear_although_cold = trial.upward and trial.tries_now and rate >= COLD_GAIN * trial.rates[-1]
        if sample.whole != trial.whole and (trial.whole or sample.windowed):
            return None  # measured twice; the other sample counts
        fits = sample.streams == trial.wanted_streams and sample.whole == trial.whole
        if not fits or (sample.cold and not clear_although_cold):
            return self._stray(sample, bounds)
        self._strays = 0
        self._trial = trial = trial.with_rate(rate)
        verdict = trial.verdict()
        if verdict is None:
            changed = self.streams != trial.wanted_streams
            self.streams = trial.wanted_streams
            return f"compare in the other order: {self.streams} streams" if changed else None
        compared = (
            f"{trial.trial_streams} streams carry {_percent(trial.gain, signed=True)} against {trial.base_streams}"
        )
        if verdict == "accept":
            self.base, self.refusals, self._upward_next = trial.trial_streams, 0, trial.upward
            self._given_up = max(self._given_up - trial.gain, 0.0)
            self._settle(HOLD_AFTER_ACCEPTED)
            return f"{compared}: take {self.base}"
        self.refusals = min(self.refusals + 1, MAX_REFUSALS)
        self._upward_next = not trial.upward
        self._settle(HOLD_SAMPLES << self.refusals)
        return f"{compared}: stay at {self.base}"

    # ---------------------------------------------------------------------------------------------------------- common

    def _stray(self, sample: PayloadSample, bounds: StreamPlan) -> str | None:
        """A sample that does not fit what is being compared; several in a row end the comparison."""
        self._strays += 1
        if self._strays < MAX_STRAYS:
            return None
        self._strays = 0
        self._settle(HOLD_SAMPLES)
        if bounds.min <= sample.streams < self.base:
            self.base = self.streams = sample.streams
            return f"only {sample.streams} streams come up: hold {sample.streams}"
        return f"payloads stopped being comparable: hold {self.base} streams"

    def _settle(self, hold_samples: int) -> None:
        self._phase, self._trial, self._climb_rate = "Holding", None, None
        self._hold_left, self._strays = hold_samples, 0
        self.streams = self.base


def _mbit(rate_bytes_per_s: float) -> str:
    return f"{rate_bytes_per_s * 8e-6:.4g} Mbit/s"


def _percent(share: float, *, signed: bool = False) -> str:
    return f"{100 * share:{'+' if signed else ''}.0f} %"
