"""How benchmarks speak: one JSON line per figure, exit code 1 where a goal does not hold."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field


@dataclass
class Report:
    """Collects the figures of one benchmark."""

    bench: str
    failed: list[str] = field(default_factory=list)

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
    ) -> None:
        """Print one figure; with a goal it either holds or fails the benchmark."""
        line: dict[str, object] = {"bench": self.bench, "case": case, "metric": metric, "value": value, "unit": unit}
        if baseline is not None:
            line |= {"baseline": baseline, "ratio": round(value / baseline, 4)}
        if at_most is not None or at_least is not None:
            holds = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
            line |= {"goal": at_most if at_most is not None else at_least, "holds": holds}
            if not holds:
                self.failed.append(f"{case} {metric}")
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def exit_code(self) -> int:
        """0 where every goal holds."""
        return 1 if self.failed else 0
