"""Checks of single fields of hostile JSON, for every protocol between processes of one machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

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


def text(most: int) -> Check:
    """Text of at most so many characters."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most:
            raise refuse(f"text of at most {most} characters")
        return value

    return check


def matching(pattern: str, what: str) -> Check:
    """Text of a form."""
    compiled = re.compile(pattern)

    def check(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise refuse(what)
        return value

    return check


def one_of(*choices: str) -> Check:
    """One of several words."""
    return matching("|".join(choices), f"one of {', '.join(choices)}")


def optional(check: Check) -> Check:
    """That, or null."""
    return lambda value: None if value is None else check(value)


def tuple_of(check: Check, most: int) -> Check:
    """A list of at most so many."""

    def check_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise refuse(f"a list of at most {most} entries")
        return tuple(check(entry) for entry in value)

    return check_all


def record(cls: type, checks: Mapping[str, Check]) -> Check:
    """An object with exactly these fields, as a dataclass."""

    def check(value: Any) -> Any:
        if not isinstance(value, dict) or set(value) != set(checks):
            raise LocalProtocolError(f"{cls.__name__} has other fields than the protocol names: {', '.join(checks)}")
        return cls(**{name: checks[name](value[name]) for name in checks})

    return check


class Spec(NamedTuple):
    """A message on the wire."""

    code: int
    cls: type[Any]
    limit_bytes: int
    checks: Mapping[str, Check]
    has_payload: bool = False
    """Whether bytes follow the JSON: the dataclass's `payload`."""
