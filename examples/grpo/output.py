"""What programs of the example say: a line of JSON per step on standard output and into a file, plots at the end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from sync_runtime.library.settings import LibrarySettings

from .training import Figures

FIGURES = "figures.jsonl"


class Output:
    """Figures of a run. A folder gets them as a file, added to what an earlier process of the run wrote, and plots."""

    def __init__(self, folder: Path | None, title: str = "GRPO over SyncGroup") -> None:
        self._folder, self._title = folder, title
        self._file: IO[str] | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / FIGURES).open("a")

    def step(self, figures: Figures) -> None:
        """One step is done."""
        line = figures.to_line()
        _say(line)
        if self._file is not None:
            self._file.write(line + "\n")
            self._file.flush()

    def end(self, **facts: object) -> None:
        """All steps are done."""
        _say(json.dumps({"done": True, **facts}))
        if self._folder is not None:
            from . import plots  # noqa: PLC0415 matplotlib takes a second, and a run without a folder does not need it

            plots.draw(self._folder / FIGURES, self._folder, self._title)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def tell_wait(socket: str | None, timeout_s: float) -> None:
    """Where no sidecar listens yet, says so: what follows waits for it, and a person would see nothing."""
    place = Path(LibrarySettings.read(socket).socket)
    if not place.exists():
        sys.stderr.write(f"no sidecar at {place} yet; waiting for one up to {timeout_s:g} s\n")
        sys.stderr.flush()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
