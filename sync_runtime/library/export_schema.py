"""Messages between owner and GPU worker to frames and back: every field is checked by hand-written rules.

Exactly the fields named, of the type and within the limits named. Whether handles fit their storages is
`export_handles`' question. Framing is the local protocol's (`sync_runtime.local.frames`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final, NamedTuple, cast

from sync_runtime.errors import LocalProtocolError
from sync_runtime.library.export_handles import MAX_DIMENSIONS, CudaHandle, FileHandle, StorageHandle, TensorHandle
from sync_runtime.library.export_messages import (
    MAX_TEXT_CHARACTERS,
    Activate,
    Activated,
    Beat,
    Close,
    Closed,
    Export,
    Failure,
    Hello,
    Message,
    Note,
    Opened,
    Publish,
    Published,
    Scrub,
    Scrubbed,
    State,
    Valid,
    Validate,
    Welcome,
)
from sync_runtime.library.version import Version
from sync_runtime.local.fields import MAX_INT, Check, boolean, integer, refuse
from sync_runtime.local.frames import pack_frame, pack_json, parse_json
from sync_runtime.local.messages import MAX_LABEL_CHARACTERS

MAX_TENSORS: Final = 1 << 20


def _text(pattern: str, what: str) -> Check:
    compiled = re.compile(pattern, re.DOTALL)

    def check(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise refuse(what)
        return value

    return check


def _hex(value: Any) -> bytes:
    if not isinstance(value, str) or len(value) > 512 or not re.fullmatch("(?:[0-9a-f]{2})*", value):
        raise refuse("bytes in hexadecimal digits")
    return bytes.fromhex(value)


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _tuple_of(check: Check, most: int) -> Check:
    def check_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise refuse(f"a list of at most {most} entries")
        return tuple(check(entry) for entry in value)

    return check_all


def _record(cls: type, checks: Mapping[str, Check]) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, dict) or set(value) != set(checks):
            raise LocalProtocolError(f"{cls.__name__} has other fields than the protocol names: {', '.join(checks)}")
        return cls(**{name: checks[name](value[name]) for name in checks})

    return check


_PLAIN = _text(f".{{0,{MAX_TEXT_CHARACTERS}}}", f"text of at most {MAX_TEXT_CHARACTERS} characters")
_DIGEST = _text("[0-9a-f]{32}", "32 hexadecimal digits")
_STEP = _optional(integer(-MAX_INT - 1))
_ID = {"id": integer()}
_VERSION = _record(Version, {"lineage": _DIGEST, "seq": integer(), "digest": _DIGEST, "step": _STEP})
_SIZES = _tuple_of(integer(), MAX_DIMENSIONS)
_FILE = _record(FileHandle, {"path": _text("/[^\0]{1,4095}", "an absolute path"), "size_bytes": integer(1)})
_CUDA = _record(
    CudaHandle,
    {"handle": _hex, "offset_bytes": integer(), "size_bytes": integer(1), "counter": _PLAIN, "counter_at": integer(),
     "event": _hex, "waits_for_event": boolean},
)  # fmt: skip
_TENSOR = _record(
    TensorHandle,
    {"name": _PLAIN, "storage": _optional(integer()), "dtype": _text("[a-z0-9_]{1,32}", "a dtype's name"),
     "shape": _SIZES, "stride": _SIZES, "offset": integer()},
)  # fmt: skip


def _storage(value: Any) -> StorageHandle:
    """A handle says which kind it is by its fields."""
    check = _FILE if isinstance(value, dict) and "path" in value else _CUDA
    return cast("StorageHandle", check(value))


def _tie(value: Any) -> tuple[str, str]:
    found = _tuple_of(_PLAIN, 2)(value)
    if len(found) != 2:
        raise refuse("an alias and a name")
    return found[0], found[1]


class Spec(NamedTuple):
    """A message on the wire."""

    code: int
    cls: type[Any]
    checks: Mapping[str, Check]
    limit_bytes: int = 4 << 10


_SPECS = (
    Spec(1, Hello, {
        "protocols": _tuple_of(integer(1, 65535), 16), "kind": _text("publisher|subscriber", "publisher or subscriber"),
        "rank": integer(0, 65535), "world_size": integer(1, 65536),
        "wire_dtype": _optional(_text("bfloat16|float16", "bfloat16 or float16")),
        "coder": _optional(_text("sidecar|library", "sidecar or library")), "host_snapshot": boolean,
        "auto_scrub": _optional(boolean), "timeout_ms": integer(), "patience_ms": integer(),
    }),
    Spec(2, Welcome, {"protocol": integer(1, 65535)}),
    Spec(3, Failure, {
        **_ID, "kind": _text("[A-Za-z]{1,64}", "an error's name"), "message": _PLAIN, "retry": boolean,
    }, 32 << 10),
    Spec(16, Export, {
        **_ID, "generation": integer(1), "device": _text("[A-Za-z0-9-]{0,64}", "a GPU's uuid"),
        "storages": _tuple_of(_storage, MAX_TENSORS), "tensors": _tuple_of(_TENSOR, MAX_TENSORS),
        "ties": _tuple_of(_tie, MAX_TENSORS),
    }, 256 << 20),
    Spec(17, Opened, _ID),
    Spec(18, Validate, {**_ID, "generation": integer(1)}),
    Spec(19, Valid, {**_ID, "generation": integer(1)}),
    Spec(20, Publish, {
        **_ID, "step": _STEP, "label": _text(f".{{0,{MAX_LABEL_CHARACTERS}}}", "a label of at most 256 characters"),
    }),
    Spec(21, Published, {**_ID, "version": _VERSION}),
    Spec(22, Activate, _ID),
    Spec(23, Activated, {**_ID, "version": _optional(_VERSION)}),
    Spec(24, Scrub, _ID),
    Spec(25, Scrubbed, {**_ID, "passed": boolean}),
    Spec(26, Note, {"tokens_per_second": _optional(integer())}),
    Spec(27, Close, {**_ID, "drain_ms": integer()}),
    Spec(28, Closed, {**_ID, "drained": boolean}),
    Spec(29, State, {
        "live": _optional(_VERSION), "staged": _optional(_VERSION), "stale": boolean, "poisoned": boolean,
    }),
    Spec(30, Beat, {"request": _optional(_text("[A-Za-z]{1,64}", "a request's name")), "under_way_ms": integer()}),
)  # fmt: skip
_BY_CODE = {spec.code: spec for spec in _SPECS}
_BY_CLASS = {spec.cls: spec for spec in _SPECS}


def limit_of(code: int) -> int:
    """The most bytes of a body; raises LocalProtocolError for a type that does not exist."""
    if code not in _BY_CODE:
        raise LocalProtocolError(f"a frame has type {code}, which this version of the worker's protocol does not have")
    return _BY_CODE[code].limit_bytes


def pack(message: Message) -> bytes:
    """A message as a frame; raises LocalProtocolError where it is larger than the protocol allows."""
    spec = _BY_CLASS[type(message)]
    content = {field.name: _plain(getattr(message, field.name)) for field in fields(message)}
    if spec.cls is not Export:  # what users pass in is refused here, not by the other end; exports are ours, and long
        _record(spec.cls, spec.checks)(content)
    body = pack_json(content)
    if len(body) > spec.limit_bytes:
        raise LocalProtocolError(f"a {spec.cls.__name__} of {len(body)} bytes is above its limit of {spec.limit_bytes}")
    return pack_frame(spec.code, body)


def parse(code: int, body: bytes) -> Message:
    """A frame's meaning; raises LocalProtocolError."""
    limit_of(code)
    spec = _BY_CODE[code]
    return cast("Message", _record(spec.cls, spec.checks)(parse_json(body)))


def _plain(value: Any) -> Any:
    """Dataclasses, bytes and tuples as JSON has them."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Version | FileHandle | CudaHandle | TensorHandle):
        return {name: _plain(entry) for name, entry in asdict(value).items()}
    return value
