"""How benchmarks speak: one JSON line per figure, exit code 1 where a goal does not hold.

A figure that was measured under conditions in which it says little (`believable=False`) and misses its goal makes the
exit code 2: not shown, not refuted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field


@dataclass
class Report:
    """Collects the figures of one benchmark."""

    bench: str
    failed: list[str] = field(default_factory=list)
    inconclusive: list[str] = field(default_factory=list)

    def figure(
        self,
        case: str,
        metric: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        baseline: float | None = None,
        believable: bool = True,
    ) -> None:
        """Print one figure; with a goal (a bound, or two) it either holds or fails the benchmark."""
        line: dict[str, object] = {"bench": self.bench, "case": case, "metric": metric, "value": value, "unit": unit}
        if not believable:
            line["believable"] = False
        if baseline is not None:
            line |= {"baseline": baseline, "ratio": round(value / baseline, 4)}
        if at_most is not None or at_least is not None:
            holds = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
            both = at_most is not None and at_least is not None
            goal = [at_least, at_most] if both else at_most if at_most is not None else at_least
            line |= {"goal": goal, "holds": holds}
            if not holds:
                (self.failed if believable else self.inconclusive).append(f"{case} {metric}")
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def exit_code(self) -> int:
        """0 where every goal holds, 1 where one is missed, 2 where one is missed only in runs that say little."""
        return 1 if self.failed else 2 if self.inconclusive else 0
