"""How a result is shown: once or live, in colour or plain. The only place that knows the terminal."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from syncgroup.output import say

CLEAR: Final = "\x1b[2J\x1b[H"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
DEFAULT_WIDTH = 120


def is_terminal() -> bool:
    """Whether a person looks at the result."""
    return sys.stdout.isatty()


def has_colour() -> bool:
    """By the convention of https://no-color.org: a variable that is set and not empty turns it off."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Of the terminal; a usual one where there is none."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 40)).columns if is_terminal() else DEFAULT_WIDTH


async def show_live(lines: Callable[[], Awaitable[list[str]]], every_s: float) -> None:
    """The same lines again and again in place, until the person has seen enough. Nothing scrolls."""
    sys.stdout.write(_HIDE_CURSOR + CLEAR)
    try:
        while True:
            shown = await lines()
            height = shutil.get_terminal_size((DEFAULT_WIDTH, 40)).lines - 1
            cut = [*shown[: height - 1], f"… {len(shown) - height + 1} more lines"] if len(shown) > height else shown
            sys.stdout.write(_HOME + "".join(f"{line}{_REST_OF_LINE}\n" for line in cut) + _REST_OF_SCREEN)
            sys.stdout.flush()
            await asyncio.sleep(every_s)
    finally:
        sys.stdout.write(_SHOW_CURSOR)
        sys.stdout.flush()


def show(lines: list[str]) -> None:
    """The lines, once."""
    say("\n".join(lines))
