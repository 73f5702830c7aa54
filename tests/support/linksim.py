"""A pure model of a link and its streams, for tests of the tuning: seeded, so that every run is the same run.

Streams have a cap of their own (buffer, loss, congestion control), share the link's capacity, fill its queue when there
are too many, and start cold. It gives the samples that `LinkMeter` would: one per payload, windows of long ones. No
sockets, no clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sync_runtime.contract.plan import BucketPlan, LinkPlan, StreamPlan
from sync_runtime.contract.status import LinkCodec
from sync_runtime.tuning.controller import Decision, LinkController
from sync_runtime.tuning.model import PathFacts, ramp_s, stream_rate_bytes_per_s
from sync_runtime.tuning.samples import PayloadSample

MBIT = 125_000.0
PAYLOAD_SHARE = 0.965
SOFTNESS = 4
PAUSE_S = 3.0
PAYLOAD_BYTES = 60_000_000
SILENT_WINDOWS = 3
"""The first windows of a payload give no sample of their own, as in the meter."""


@dataclass(frozen=True)
class Path:
    """One link as nature made it."""

    capacity_mbit: float
    rtt_s: float
    loss: float = 0.0
    congestion_control: str = "bbr"
    send_buffer_bytes: int = 4 * 2**20
    queue_bdp: float = 1.3
    excess_cost: float = 0.0
    """Share of the capacity lost per stream beyond twice what fills the link."""

    @property
    def capacity(self) -> float:
        """Payload bytes per second."""
        return self.capacity_mbit * MBIT * PAYLOAD_SHARE

    @property
    def stream_cap(self) -> float:
        """What one stream carries at most."""
        return stream_rate_bytes_per_s(
            PathFacts(self.capacity, self.rtt_s, self.loss, self.send_buffer_bytes, self.congestion_control)
        )

    @property
    def window_s(self) -> float:
        """The meter's window there."""
        return max(1.0, 8 * self.rtt_s)

    def rate(self, streams: int) -> float:
        """What warm streams carry together, without noise. Both limits blend: no stream is perfectly even."""
        offered = streams * self.stream_cap
        carried = self.capacity * math.pow(1 + (self.capacity / offered) ** SOFTNESS, -1 / SOFTNESS)
        excess = max(0.0, streams - 2 * max(self.capacity / self.stream_cap, 1.0))
        return carried * max(0.2, 1 - self.excess_cost * excess)

    def queueing_s(self, streams: int) -> float:
        """How long a byte waits behind our own."""
        bdp = self.capacity * self.rtt_s
        return min(max(streams * self.stream_cap * self.rtt_s - bdp, 0.0), self.queue_bdp * bdp) / self.capacity

    def best_streams(self, most: int = 64, tolerance: float = 0.03) -> int:
        """The smallest count within a few percent of the best."""
        best = max(self.rate(count) for count in range(1, most + 1))
        return next(count for count in range(1, most + 1) if self.rate(count) >= (1 - tolerance) * best)


def scaled(path: Path, factor: float) -> Path:
    """The same path after a step in its rate."""
    return replace(path, capacity_mbit=path.capacity_mbit * factor)


@dataclass
class SimulatedLink:
    """A path with noise, and streams that are warm or not."""

    path: Path
    seed: int
    noise: float = 0.04
    steps: list[tuple[float, Path]] = field(default_factory=list)
    """When the path becomes another one."""
    warm_streams: int = 0
    now_s: float = 0.0
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - the same noise in every run

    def send(self, size_bytes: int, controller: LinkController) -> Iterator[PayloadSample]:
        """One payload under the controller's eyes: its samples, the whole one last."""
        started_s, left, windows, told = self.now_s, float(size_bytes), 0, 0
        streams = controller.decision.streams
        was_cold = streams > self.warm_streams
        self.now_s += self._ramp_s(streams)
        while left > 0:
            self._step_path()
            now_streams = controller.decision.streams
            grew, streams = now_streams > streams, now_streams
            rate = self.path.rate(streams) * math.exp(self.random.gauss(0.0, self.noise))
            duration_s = min(self.path.window_s, left / rate)
            left = 0.0 if duration_s < self.path.window_s else left - rate * duration_s
            self.now_s += duration_s + (self._ramp_s(streams) if grew else 0.0)
            self.warm_streams = max(streams, controller.decision.open_streams)
            windows += 1
            if windows > SILENT_WINDOWS and left:
                told += 1
                yield self._sample(int(rate * duration_s), duration_s, streams, whole=False, cold=grew)
        self.now_s += self.path.rtt_s
        duration_s = self.now_s - started_s
        sample = self._sample(size_bytes, duration_s, streams, whole=True, cold=was_cold)
        yield replace(sample, windowed=told > 0)

    def _ramp_s(self, streams: int) -> float:
        cold = max(streams - self.warm_streams, 0)
        return 0.6 * ramp_s(self.path.capacity, self.path.rtt_s, streams) * cold / streams

    def _step_path(self) -> None:
        while self.steps and self.steps[0][0] <= self.now_s:
            self.path = self.steps.pop(0)[1]

    def _sample(self, size_bytes: int, duration_s: float, streams: int, *, whole: bool, cold: bool) -> PayloadSample:
        path = self.path
        return PayloadSample(
            size_bytes,
            duration_s,
            streams,
            whole=whole,
            cold=cold,
            rtt_s=(path.rtt_s + path.queueing_s(streams)) * math.exp(self.random.gauss(0.0, 0.02)),
            min_rtt_s=path.rtt_s * (1 + 0.01 * self.random.random()),
            sent_bytes=int(size_bytes * (1 + path.loss)),
            retransmitted_bytes=int(size_bytes * path.loss),
            busy_s=duration_s * streams,
            send_buffer_bytes=path.send_buffer_bytes,
        )


@dataclass(frozen=True)
class Payload:
    """One payload of a run."""

    streams: int
    """When it began."""
    started_s: float
    duration_s: float
    size_bytes: int
    decisions: tuple[tuple[float, Decision], ...]
    """With the seconds of this payload that had passed."""

    @property
    def reasons(self) -> list[str]:
        """Why things were changed during it."""
        return [decision.reason for _, decision in self.decisions]

    @property
    def rate(self) -> float:
        """Goodput, everything included."""
        return self.size_bytes / self.duration_s


def bounds(seed: int = 4, *, fewest: int = 1, most: int = 64, codec: LinkCodec = "Fast") -> LinkPlan:
    """A plan's link with the whole room."""
    return LinkPlan(
        from_cluster="hub",
        from_region="home",
        codec=codec,
        streams=StreamPlan(seed=seed, min=fewest, max=most),
        bucket_bytes=BucketPlan(seed=2**20, min=256 * 1024, max=8 * 2**20),
    )


def drive(
    controller: LinkController,
    link: SimulatedLink,
    payloads: int,
    size_bytes: int = PAYLOAD_BYTES,
    *,
    watch: bool = True,
) -> list[Payload]:
    """Payload after payload with pauses, as in training; without `watch` the controller learns nothing."""
    run = []
    controller.set_congestion_control(link.path.congestion_control)
    for _ in range(payloads):
        streams, started_s = controller.decision.streams, link.now_s
        decisions: list[tuple[float, Decision]] = []
        for sample in link.send(size_bytes, controller):
            if watch and (decision := controller.observe(sample, link.now_s)):
                decisions.append((link.now_s - started_s, decision))
        run.append(Payload(streams, started_s, link.now_s - started_s, size_bytes, tuple(decisions)))
        link.now_s += PAUSE_S
    return run


def fixed(path: Path, streams: int, payloads: int, seed: int, size_bytes: int = PAYLOAD_BYTES) -> list[Payload]:
    """The same payloads with a fixed count."""
    controller = LinkController(None, bounds(streams, fewest=streams, most=streams))
    return drive(controller, SimulatedLink(path, seed), payloads, size_bytes, watch=False)
