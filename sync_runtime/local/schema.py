"""Messages to frames and back: every field of what arrives is checked by hand-written rules before it is used.

Exactly the fields named, of the type and within the limits named; sizes and numbers only. What they mean is for the
receiver to judge.
"""

from __future__ import annotations

import struct
from dataclasses import asdict
from typing import Any, Final, cast

from sync_runtime.errors import LocalProtocolError
from sync_runtime.local.fields import (
    MAX_INT,
    Spec,
    boolean,
    integer,
    matching,
    one_of,
    optional,
    record,
    refuse,
    text,
    tuple_of,
)
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
    Histograms,
    Known,
    Message,
    Note,
    Open,
    Opened,
    Part,
    Publish,
    Published,
    Recheck,
    Recode,
    Scrub,
    Scrubbed,
    Share,
    Stage,
    Staged,
    Tables,
    Totals,
    Unstage,
    VersionRef,
    Welcome,
)
from sync_runtime.local.ranges import MAX_RANGES, Ranges
from sync_runtime.local.work_schema import WORK_SPECS

MAX_TIMINGS: Final = 64


def _timings(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_TIMINGS or any(len(name) > 64 for name in value):
        raise refuse(f"an object with at most {MAX_TIMINGS} timings")
    return {name: integer()(duration) for name, duration in value.items()}


def _ranges(value: Any) -> Ranges:
    found = tuple_of(tuple_of(integer(), 2), MAX_RANGES)(value)
    end = -1
    for entry in found:
        if len(entry) != 2 or not end < entry[0] < entry[1]:
            raise refuse("a list of ascending ranges")
        end = entry[1]
    return tuple((begin, end) for begin, end in found)


_DIGEST = matching("[0-9a-f]{32}", "32 hexadecimal digits")
_NAME = {"lineage": _DIGEST, "seq": integer()}
_STEP = {"step": optional(integer(-MAX_INT - 1))}
_REF = optional(record(VersionRef, _NAME))
_CODEC = {"codec": one_of("fast", "tight", "auto")}
_TIMINGS = {"timings_us": _timings}
_DIGESTS = matching("(?:[0-9a-f]{32})*", "a whole number of digests")
_TOTALS = record(
    Totals,
    {**_CODEC, "blocks": integer(), "changed": integer(), "digest": _DIGEST,
     "digest_changes": _DIGESTS},
)  # fmt: skip


_KIB, _MIB = 1 << 10, 1 << 20
_SPECS = (
    Spec(1, Hello, 4 * _KIB, {
        "protocols": tuple_of(integer(1, 65535), 16), "kind": one_of("publisher", "subscriber", "work", "worker"),
        "rank": integer(0, 65535), "world_size": integer(1, 65536), "pid": integer(1),
        "coder": one_of("sidecar", "library"), "version": text(64),
    }),
    Spec(2, Welcome, 4 * _KIB, {
        "protocol": integer(1, 65535), "ring_bytes": integer(1 << 13, 1 << 40), "group": text(253),
        "member": text(253), "term": integer(),
    }),
    Spec(3, Error, 32 * _KIB, {
        "request": matching("[A-Z]{1,16}", "a message's name"), "kind": matching("[A-Za-z]{1,64}", "an error's name"),
        "message": text(MAX_TEXT_CHARACTERS), "retry": boolean,
    }),
    Spec(4, Data, 4 * _KIB, {"at": integer(), "size": integer(1)}),
    Spec(5, Credit, 4 * _KIB, {"size": integer(1)}),
    Spec(16, Open, 4 * _KIB, {
        "layout_bytes": integer(1), "state": boolean, "digests": tuple_of(_DIGEST, 8), "resume": boolean,
    }),
    Spec(17, Opened, 4 * _KIB, {
        "lineage": optional(_DIGEST), "seq": optional(integer()), "digest": optional(_DIGEST), **_STEP,
        "continued": boolean,
    }),
    Spec(18, Publish, 4 * _KIB, {**_STEP, "label": text(MAX_LABEL_CHARACTERS), **_CODEC}),
    Spec(19, End, 64 * _MIB, {"totals": optional(_TOTALS), "timings_us": optional(_timings)}),
    Spec(20, Published, 16 * _KIB, {**_NAME, "digest": _DIGEST, "changed": integer(), "bytes": integer(), **_TIMINGS}),
    Spec(21, Close, 4 * _KIB, {"drain_ms": integer()}),
    Spec(22, Closed, 4 * _KIB, {"drained": boolean}),
    Spec(23, Cancel, 32 * _KIB, {"reason": text(MAX_TEXT_CHARACTERS)}),
    Spec(32, Stage, 4 * _KIB, {
        **_NAME, "digest": _DIGEST, **_STEP, "base": _REF, "form": one_of("list", "object", "state"),
        "bytes": integer(),
    }),
    Spec(33, Staged, 16 * _KIB, {**_NAME, **_TIMINGS}),
    Spec(34, Activate, 4 * _KIB, _NAME),
    Spec(35, Go, 4 * _KIB, {**_NAME, "term": integer()}),
    Spec(36, Activated, 4 * _KIB, {**_NAME, "pause_us": integer()}),
    Spec(37, Unstage, 4 * _KIB, {"version": _REF}),
    Spec(38, Scrub, 4 * _MIB, {**_NAME, "digest": optional(_DIGEST), "blocks": _ranges, "state": boolean}),
    Spec(39, Scrubbed, 4 * _MIB, {"passed": boolean, "blocks": _ranges}),
    Spec(40, Blocks, 4 * _MIB, {"blocks": _ranges}),
    Spec(41, Histograms, 4 * _KIB, {}),
    Spec(42, Anchor, 4 * _MIB, {**_NAME, "blocks": _ranges}),
    Spec(43, Part, 64 * _MIB, {"blocks": _ranges, "copies": _ranges, "digests": _DIGESTS}),
    Spec(44, Share, 4 * _KIB, {"digest": _DIGEST}),
    Spec(45, Recode, 4 * _KIB, {"codec": one_of("tight")}),
    Spec(46, Tables, 64 * _MIB, {"tables": matching("(?:[0-9a-f]{8})*", "whole words in hexadecimal digits")}),
    Spec(48, Note, 16 * _KIB, {"tokens_per_second": optional(integer()), **_TIMINGS}),
    Spec(49, Head, 4 * _KIB, {**_NAME, "digest": _DIGEST, **_STEP}),
    Spec(50, Known, 4 * _KIB, {**_NAME, "digest": _DIGEST, **_STEP}),
    Spec(51, Recheck, 4 * _KIB, {}),
)  # fmt: skip
_ALL = (*_SPECS, *WORK_SPECS)
_BY_CODE = {spec.code: spec for spec in _ALL}
_BY_CLASS = {spec.cls: spec for spec in _ALL}
_LENGTH = struct.Struct("<I")


def limit_of(code: int) -> int:
    """The most bytes of a body; raises LocalProtocolError for a type that does not exist."""
    if code not in _BY_CODE:
        raise LocalProtocolError(f"a frame has type {code}, which this version of the protocol does not have")
    return _BY_CODE[code].limit_bytes


def pack(message: Message) -> bytes:
    """A message as a frame; raises LocalProtocolError where it is too large for one."""
    spec, content = _BY_CLASS[type(message)], asdict(message)
    payload: bytes = content.pop("payload") if spec.has_payload else b""
    body = pack_json(content)
    if spec.has_payload:
        body = _LENGTH.pack(len(body)) + body + payload
    if len(body) > spec.limit_bytes:
        raise LocalProtocolError(
            f"{spec.cls.__name__} would have {len(body)} bytes; the protocol allows {spec.limit_bytes}: send less"
        )
    return pack_frame(spec.code, body)


def parse(code: int, body: bytes) -> Message:
    """A frame's meaning; raises LocalProtocolError."""
    limit_of(code)
    spec = _BY_CODE[code]
    content = parse_json(body if not spec.has_payload else _head(body))
    if not spec.has_payload:
        return cast("Message", record(spec.cls, spec.checks)(content))
    payload = body[_LENGTH.size + _LENGTH.unpack_from(body)[0] :]
    return cast("Message", record(spec.cls, {**spec.checks, "payload": bytes})({**content, "payload": payload}))


def _head(body: bytes) -> bytes:
    """The JSON before a payload."""
    if len(body) < _LENGTH.size or _LENGTH.size + _LENGTH.unpack_from(body)[0] > len(body):
        raise LocalProtocolError("a message with a payload is cut off")
    return body[_LENGTH.size : _LENGTH.size + _LENGTH.unpack_from(body)[0]]
