"""Whether a running transfer gives way to a merged object when a newer version exists (PROTOCOL.md, 3.6).

What was sent is lost by that, so the merged object must be sooner by more than the prediction's own error.
"""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 0.10


@dataclass(frozen=True, slots=True)
class Prediction:
    """When either way ends, in seconds from now."""

    goes_on_s: float
    merged_s: float
    rtt_s: float

    @property
    def abandons(self) -> bool:
        """Whether the merged object ends earlier by more than one round trip and MARGIN."""
        return self.goes_on_s - self.merged_s > max(self.rtt_s, MARGIN * self.goes_on_s)


def predict(
    *,
    rest_bytes: float,
    next_bytes: float,
    merged_bytes: float,
    seconds_per_byte: float,
    rtt_s: float,
    in_flight_bytes: float = 0.0,
    merge_s: float = 0.0,
) -> Prediction:
    """Both ends. A link of which nothing is known has no pace: all takes no time, and what runs goes on.

    `rest_bytes`: of the running object, all that is not acknowledged, `in_flight_bytes` of it already sent: these
    cannot be called back, so either way waits for them. `merge_s`: until the merged object's first byte.
    """
    if not seconds_per_byte > 0:
        return Prediction(0.0, 0.0, max(rtt_s, 0.0))
    goes_on_s = (max(rest_bytes, 0.0) + max(next_bytes, 0.0)) * seconds_per_byte
    gone_s = min(max(in_flight_bytes, 0.0), max(rest_bytes, 0.0)) * seconds_per_byte
    merged_s = max(merge_s, gone_s) + max(merged_bytes, 0.0) * seconds_per_byte
    return Prediction(goes_on_s, merged_s, rtt_s)
