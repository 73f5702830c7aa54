"""What happens to a busy link when its rate falls, and when it is away for three seconds."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Any

from tests.bench.links_lab import PAYLOAD_SHARE, end, lab_of, lines_of, start
from tests.bench.report import Report
from tools.linkemu import Lab, parse_link

STEP_LINK = "60ms/300M/0.05%"
STEP_FACTOR = 0.3
STEP_GOAL_S = 15.0
OUTAGE_LINK = "100ms/200M/0.1%"
OUTAGE_S = 3.0
OUTAGE_GOAL_S = 2.0
BEFORE_S = 10.0
AFTER_S = 25.0
_WINDOW_S = 2.0
_SIZE_BYTES = 60_000_000


class Busy:
    """A link that sends without a pause, and how many bytes were acknowledged when."""

    def __init__(self, lab: Lab, parent: dict[str, Any], child: dict[str, Any]) -> None:
        self._sender = start(lab, "a", "busy-parent", parent)
        said = lines_of(self._sender)
        next(said)
        self._receiver = start(lab, "b", "child", child)
        self.points: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._listen, args=(said,), daemon=True)
        self._thread.start()

    def _listen(self, said: Any) -> None:
        for line in said:
            if "acked_bytes" in line:
                self.points.append((line["at_s"], line["acked_bytes"]))

    def bytes_between(self, start_s: float, end_s: float) -> int:
        """Acknowledged in that time."""
        before = [total for at_s, total in self.points if at_s <= start_s]
        until = [total for at_s, total in self.points if at_s <= end_s]
        return (until[-1] if until else 0) - (before[-1] if before else 0)

    def close(self) -> None:
        """End both processes."""
        self._sender.kill()
        self._sender.wait()
        end(self._receiver)


def measure(report: Report) -> None:
    """Both events, each on a fresh link."""
    with lab_of(2) as (lab, group, folder):
        parent = {
            "identity": str(group.trainer()),
            "memory": str(folder / "links.json"),
            "size_bytes": _SIZE_BYTES,
            "warm_up_s": 1.5,
        }
        child = {
            "identity": str(group.member("rollout-0")),
            "host": lab.address("a"),
            "group": group.group_uid,
            "member": "rollout-0",
        }
        for event in (_step, _outage):
            event(report, lab, parent, child)


def _step(report: Report, lab: Lab, parent: dict[str, Any], child: dict[str, Any]) -> None:
    shape = parse_link(STEP_LINK)
    lab.emulator.set_link("a", "b", shape)
    busy = Busy(lab, parent, child)
    time.sleep(BEFORE_S)
    lab.emulator.set_link("a", "b", replace(shape, rate_bps=int(shape.rate_bps * STEP_FACTOR)))
    at_s = time.monotonic()
    time.sleep(AFTER_S)
    busy.close()
    rate = shape.rate_bps * STEP_FACTOR * PAYLOAD_SHARE / 8
    case = f"{STEP_LINK} x{STEP_FACTOR}"
    waited_s, share = 0.0, 0.0
    # What was queued before the step still arrives at its own time; hence windows, and the first good one counts.
    while waited_s < AFTER_S - _WINDOW_S:
        share = busy.bytes_between(at_s + waited_s, at_s + waited_s + _WINDOW_S) / (_WINDOW_S * rate)
        if share >= 0.85:
            break
        waited_s += 0.25
    report.figure(case, "recovered_after", round(waited_s + _WINDOW_S, 2), "s", at_most=STEP_GOAL_S)
    last = busy.bytes_between(at_s + STEP_GOAL_S, at_s + AFTER_S - 1) / ((AFTER_S - 1 - STEP_GOAL_S) * rate)
    report.figure(case, "share_of_new_rate", round(last, 4), "share", at_least=0.85)
    report.figure(case, "load", round(os.getloadavg()[0], 2), "processes")


def _outage(report: Report, lab: Lab, parent: dict[str, Any], child: dict[str, Any]) -> None:
    shape = parse_link(OUTAGE_LINK)
    lab.emulator.set_link("a", "b", shape)
    busy = Busy(lab, parent, child)
    time.sleep(BEFORE_S)
    lab.emulator.cut_link("a", "b")
    time.sleep(OUTAGE_S)
    lab.emulator.mend_link("a", "b")
    at_s = time.monotonic()
    time.sleep(10)
    busy.close()
    case = f"{OUTAGE_LINK} away for {OUTAGE_S:.0f} s"
    moving = [now_s - at_s for now_s, total in busy.points if now_s > at_s and total > busy.bytes_between(0, at_s)]
    report.figure(case, "going_again_after", round(moving[0], 2) if moving else 99.0, "s", at_most=OUTAGE_GOAL_S)
    rate = shape.rate_bps * PAYLOAD_SHARE / 8
    share = busy.bytes_between(at_s + 2, at_s + 9) / (7 * rate)
    report.figure(case, "share_of_rate_after", round(share, 4), "share")
    report.figure(case, "load", round(os.getloadavg()[0], 2), "processes")
