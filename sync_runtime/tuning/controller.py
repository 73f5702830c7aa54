"""LinkController: samples of one directed link in, decisions with their reasons out.

Streams come from a search on goodput (`search`), begun again when the link changes (`estimates`); bucket size, pacing
and codec are computed. Every count stays inside the plan's bounds. Takes any sample in any order without raising:
clocks jump, kernels report less than they should, and a link must go on whatever was measured.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from sync_runtime.contract.plan import LinkPlan
from sync_runtime.contract.status import PPM, LinkCodec
from sync_runtime.tuning import model
from sync_runtime.tuning.buckets import bucket_bytes
from sync_runtime.tuning.codec import CodedObject, tight_pays
from sync_runtime.tuning.estimates import Change, ChangeDetector, Estimates
from sync_runtime.tuning.samples import MAX_SECONDS, PayloadSample
from sync_runtime.tuning.search import Phase, StreamSearch
from sync_runtime.tuning.state import MAX_MICROS, MAX_RATE, LinkState, is_congestion_control

KEPT_DECISIONS = 32
RWND_LIMIT = 0.3
"""Share of busy time above which the receiver is the limit and more streams cannot help."""
QUEUEING = 2.0
"""Round trips of twice their least time: the streams fill the link's queue."""
SMALL_PAYLOAD_RTTS = 8
SMALL_PAYLOAD_STREAMS = 8
"""A payload that ends within a few round trips is all ramp: it takes more streams and says nothing of their count."""
RAMP_BOUND_RTTS = 16
STREAM_FAILURES, FAILURES_WITHIN_S = 3, 30.0
OUTAGE_S = 1.0
PACING_STEP = 0.05
"""Smaller changes of the pace are not worth a system call per stream."""
_CHANGES: dict[Change, str] = {
    "slower": "the rate fell to",
    "faster": "the rate rose to",
    "lossier": "loss rose and the rate fell to",
    "rerouted": "the least round-trip time changed, the rate is",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """How a link is used from the next payload on, and why, in one line."""

    streams: int
    bucket_bytes: int
    codec: LinkCodec
    pacing_bits_per_second: int | None
    """For all streams of the link together; None: congestion control alone decides."""
    reason: str
    open_streams: int
    """Connections to hold open, `streams` or more: those that only a trial leaves out stay warm."""

    @property
    def stream_pacing_bytes_per_second(self) -> int | None:
        """The share of one stream, as SO_MAX_PACING_RATE takes it."""
        pacing = self.pacing_bits_per_second
        return None if pacing is None else max(pacing // (8 * self.streams), 1)


class LinkController:
    """Tunes one directed link inside a plan's bounds. Not thread-safe: it has one owner."""

    def __init__(self, state: LinkState | None, bounds: LinkPlan) -> None:
        self._bounds = bounds
        self._estimates = Estimates(state)
        self._detector = ChangeDetector()
        self._congestion_control = state.congestion_control if state else None
        streams = bounds.streams
        start = min(max(state.streams, streams.min), streams.max) if state else streams.seed
        refusals = state.refusals if state else 0
        self._search = StreamSearch(start, settled=state is not None and state.settled, refusals=refusals)
        self._failures: deque[float] = deque(maxlen=STREAM_FAILURES)
        self._lowered_s = -math.inf
        self._rwnd_limited = False
        self._outage = False
        self._paced = False  # by what was measured; a remembered rate paces the first payload only
        self._last_loss = 0.0
        pacing = model.remembered_pacing_bits_per_second(state.capacity_bytes_per_second if state else 0.0)
        origin = "remembered from before the restart" if state else "the plan's seed"
        bucket = self._bucket_bytes(start, None)
        first = Decision(start, bucket, bounds.codec, pacing, f"{start} streams: {origin}", start)
        self.decision = first
        """What holds now."""
        self.decisions: deque[Decision] = deque([first], maxlen=KEPT_DECISIONS)
        """The last ones, oldest first."""

    # ---------------------------------------------------------------------------------------------------------- events

    def observe(self, sample: PayloadSample, now_s: float) -> Decision | None:
        """Take a sample; gives a decision where something changes. `now_s` is a monotonic clock's."""
        sample = sample.cleaned()
        # What should have ended within a few round trips and did not is no small payload but a slow link.
        in_time = sample.duration_s < (SMALL_PAYLOAD_RTTS + 1) * self._estimates.min_rtt_s
        small = sample.whole and in_time and self._is_small(sample.size_bytes)
        self._estimates.take(sample, _finite(now_s), rate_counts=not small)
        # Cold streams overshoot while they speed up, and their rate is not one to pace by.
        self._last_loss = 0.0 if sample.cold else sample.loss
        if sample.busy_s:
            self._rwnd_limited = sample.rwnd_limited > RWND_LIMIT
        if not sample.rate_bytes_per_s:
            return self._nothing_came(sample)
        interrupted = self._outage and sample.whole
        self._outage = self._outage and not sample.whole
        if small or interrupted or sample.app_limited or not sample.streams:
            return self._decide(None)
        if not sample.windowed:
            change = self._detector.judge(sample, self._share(sample.streams))
            if change is not None:
                return self._decide(self._start_over(change, sample))
        base = self._search.base
        if self._search.phase == "Climbing" and not sample.cold and self._fills_already(sample):
            self._search.set_base(base)
            return self._decide(f"{self._congestion_control} fills a link with {base} streams: hold")
        reason = self._search.observe(
            sample,
            self._bounds.streams,
            may_grow=not self._rwnd_limited,
            queueing=self._estimates.inflation > QUEUEING,
            buffers_full=_buffers_full(sample),
            few=self._few_streams(sample),
        )
        if self._search.base != base:
            # What the new count carries is close to what was just measured; it must not look like a changed link.
            self._detector.reset()
            self._detector.judge(sample, 1.0)
        return self._decide(reason)

    def stream_failed(self, now_s: float) -> Decision | None:
        """A stream broke or had to be closed. Several within a short time: the path bears fewer."""
        now_s = _finite(now_s)
        if 0 <= now_s - self._lowered_s < FAILURES_WITHIN_S:
            return None  # one broken path takes many streams at once; that is one reason, not many
        self._failures.append(now_s)
        recent = [at for at in self._failures if now_s - FAILURES_WITHIN_S <= at <= now_s]
        if len(recent) < STREAM_FAILURES or self._search.base <= self._bounds.streams.min:
            return None
        self._failures.clear()
        self._lowered_s = now_s
        self._search.set_base(self._search.base - 1)
        return self._decide(f"{STREAM_FAILURES} streams failed within {FAILURES_WITHIN_S:.0f} s: one fewer")

    def set_bounds(self, bounds: LinkPlan) -> Decision | None:
        """A new plan: what was learned stays, inside the new bounds."""
        self._bounds = bounds
        self._search.confine(bounds.streams)
        return self._decide(None, "the plan's bounds changed")

    def set_congestion_control(self, name: str) -> Decision | None:
        """What the kernel gave the streams. A count learned with another one is only a place to start."""
        if not is_congestion_control(name):
            return None
        known, self._congestion_control = self._congestion_control, name
        if known is None or known == name:
            return None
        self._search.restart()
        self._detector.reset()
        return self._decide(f"congestion control is {name}, was {known}: search again")

    # --------------------------------------------------------------------------------------------------------- queries

    def for_payload(
        self, size_bytes: int, *, fast: CodedObject | None = None, tight: CodedObject | None = None
    ) -> Decision:
        """The decision for one payload of known size. Changes nothing.

        The plan's codec is the bound: `Fast` is always obeyed, `Tight` means where it pays, as far as that is known.
        """
        decision = self.decision
        streams = decision.streams
        reason = decision.reason
        if self._is_small(size_bytes):
            streams = min(max(streams, SMALL_PAYLOAD_STREAMS), self._bounds.streams.max)
            reason = f"{size_bytes} bytes last only a few round trips: {streams} streams"
        codec = self._bounds.codec
        if codec == "Tight" and fast and tight:
            pays = tight_pays(fast, tight, self._estimates.capacity_bytes_per_s, in_use="Tight")
            codec = "Tight" if pays else "Fast"
            reason = reason if pays else f"{reason}; tight does not pay at this rate"
        bucket = self._bucket_bytes(streams, size_bytes)
        held = max(decision.open_streams, streams)
        return replace(decision, streams=streams, bucket_bytes=bucket, codec=codec, reason=reason, open_streams=held)

    @property
    def phase(self) -> Phase:
        """What the search is doing."""
        return self._search.phase

    @property
    def estimates(self) -> Estimates:
        """What is believed of the link; read only."""
        return self._estimates

    @property
    def state(self) -> LinkState:
        """What is worth remembering across a restart."""
        estimates = self._estimates
        return LinkState(
            streams=self._search.base,
            settled=self._search.phase != "Climbing",
            capacity_bytes_per_second=min(int(estimates.capacity_bytes_per_s), MAX_RATE),
            picoseconds_per_byte=min(int(estimates.seconds_per_byte * 1e12), 10**15),
            rtt_micros=_micros(estimates.rtt_s),
            min_rtt_micros=_micros(estimates.min_rtt_s),
            loss_ppm=min(int(estimates.loss * PPM), PPM),
            payload_bytes=int(estimates.payload_bytes),
            payloads=estimates.payloads,
            refusals=self._search.refusals,
            congestion_control=self._congestion_control,
            windows=list(estimates.windows),
        )

    # ------------------------------------------------------------------------------------------------------- internals

    def _is_small(self, size_bytes: int) -> bool:
        capacity, rtt_s = self._estimates.capacity_bytes_per_s, self._estimates.min_rtt_s
        return capacity > 0 and rtt_s > 0 and size_bytes < SMALL_PAYLOAD_RTTS * rtt_s * capacity

    def _fills_already(self, sample: PayloadSample) -> bool:
        full = _buffers_full(sample)
        return self._search.at_base and model.fills_already(self._congestion_control, sample.streams, buffers_full=full)

    def _few_streams(self, sample: PayloadSample) -> int:
        """Below this no fewer are tried: a wrong count costs most where payloads are short for their way."""
        short = sample.duration_s < RAMP_BOUND_RTTS * self._estimates.min_rtt_s
        return model.FEW_STREAMS if short else 1

    def _share(self, streams: int) -> float:
        """Of the tuned count, the part that carried a sample; more of them count as all."""
        return min(streams / self._search.base, 1.0)

    def _start_over(self, change: Change, sample: PayloadSample) -> str:
        rate, expected = sample.rate_bytes_per_s, self._detector.expected_bytes_per_s
        self._estimates.forget(rate)
        self._detector.reset()
        self._search.restart()
        self._paced = False
        share = f"{100 * rate / expected:.0f} %"
        return f"{_CHANGES[change]} {share} of what was expected: search again from {self._search.base} streams"

    def _nothing_came(self, sample: PayloadSample) -> Decision | None:
        if sample.duration_s < OUTAGE_S or sample.size_bytes:
            return None
        self._outage = True
        self._detector.interrupt()
        return self._decide(f"no byte came through for {sample.duration_s:.1f} s: streams stay as they are")

    def _bucket_bytes(self, streams: int, payload_bytes: int | None) -> int:
        size = self._estimates.payload_bytes if payload_bytes is None else payload_bytes
        return bucket_bytes(size, self._estimates.capacity_bytes_per_s, streams, self._bounds.bucket_bytes)

    def _decide(self, reason: str | None, otherwise: str = "") -> Decision | None:
        """The decision after an event: noted where it has a reason or differs from the one that holds."""
        old, estimates = self.decision, self._estimates
        self._search.confine(self._bounds.streams)
        streams = self._search.streams
        pacing = model.pacing_bits_per_second(
            estimates.capacity_bytes_per_s,
            loss=max(estimates.loss, self._last_loss),
            inflation=estimates.inflation,
            paced=self._paced,
        )
        self._paced = pacing is not None
        if pacing and old.pacing_bits_per_second and abs(pacing / old.pacing_bits_per_second - 1) < PACING_STEP:
            pacing = old.pacing_bits_per_second
        bucket = self._bucket_bytes(streams, None)
        new = Decision(streams, bucket, self._bounds.codec, pacing, old.reason, self._search.open_streams)
        if reason is None and new == old:
            return None
        self.decision = replace(new, reason=reason or otherwise or _difference(old, new))
        # The rate behind pacing and bucket size moves with every sample; only what changes the link's use is noted.
        if reason or otherwise or _use(new) != _use(old):
            self.decisions.append(self.decision)
        return self.decision


def _use(decision: Decision) -> tuple[object, ...]:
    return (
        decision.streams,
        decision.open_streams,
        decision.bucket_bytes,
        decision.codec,
        decision.pacing_bits_per_second is None,
    )


def _difference(old: Decision, new: Decision) -> str:
    """Why a decision differs without the search having said anything."""
    if (old.pacing_bits_per_second is None) != (new.pacing_bits_per_second is None):
        return (
            "loss and queueing together: pace"
            if new.pacing_bits_per_second
            else "no overshoot any more: pace no longer"
        )
    if old.bucket_bytes != new.bucket_bytes:
        return f"buckets of {new.bucket_bytes // 1024} KiB fit payload and rate"
    if old.pacing_bits_per_second != new.pacing_bits_per_second:
        return "pacing follows the measured rate"
    return old.reason


def _buffers_full(sample: PayloadSample) -> bool:
    stream_rate = sample.rate_bytes_per_s / max(sample.streams, 1)
    return model.buffers_full(sample.send_buffer_bytes, stream_rate, sample.min_rtt_s)


def _finite(now_s: float) -> float:
    return min(max(now_s, -1e15), 1e15) if math.isfinite(now_s) else 0.0


def _micros(seconds: float) -> int:
    return min(int(min(seconds, MAX_SECONDS) * 1e6), MAX_MICROS)
