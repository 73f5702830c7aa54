"""Where the demo speaks: one screen that redraws on a terminal, plain lines where its output is piped."""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Self, TextIO

from tools.demo import screen
from tools.demo.screen import View

_ENTER, _LEAVE, _HOME, _CLEAR_LINE, _CLEAR_REST = (
    "\x1b[?1049h\x1b[?25l",
    "\x1b[?25h\x1b[?1049l",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
)
PROGRESS_EVERY_S = 5.0


class Terminal:
    """Draws views; a context manager that gives the terminal back as it was, however it is left."""

    def __init__(self, out: TextIO = sys.stdout, *, plain: bool = False) -> None:
        self._out = out
        self._live = out.isatty() and not plain and os.environ.get("TERM", "dumb") != "dumb"
        self._drawing = False
        self._said_s = 0.0

    def say(self, text: str = "") -> None:
        """Lines that stay."""
        self.rest()
        self._write(f"{text}\n")

    def show(self, view: View) -> None:
        """The view as it is now; without a terminal a line of progress every few seconds."""
        if not self._live:
            if time.monotonic() - self._said_s >= PROGRESS_EVERY_S and view.scene.steps:
                self._said_s = time.monotonic()
                self._write(f"{screen.progress(view)}\n")
            return
        width, height = shutil.get_terminal_size()
        lines = screen.screen(view, width, height)
        begin = "" if self._drawing else _ENTER
        self._drawing = True
        self._write(begin + _HOME + "".join(f"{line}{_CLEAR_LINE}\r\n" for line in lines) + _CLEAR_REST)

    def beat(self, text: str) -> None:
        """A line about the story: on the screen already where there is one."""
        if not self._live:
            self._write(f"{text}\n")

    def rest(self) -> None:
        """Leave the screen, if it is drawn."""
        if self._drawing:
            self._drawing = False
            self._write(_LEAVE)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()
