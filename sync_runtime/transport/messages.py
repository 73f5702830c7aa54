"""The bodies of control frames as values: strict models of the JSON ones, small classes of the binary ones.

`encode` makes a frame, `decode` reads a body that may be hostile: size was judged by `wire`; here nesting, JSON without
duplicate keys or fractions, exactly the fields of PROTOCOL.md, then every limit. What is wrong ends in FrameError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sync_runtime.contract.fields import DnsLabel, Uid
from sync_runtime.transport import wire, work_messages
from sync_runtime.transport.body import Hex32, JsonMessage, Number, Reason, Sentence, read_model
from sync_runtime.transport.wire import MAX_BUCKETS, MAX_STREAMS, FrameType

MAX_RANGES = 4096
MAX_INDEXED = 10_000


def _forward(value: list[int]) -> list[int]:
    if value[0] >= value[1]:
        raise PydanticCustomError("range", "a range [from, to) needs from < to")
    return value


Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Hex128 = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
Nanoseconds = Annotated[int, Field(ge=0, lt=2**63)]
TransferNumber = Annotated[int, Field(ge=0, lt=2**32)]
Key = Annotated[str, Field(min_length=1, max_length=256, pattern="^[-a-z0-9./:]+$")]
"""An object's key as text; `bucket.keys` knows its grammar."""
Trace = Annotated[str, Field(max_length=64, pattern="^(|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})$")]
Role = Literal["trainer", "rollout"]
ObjectCodec = Literal["fast", "tight", "auto", "anchor"]
Range = Annotated[list[Number], Field(min_length=2, max_length=2), AfterValidator(_forward)]
"""[from, to): to is not in it."""


def _as_row(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


IndexRow = Annotated[tuple[Number, Hex32], BeforeValidator(_as_row)]
"""A version's number and digest."""


class Hello(JsonMessage):
    """The first frame of every connection."""

    TYPE = FrameType.HELLO
    protocols: Annotated[list[Annotated[int, Field(ge=1, le=1000)]], Field(min_length=1, max_length=16)]
    kind: Literal["control", "data", "work"]
    group: Uid
    member: DnsLabel
    cluster: DnsLabel
    region: DnsLabel
    role: Role
    term: Number
    token: Hex32 | None = None


class Welcome(JsonMessage):
    """The parent's answer."""

    TYPE = FrameType.WELCOME
    protocol: Annotated[int, Field(ge=1, le=1000)]
    member: DnsLabel
    term: Number
    incarnation: Hex32 | None
    token: Hex32
    streams: Annotated[int, Field(ge=1, le=MAX_STREAMS)]
    heartbeat_ms: Annotated[int, Field(ge=100, le=60_000)]


class Refuse(JsonMessage):
    """Why the sender closes now."""

    TYPE = FrameType.REFUSE
    reason: Reason
    message: Sentence
    retry: bool


class Bounds(JsonMessage):
    """Where tuning starts, and inside which bounds."""

    seed: Number
    min: Number
    max: Number


class Follow(JsonMessage):
    """What the child holds once all it accepted is there, and what its plan says of this link."""

    TYPE = FrameType.FOLLOW
    lineage: Hex32 | None
    seq: Number | None
    digest: Hex32 | None
    codecs: Annotated[list[ObjectCodec], Field(min_length=1, max_length=4)]
    out_of_service: bool
    want_anchor: bool
    streams: Bounds | None = None
    bucket_bytes: Bounds | None = None


class Want(JsonMessage):
    """An object, or what is missing of it."""

    TYPE = FrameType.WANT
    key: Key
    have: Annotated[list[Range], Field(max_length=MAX_RANGES)] = Field(default_factory=list)
    blocks: Annotated[list[Range], Field(max_length=MAX_RANGES)] | None = None


class Drop(JsonMessage):
    """The child does not want the rest of a transfer."""

    TYPE = FrameType.DROP
    transfer: TransferNumber
    reason: Reason


class Place(JsonMessage):
    """A version by lineage and number."""

    lineage: Hex32
    seq: Number


class Status(JsonMessage):
    """What the child and everyone below it stands on."""

    TYPE = FrameType.STATUS
    serving: Place | None
    needs: Place | None
    members: Annotated[int, Field(ge=0, le=1_000_000)]


class Streams(JsonMessage):
    """How many data streams the child shall hold open."""

    TYPE = FrameType.STREAMS
    count: Annotated[int, Field(ge=1, le=MAX_STREAMS)]


class Signer(JsonMessage):
    """The certificates of a trainer, PEM."""

    TYPE = FrameType.SIGNER
    certificates: Annotated[str, Field(min_length=1, max_length=60_000)]


class Head(JsonMessage):
    """The newest durable version."""

    TYPE = FrameType.HEAD
    lineage: Hex32
    seq: Number
    digest: Hex32
    step: Number | None
    term: Number
    incarnation: Hex32
    published_unix_ns: Nanoseconds
    trace: Trace


class BaseVersion(JsonMessage):
    """Where a delta starts."""

    seq: Number
    digest: Hex32


class Begin(JsonMessage):
    """A transfer starts. `transfer` is given by the link that sends it."""

    TYPE = FrameType.BEGIN
    transfer: TransferNumber = 0
    key: Key
    base: BaseVersion | None
    target_seq: Number
    codec: ObjectCodec
    layout: Hex64
    term: Number
    incarnation: Hex32
    trace: Trace = ""
    priority: Annotated[int, Field(ge=0, le=2)]
    bytes: Number | None = None
    buckets: Annotated[int, Field(ge=0, le=MAX_BUCKETS)] | None = None


class Index(JsonMessage):
    """The retained versions of a lineage, ascending: [seq, digest]."""

    TYPE = FrameType.INDEX
    lineage: Hex32
    term: Number
    incarnation: Hex32
    start: Place | None
    versions: Annotated[list[IndexRow], Field(max_length=MAX_INDEXED)]


class Term(JsonMessage):
    """The trainer's own word for its term: the signature proves it, whoever passes it on."""

    TYPE = FrameType.TERM
    term: Number
    incarnation: Hex32
    signature: Hex128


class Abort(JsonMessage):
    """What was sent of a transfer is void, or there is nothing to send."""

    TYPE = FrameType.ABORT
    transfer: TransferNumber
    reason: Reason


@dataclass(frozen=True, slots=True)
class Ack:
    """Buckets verified and kept."""

    TYPE: ClassVar[FrameType] = FrameType.ACK
    transfer: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nack:
    """A bucket that arrived damaged."""

    TYPE: ClassVar[FrameType] = FrameType.NACK
    transfer: int
    index: int


@dataclass(frozen=True, slots=True)
class LayoutDocument:
    """The layout, as its canonical document."""

    TYPE: ClassVar[FrameType] = FrameType.LAYOUT
    document: bytes


@dataclass(frozen=True, slots=True)
class ManifestEnvelope:
    """The signed manifest of a transfer's object."""

    TYPE: ClassVar[FrameType] = FrameType.MANIFEST
    transfer: int
    envelope: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A PING or its PONG."""

    TYPE: ClassVar[FrameType] = FrameType.PING
    kind: FrameType
    token: int


Message: TypeAlias = (
    JsonMessage | Ack | Nack | LayoutDocument | ManifestEnvelope | Heartbeat | work_messages.Task | work_messages.Result
)

_JSON: dict[FrameType, type[JsonMessage]] = {
    model.TYPE: model
    for model in (
        Hello, Welcome, Refuse, Follow, Want, Drop, Status, Streams, Signer, Head, Begin, Abort, Index, Term,
        *work_messages.WORK_JSON,
    )
}  # fmt: skip
_BINARY: dict[FrameType, Callable[[bytes], Message]] = {
    FrameType.ACK: lambda body: Ack(*wire.parse_ack(body)),
    FrameType.NACK: lambda body: Nack(*wire.parse_nack(body)),
    FrameType.LAYOUT: LayoutDocument,
    FrameType.MANIFEST: lambda body: ManifestEnvelope(*wire.parse_manifest(body)),
    FrameType.PING: lambda body: Heartbeat(FrameType.PING, wire.parse_ping(body)),
    FrameType.PONG: lambda body: Heartbeat(FrameType.PONG, wire.parse_ping(body)),
    FrameType.TASK: work_messages.parse_task,
    FrameType.RESULT: work_messages.parse_result,
}


def encode(message: Message) -> bytes:
    """A message as frames, ready to send."""
    match message:
        case JsonMessage():
            return wire.pack_frame(message.TYPE, message.body())
        case Ack(transfer, indices):
            return b"".join(wire.pack_acks(transfer, indices))
        case Nack(transfer, index):
            return wire.pack_nack(transfer, index)
        case LayoutDocument(document):
            return wire.pack_frame(FrameType.LAYOUT, document)
        case ManifestEnvelope(transfer, envelope):
            return wire.pack_manifest(transfer, envelope)
        case Heartbeat(kind, token):
            return wire.pack_ping(kind, token)
        case work_messages.Task() | work_messages.Result():
            return wire.pack_frame(message.TYPE, work_messages.pack_body(message))


def decode(kind: FrameType, body: bytes) -> Message:
    """The message in a frame's body; raises FrameError."""
    if read := _BINARY.get(kind):
        return read(body)
    return read_model(kind, _JSON[kind], body)
