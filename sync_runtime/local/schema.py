"""Messages to frames and back: every field of what arrives is checked by hand-written rules before it is used.

Exactly the fields named, of the type and within the limits named; sizes and numbers only. What they mean is for the
receiver to judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, NamedTuple, cast

from sync_runtime.errors import LocalProtocolError
from sync_runtime.local.fields import MAX_INT, Check, boolean, integer, refuse
from sync_runtime.local.frames import pack_frame, pack_json, parse_json
from sync_runtime.local.messages import (
    MAX_LABEL_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    Activate,
    Activated,
    Anchor,
    Blocks,
    Cancel,
    Close,
    Closed,
    Credit,
    Data,
    End,
    Error,
    Go,
    Head,
    Hello,
    Known,
    Message,
    Note,
    Open,
    Opened,
    Part,
    Publish,
    Published,
    Scrub,
    Scrubbed,
    Share,
    Stage,
    Staged,
    Totals,
    Unstage,
    VersionRef,
    Welcome,
)
from sync_runtime.local.ranges import MAX_RANGES, Ranges

MAX_TIMINGS: Final = 64


def _text(most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most:
            raise refuse(f"text of at most {most} characters")
        return value

    return check


def _matching(pattern: str, what: str) -> Check:
    compiled = re.compile(pattern)

    def check(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise refuse(what)
        return value

    return check


def _one_of(*choices: str) -> Check:
    return _matching("|".join(choices), f"one of {', '.join(choices)}")


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _tuple_of(check: Check, most: int) -> Check:
    def check_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise refuse(f"a list of at most {most} entries")
        return tuple(check(entry) for entry in value)

    return check_all


def _timings(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_TIMINGS or any(len(name) > 64 for name in value):
        raise refuse(f"an object with at most {MAX_TIMINGS} timings")
    return {name: integer()(duration) for name, duration in value.items()}


def _ranges(value: Any) -> Ranges:
    found = _tuple_of(_tuple_of(integer(), 2), MAX_RANGES)(value)
    end = -1
    for entry in found:
        if len(entry) != 2 or not end < entry[0] < entry[1]:
            raise refuse("a list of ascending ranges")
        end = entry[1]
    return tuple((begin, end) for begin, end in found)


def _record(cls: type, checks: Mapping[str, Check]) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, dict) or set(value) != set(checks):
            raise LocalProtocolError(f"{cls.__name__} has other fields than the protocol names: {', '.join(checks)}")
        return cls(**{name: checks[name](value[name]) for name in checks})

    return check


_DIGEST = _matching("[0-9a-f]{32}", "32 hexadecimal digits")
_NAME = {"lineage": _DIGEST, "seq": integer()}
_STEP = {"step": _optional(integer(-MAX_INT - 1))}
_REF = _optional(_record(VersionRef, _NAME))
_CODEC = {"codec": _one_of("fast", "tight", "auto")}
_TIMINGS = {"timings_us": _timings}
_DIGESTS = _matching("(?:[0-9a-f]{32})*", "a whole number of digests")
_TOTALS = _record(
    Totals,
    {**_CODEC, "blocks": integer(), "changed": integer(), "digest": _DIGEST,
     "digest_changes": _DIGESTS},
)  # fmt: skip


class Spec(NamedTuple):
    """A message on the wire."""

    code: int
    cls: type[Any]
    limit_bytes: int
    checks: Mapping[str, Check]


_KIB, _MIB = 1 << 10, 1 << 20
_SPECS = (
    Spec(1, Hello, 4 * _KIB, {
        "protocols": _tuple_of(integer(1, 65535), 16), "kind": _one_of("publisher", "subscriber"),
        "rank": integer(0, 65535), "world_size": integer(1, 65536), "pid": integer(1),
        "coder": _one_of("sidecar", "library"), "version": _text(64),
    }),
    Spec(2, Welcome, 4 * _KIB, {
        "protocol": integer(1, 65535), "ring_bytes": integer(1 << 13, 1 << 40), "group": _text(253),
        "member": _text(253), "term": integer(),
    }),
    Spec(3, Error, 32 * _KIB, {
        "request": _matching("[A-Z]{1,16}", "a message's name"), "kind": _matching("[A-Za-z]{1,64}", "an error's name"),
        "message": _text(MAX_TEXT_CHARACTERS), "retry": boolean,
    }),
    Spec(4, Data, 4 * _KIB, {"at": integer(), "size": integer(1)}),
    Spec(5, Credit, 4 * _KIB, {"size": integer(1)}),
    Spec(16, Open, 4 * _KIB, {
        "layout_bytes": integer(1), "state": boolean, "digests": _tuple_of(_DIGEST, 8), "resume": boolean,
    }),
    Spec(17, Opened, 4 * _KIB, {
        "lineage": _optional(_DIGEST), "seq": _optional(integer()), "digest": _optional(_DIGEST), **_STEP,
        "continued": boolean,
    }),
    Spec(18, Publish, 4 * _KIB, {**_STEP, "label": _text(MAX_LABEL_CHARACTERS), **_CODEC}),
    Spec(19, End, 64 * _MIB, {"totals": _optional(_TOTALS), "timings_us": _optional(_timings)}),
    Spec(20, Published, 16 * _KIB, {**_NAME, "digest": _DIGEST, "changed": integer(), "bytes": integer(), **_TIMINGS}),
    Spec(21, Close, 4 * _KIB, {"drain_ms": integer()}),
    Spec(22, Closed, 4 * _KIB, {"drained": boolean}),
    Spec(23, Cancel, 32 * _KIB, {"reason": _text(MAX_TEXT_CHARACTERS)}),
    Spec(32, Stage, 4 * _KIB, {
        **_NAME, "digest": _DIGEST, **_STEP, "base": _REF, "form": _one_of("list", "object", "state"),
        "bytes": integer(),
    }),
    Spec(33, Staged, 16 * _KIB, {**_NAME, **_TIMINGS}),
    Spec(34, Activate, 4 * _KIB, _NAME),
    Spec(35, Go, 4 * _KIB, {**_NAME, "term": integer()}),
    Spec(36, Activated, 4 * _KIB, {**_NAME, "pause_us": integer()}),
    Spec(37, Unstage, 4 * _KIB, {"version": _REF}),
    Spec(38, Scrub, 4 * _MIB, {**_NAME, "digest": _optional(_DIGEST), "blocks": _ranges, "state": boolean}),
    Spec(39, Scrubbed, 4 * _MIB, {"passed": boolean, "blocks": _ranges}),
    Spec(40, Blocks, 4 * _MIB, {"blocks": _ranges}),
    Spec(42, Anchor, 4 * _MIB, {**_NAME, "blocks": _ranges}),
    Spec(43, Part, 64 * _MIB, {"blocks": _ranges, "copies": _ranges, "digests": _DIGESTS}),
    Spec(44, Share, 4 * _KIB, {"digest": _DIGEST}),
    Spec(48, Note, 16 * _KIB, {"tokens_per_second": _optional(integer()), **_TIMINGS}),
    Spec(49, Head, 4 * _KIB, {**_NAME, "digest": _DIGEST, **_STEP}),
    Spec(50, Known, 4 * _KIB, {**_NAME, "digest": _DIGEST, **_STEP}),
)  # fmt: skip
_BY_CODE = {spec.code: spec for spec in _SPECS}
_BY_CLASS = {spec.cls: spec for spec in _SPECS}


def limit_of(code: int) -> int:
    """The most bytes of a body; raises LocalProtocolError for a type that does not exist."""
    if code not in _BY_CODE:
        raise LocalProtocolError(f"a frame has type {code}, which this version of the protocol does not have")
    return _BY_CODE[code].limit_bytes


def pack(message: Message) -> bytes:
    """A message as a frame."""
    return pack_frame(_BY_CLASS[type(message)].code, pack_json(asdict(message)))


def parse(code: int, body: bytes) -> Message:
    """A frame's meaning; raises LocalProtocolError."""
    limit_of(code)
    spec = _BY_CODE[code]
    return cast("Message", _record(spec.cls, spec.checks)(parse_json(body)))
