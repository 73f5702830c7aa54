"""How many bytes the TCPs of a link's streams have delivered, whatever order they came in.

Buckets are acknowledged whole, and by the dozen once the gap that a lost packet left is closed: their times say little
of a link's rate. What the other end's TCP has, selective acknowledgements included, says it within a few percent.
"""

from __future__ import annotations

from collections.abc import Mapping

from sync_runtime.transport import sockets
from sync_runtime.transport.pace import MEASURE_EVERY_S
from sync_runtime.transport.stream import SendStream


class Delivered:
    """Counts of one link's streams. Not thread-safe: it has one owner."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._measured_s = 0.0

    def since_last(self, streams: Mapping[int, SendStream], now_s: float) -> int | None:
        """Bytes since the last measurement; None: that was a moment ago. A new stream counts from now on."""
        if now_s - self._measured_s < MEASURE_EVERY_S:
            return None
        self._measured_s = now_s
        came, counts = 0, {}
        for number, stream in streams.items():
            count = sockets.delivered_bytes(sockets.read_tcp_info(stream.connection))
            if count is not None:
                came += max(0, count - self._counts.get(number, count))
                counts[number] = count
        self._counts = counts
        return came
