"""How many examples a property draws: few in the stage that everybody runs all the time, more where there is time.

`SYNCGROUP_EXAMPLES=20` multiplies every count; `make test-properties` does so.
"""

from __future__ import annotations

import os

_TIMES = float(os.environ.get("SYNCGROUP_EXAMPLES") or 1)


def examples(count: int) -> int:
    """So many, times what this run has time for."""
    return max(round(count * _TIMES), 1)
