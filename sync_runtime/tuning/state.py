"""What a link remembers across restarts of its sender: whole numbers only, in the contract's strict JSON.

`LinkState.from_json` reads it back as hostile bytes: size, nesting, version, then every limit. A trial that was under
way is not remembered; it starts again.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import Count, ListAtomic
from sync_runtime.contract.status import PPM
from sync_runtime.contract.sync import MAX_STREAMS, StreamCount
from sync_runtime.contract.wire import WireModel

MAX_WINDOWS = 32
MAX_NAME_CHARACTERS = 16
MAX_RATE = 10**12
MAX_MICROS = 10**12

Rate = Annotated[int, Field(ge=0, le=MAX_RATE)]
Micros = Annotated[int, Field(ge=0, le=MAX_MICROS)]
Loss = Annotated[int, Field(ge=0, le=PPM)]
Refusals = Annotated[int, Field(ge=0, le=16)]


UNKNOWN_CONGESTION_CONTROL = "unknown"


def is_congestion_control(name: str) -> bool:
    """Whether a kernel could have given this name; "unknown" stands for none."""
    fits = len(name) <= MAX_NAME_CHARACTERS and re.fullmatch(patterns.KERNEL_NAME, name) is not None
    return fits and name != UNKNOWN_CONGESTION_CONTROL


class RememberedWindow(Model):
    """One sample, as far as it is worth keeping."""

    streams: Annotated[int, Field(ge=0, le=MAX_STREAMS)] = Field(description="Streams that carried it.")
    bytes_per_second: Rate = Field(description="Its goodput.")
    rtt_micros: Micros = Field(description="Smoothed round-trip time during it.")
    loss_ppm: Loss = Field(description="Retransmitted per million bytes sent.")


class LinkState(WireModel):
    """A link's memory. A zero is an unknown figure."""

    MAX_BYTES: ClassVar[int] = 16 * 1024

    format_version: Literal[1] = Field(1, description="Format of this document.")
    streams: StreamCount = Field(description="The best count known.")
    settled: bool = Field(description="Whether the first search for it was finished.")
    capacity_bytes_per_second: Rate = Field(0, description="Most that the link carried lately.")
    picoseconds_per_byte: Annotated[int, Field(ge=0, le=10**15)] = Field(0, description="Smoothed cost of a byte.")
    rtt_micros: Micros = Field(0, description="Smoothed round-trip time.")
    min_rtt_micros: Micros = Field(0, description="Least round-trip time.")
    loss_ppm: Loss = Field(0, description="Smoothed share of retransmitted bytes.")
    payload_bytes: Count = Field(0, description="Smoothed size of a payload.")
    payloads: Count = Field(0, description="Payloads measured so far.")
    refusals: Refusals = Field(0, description="Trials refused since the last change; each doubles the pause.")
    congestion_control: (
        Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=patterns.KERNEL_NAME)] | None
    ) = Field(None, description="Congestion control that the figures were measured with.")
    windows: Annotated[list[RememberedWindow], Field(max_length=MAX_WINDOWS), ListAtomic()] = Field(
        default_factory=list, description="The last samples, oldest first."
    )
