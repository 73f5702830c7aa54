"""The emulator's counters as typed values. Pure: turns its JSON into dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from tools.linkemu.errors import EmulatorError


@dataclass(frozen=True, slots=True)
class Lateness:
    """How much later than due packets were sent: the emulator's own error.

    Quantiles are rounded up, by 12.5 % at most.
    """

    packets: int
    mean_ns: int
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int
    over_1ms: int

    @property
    def over_1ms_share(self) -> float:
        """The share of packets that were more than a millisecond late."""
        return self.over_1ms / self.packets if self.packets else 0.0


@dataclass(frozen=True, slots=True)
class PairStats:
    """One direction of one link since the last reset."""

    source: str
    destination: str
    in_packets: int
    in_bytes: int
    out_packets: int
    out_bytes: int
    lost: int
    policed: int
    queue_full: int
    cut: int
    pool_empty: int
    """Dropped because the emulator had no memory left: not the link's doing."""
    send_failed: int
    line_packets: int
    """Queued or in flight now."""
    queue_bytes: int
    queue_bytes_max: int
    late: Lateness


@dataclass(frozen=True, slots=True)
class PortStats:
    """What a region sent that no link took, and trouble with its interface."""

    name: str
    open: bool
    in_packets: int
    not_ipv4: int
    malformed: int
    no_route: int
    no_neighbour: int
    offloaded: int
    """Dropped because the region's interface left checksum or segmentation to hardware."""
    ring_full: int
    """Dropped because the emulator did not read in time: not the link's doing."""
    device_errors: int


@dataclass(frozen=True, slots=True)
class EmulatorStats:
    """Everything since the last reset."""

    elapsed_us: int
    cpu_us: int
    pool_used: int
    ports: tuple[PortStats, ...]
    pairs: tuple[PairStats, ...]
    late: Lateness

    def pair(self, source: str, destination: str) -> PairStats:
        """The counters of one direction."""
        for pair in self.pairs:
            if (pair.source, pair.destination) == (source, destination):
                return pair
        raise EmulatorError(f"there is no link from {source!r} to {destination!r}")

    def port(self, name: str) -> PortStats:
        """The counters of one region's port."""
        for port in self.ports:
            if port.name == name:
                return port
        raise EmulatorError(f"there is no region {name!r}")

    @property
    def own_drops(self) -> int:
        """Packets dropped by the emulator's own shortcomings; a measurement with any is not to be believed."""
        return sum(pair.pool_empty + pair.send_failed for pair in self.pairs) + sum(p.ring_full for p in self.ports)


_Record = TypeVar("_Record", Lateness, PairStats, PortStats)


def read_stats(reply: Mapping[str, Any]) -> EmulatorStats:
    """The reply to `stats`."""
    return EmulatorStats(
        elapsed_us=reply["elapsed_us"],
        cpu_us=reply["cpu_us"],
        pool_used=reply["pool_used"],
        ports=tuple(_record(PortStats, port) for port in reply["ports"]),
        pairs=tuple(_read_pair(pair) for pair in reply["pairs"]),
        late=_record(Lateness, reply["late"]),
    )


def _read_pair(pair: Mapping[str, Any]) -> PairStats:
    renamed = {**pair, "source": pair["from"], "destination": pair["to"], "late": _record(Lateness, pair["late"])}
    return _record(PairStats, renamed)


def _record(kind: type[_Record], values: Mapping[str, Any]) -> _Record:
    return kind(**{field.name: values[field.name] for field in fields(kind)})
