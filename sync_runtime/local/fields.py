"""Checks of single fields of hostile JSON, for every protocol between processes of one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sync_runtime.errors import LocalProtocolError

MAX_INT: Final = 2**63 - 1
Check = Callable[[Any], Any]


def refuse(what: str) -> LocalProtocolError:
    """What to raise for a field that is not what it must be."""
    return LocalProtocolError(f"a field of a message is not {what}")


def integer(least: int = 0, most: int = MAX_INT) -> Check:
    """An integer in a range; true and false are none."""

    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise refuse(f"an integer from {least} to {most}")
        return value

    return check


def boolean(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise refuse("true or false")
    return value
