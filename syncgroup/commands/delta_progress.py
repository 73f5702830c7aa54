"""A progress bar on a terminal's standard error; silent anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

WIDTH = 30
INTERVAL_S = 0.1


class Progress:
    """Shows how far a sequence has been taken."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown_at_s = 0.0

    def over(self, numbers: Sequence[int]) -> Iterator[int]:
        """The same numbers, counted as they are taken."""
        if not sys.stderr.isatty() or not numbers:
            yield from numbers
            return
        try:
            for done, number in enumerate(numbers):
                self._show(done, len(numbers))
                yield number
        finally:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _show(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_at_s < INTERVAL_S:
            return
        self._shown_at_s = now_s
        filled = WIDTH * done // total
        sys.stderr.write(f"\r{self._title} [{'#' * filled}{' ' * (WIDTH - filled)}] {100 * done // total:3d} %")
        sys.stderr.flush()
