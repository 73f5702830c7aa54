"""What a link does to packets, in one direction, and its short form for command lines.

Pure: knows nothing of processes or sockets. Limits are the emulator's to judge (`shape_problem` in shaper.c); this
module only refuses what cannot be read. The short form is `RTT/RATE/LOSS[,OPTION...]`:

    100ms/500M/0.1%                               round trip, bit/s of IP packets, share of packets lost
    60ms/100M/0%,queue=120K                       a shallow queue
    80ms/200M/0%,burst=0.02%:10%:80%              bursts: chance to enter and to leave, loss inside
    20ms/1G/0%,jitter=2ms,police=800M:1M,cross=100M:500ms:500ms

The round trip halves into two equal one-way delays. A rate of `0` or `max` is no limit. Units are decimal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from tools.linkemu.errors import ShapeError

_FORM = "write a link as RTT/RATE/LOSS[,OPTION...], for example 100ms/500M/0.1% or 60ms/100M/0%,queue=120K"
_TIME_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
_DECIMAL = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z%]*)\Z", re.ASCII)
_PPM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstLoss:
    """Gilbert-Elliott loss, per packet: a good state without and a bad state with loss."""

    enter_ppm: int
    exit_ppm: int
    loss_ppm: int = _PPM

    @property
    def mean_loss_ppm(self) -> float:
        """The long-run share of packets lost."""
        return self.enter_ppm / (self.enter_ppm + self.exit_ppm) * self.loss_ppm


@dataclass(frozen=True, slots=True, kw_only=True)
class Policer:
    """A token bucket that drops what exceeds it instead of queueing it."""

    rate_bps: int
    burst_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTraffic:
    """Other people's traffic in the same queue: constant, or on and off in turn."""

    rate_bps: int
    on_us: int = 0
    off_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShape:
    """One direction of a link. The default is a perfect link: no limit, no delay, no loss."""

    rate_bps: int = 0
    """Bits per second of whole IP packets; 0 is no limit."""
    delay_us: int = 0
    """One way."""
    jitter_us: int = 0
    """Extra delay between 0 and this; wanders slowly, so that packets keep their order, unless `reorder`."""
    reorder: bool = False
    loss_ppm: int = 0
    burst: BurstLoss | None = None
    queue_bytes: int | None = None
    """Tail drop beyond this; None is about one bandwidth-delay product."""
    policer: Policer | None = None
    cross: CrossTraffic | None = None

    def settings(self) -> dict[str, int]:
        """All keys of the emulator's `set` command."""
        burst = self.burst or BurstLoss(enter_ppm=0, exit_ppm=0, loss_ppm=0)
        policer = self.policer or Policer(rate_bps=0, burst_bytes=0)
        cross = self.cross or CrossTraffic(rate_bps=0)
        return {
            "rate_bps": self.rate_bps,
            "delay_us": self.delay_us,
            "jitter_us": self.jitter_us,
            "reorder": int(self.reorder),
            "loss_ppm": self.loss_ppm,
            "burst_enter_ppm": burst.enter_ppm,
            "burst_exit_ppm": burst.exit_ppm,
            "burst_loss_ppm": burst.loss_ppm,
            "queue_bytes": self.queue_bytes or 0,
            "policer_bps": policer.rate_bps,
            "policer_burst_bytes": policer.burst_bytes,
            "cross_bps": cross.rate_bps,
            "cross_on_us": cross.on_us,
            "cross_off_us": cross.off_us,
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, int]) -> LinkShape:
        """The inverse of `settings`."""
        burst = (settings["burst_enter_ppm"], settings["burst_exit_ppm"], settings["burst_loss_ppm"])
        policer = (settings["policer_bps"], settings["policer_burst_bytes"])
        cross = (settings["cross_bps"], settings["cross_on_us"], settings["cross_off_us"])
        return cls(
            rate_bps=settings["rate_bps"],
            delay_us=settings["delay_us"],
            jitter_us=settings["jitter_us"],
            reorder=bool(settings["reorder"]),
            loss_ppm=settings["loss_ppm"],
            burst=BurstLoss(enter_ppm=burst[0], exit_ppm=burst[1], loss_ppm=burst[2]) if any(burst) else None,
            queue_bytes=settings["queue_bytes"] or None,
            policer=Policer(rate_bps=policer[0], burst_bytes=policer[1]) if any(policer) else None,
            cross=CrossTraffic(rate_bps=cross[0], on_us=cross[1], off_us=cross[2]) if any(cross) else None,
        )


def parse_link(text: str) -> LinkShape:
    """Read the short form; the shape is that of each of the two directions."""
    main, *options = text.split(",")
    parts = main.split("/")
    if len(parts) != 3:
        raise ShapeError(f"cannot read the link {text!r}: {_FORM}")
    shape = LinkShape(
        delay_us=parse_time_us(parts[0]) // 2,
        rate_bps=0 if parts[1] == "max" else parse_rate_bps(parts[1]),
        loss_ppm=_share_ppm(parts[2]),
    )
    for option in options:
        shape = _with_option(shape, option)
    return shape


def parse_time_us(text: str) -> int:
    """`50ms`, `1.5s` or `800us` in microseconds."""
    return _quantity(text, _TIME_US, "a time such as 50ms, 1.5s or 800us")


def parse_rate_bps(text: str) -> int:
    """`500M` or `1.5G` in bits per second."""
    return _quantity(text, _DECIMAL, "a rate in bit/s such as 500M or 1.5G")


def format_link(shape: LinkShape) -> str:
    """The short form of a shape; `parse_link` reads it back to the same shape."""
    rate = _short(shape.rate_bps, _DECIMAL) if shape.rate_bps else "max"
    parts = [f"{_short(2 * shape.delay_us, _TIME_US)}/{rate}/{_percent(shape.loss_ppm)}"]
    if shape.jitter_us:
        parts.append(f"jitter={_short(shape.jitter_us, _TIME_US)}")
    if shape.reorder:
        parts.append("reorder")
    if shape.queue_bytes:
        parts.append(f"queue={_short(shape.queue_bytes, _DECIMAL)}")
    if shape.burst:
        burst = (shape.burst.enter_ppm, shape.burst.exit_ppm, shape.burst.loss_ppm)
        parts.append("burst=" + ":".join(_percent(ppm) for ppm in burst))
    if shape.policer:
        rate, size = _short(shape.policer.rate_bps, _DECIMAL), _short(shape.policer.burst_bytes, _DECIMAL)
        parts.append(f"police={rate}:{size}")
    if shape.cross:
        parts.append(f"cross={_short(shape.cross.rate_bps, _DECIMAL)}")
        if shape.cross.on_us or shape.cross.off_us:
            parts[-1] += f":{_short(shape.cross.on_us, _TIME_US)}:{_short(shape.cross.off_us, _TIME_US)}"
    return ",".join(parts)


def _with_option(shape: LinkShape, option: str) -> LinkShape:
    name, _, value = option.partition("=")
    values = value.split(":")
    match name, len(values):
        case "reorder", 1 if not value:
            return replace(shape, reorder=True)
        case "jitter", 1:
            return replace(shape, jitter_us=parse_time_us(value))
        case "queue", 1:
            return replace(shape, queue_bytes=_size_bytes(value))
        case "burst", 3:
            enter, leave, loss = (_share_ppm(v) for v in values)
            return replace(shape, burst=BurstLoss(enter_ppm=enter, exit_ppm=leave, loss_ppm=loss))
        case "police", 2:
            policer = Policer(rate_bps=parse_rate_bps(values[0]), burst_bytes=_size_bytes(values[1]))
            return replace(shape, policer=policer)
        case "cross", 1:
            return replace(shape, cross=CrossTraffic(rate_bps=parse_rate_bps(value)))
        case "cross", 3:
            on_us, off_us = parse_time_us(values[1]), parse_time_us(values[2])
            cross = CrossTraffic(rate_bps=parse_rate_bps(values[0]), on_us=on_us, off_us=off_us)
            return replace(shape, cross=cross)
    raise ShapeError(
        f"cannot read the link option {option!r}: known are jitter=TIME, reorder, queue=BYTES, "
        "burst=ENTER%:EXIT%:LOSS%, police=RATE:BYTES, cross=RATE[:ON:OFF]"
    )


def _size_bytes(text: str) -> int:
    size = _quantity(text, _DECIMAL, "a number of bytes such as 150K or 2M")
    if size == 0:
        raise ShapeError(f"{text!r} bytes hold no packet: leave the option out for the default")
    return size


def _share_ppm(text: str) -> int:
    ppm = _quantity(text, {"%": _PPM // 100}, "a share of packets such as 0.1% (at most four decimals)")
    if ppm > _PPM:
        raise ShapeError(f"a share is at most 100%, not {text!r}")
    return ppm


def _quantity(text: str, units: Mapping[str, int], expected: str) -> int:
    found = _QUANTITY.match(text)
    if not found or found[2] not in units:
        raise ShapeError(f"expected {expected}, not {text!r}")
    value = Decimal(found[1]) * units[found[2]]
    if value != int(value) or value >= Decimal(10) ** 18:
        raise ShapeError(f"{text!r} is too fine or too large; expected {expected}")
    return int(value)


def _short(value: int, units: Mapping[str, int]) -> str:
    """The value with the largest unit that divides it."""
    if value == 0:
        return f"0{next(iter(units))}"
    name, size = max(((n, s) for n, s in units.items() if value % s == 0), key=lambda unit: unit[1])
    return f"{value // size}{name}"


def _percent(ppm: int) -> str:
    return f"{Decimal(ppm) / (_PPM // 100)}%"
